"""A ladder of policies from random to expert: one small file each, or all in one; with the returns each reached.

Weights are kept in half precision, and returns are measured with what is kept: a policy is what its file says. A rung
is a checkpoint like any other (`bcol.load_policy` reads it). NumPy only.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from safetensors.numpy import save

import bcol
from bcol.data.tasks import REFERENCES
from bcol.data.transitions import Spec
from bcol.errors import InputError
from bcol.evaluate import make_environment
from bcol.forge.space import Space, space_of
from bcol.nets import Actor, gaussian
from bcol.runs import FORMAT, read_checkpoint, rebuild_networks, write_atomically


@dataclass(frozen=True)
class Measured:
    """Returns of whole episodes with the policy's mode, and with sampled actions."""

    mode: tuple[float, ...]
    sampled: tuple[float, ...]


@dataclass(frozen=True)
class Rung:
    """One policy of a ladder.

    Attributes:
        env: the Gymnasium id it was trained in.
        seed: of the run it is from.
        step: environment steps it had seen.
        space: what it sees and does.
        actor: the network, in half precision.
        measured: the returns it reached; None if nobody has looked yet.
    """

    env: str
    seed: int
    step: int
    space: Space
    actor: Actor
    measured: Measured | None = None

    def score(self, sampled: bool = True) -> float:
        """The mean return, normalised where the environment has reference returns; NaN before it is measured."""
        if self.measured is None:
            return float("nan")
        mean = float(np.mean(self.measured.sampled if sampled else self.measured.mode))
        low, high = REFERENCES.get(self.env, (0.0, 100.0))
        return 100 * (mean - low) / (high - low)


def halved(actor: Actor) -> Actor:
    """The actor with every weight rounded to half precision."""
    return _mapped(actor, lambda x: np.asarray(x, np.float16))


def in_single(actor: Actor) -> Actor:
    """The actor with its weights in single precision, to compute with."""
    return _mapped(actor, lambda x: np.asarray(x, np.float32))


def measure(env: str, actor: Actor, episodes: int, seed: int) -> Measured:
    """Play whole episodes side by side, as many with the mode as with sampled actions."""
    worlds = [make_environment(env, disable_env_checker=True) for _ in range(2 * episodes)]
    space, net = space_of(worlds[0], env), in_single(actor)
    random = np.random.default_rng((seed, 1))
    seen = np.stack([np.reshape(w.reset(seed=seed + i)[0], -1) for i, w in enumerate(worlds)]).astype(np.float32)
    returns, running = np.zeros(len(worlds)), np.ones(len(worlds), bool)
    randomness = (np.arange(len(worlds)) >= episodes)[:, None]
    while running.any():
        mean, log_std = gaussian(net, seen)
        noise = randomness * random.standard_normal(mean[:, 0].shape, np.float32)
        commands = space.scaled(np.tanh(mean[:, 0] + np.exp(log_std[:, 0]) * noise))
        commands = commands.reshape(len(worlds), *worlds[0].action_space.shape)
        for i in np.flatnonzero(running):
            after, reward, terminated, truncated, _ = worlds[i].step(commands[i])
            seen[i] = np.reshape(after, -1)
            returns[i] += float(reward)
            running[i] = not (terminated or truncated)
    for world in worlds:
        world.close()
    return Measured(tuple(returns[:episodes].tolist()), tuple(returns[episodes:].tolist()))


def write_rung(path: Path, rung: Rung) -> None:
    """Write one rung; the file appears whole or not at all."""
    _write(path, _tensors(rung.actor), {**_common(rung), **_own(rung)})


def read_rung(path: Path) -> Rung:
    """Read one rung."""
    tensors, meta = read_checkpoint(path)
    if "env" not in meta or "rungs" in meta:
        raise InputError(f"{path} is no rung of a ladder: give a rung_*.safetensors of bcol data train-behaviour")
    return _rung(tensors, meta, meta)


def write_ladder(path: Path, rungs: Sequence[Rung], about: dict[str, Any] | None = None) -> None:
    """Write rungs of one environment into one file, with what is to be known about their making."""
    if not rungs or len({rung.env for rung in rungs}) != 1:
        raise InputError(f"cannot write {path}: a ladder needs one or more rungs, all of one environment")
    stacks = [_tensors(rung.actor) for rung in rungs]
    tensors = {name: np.stack([stack[name] for stack in stacks]) for name in stacks[0]}
    _write(path, tensors, {**_common(rungs[0]), "rungs": [_own(rung) for rung in rungs], "about": about or {}})


def read_ladder(path: Path) -> tuple[list[Rung], dict[str, Any]]:
    """The rungs in a ladder's file, in its order, and what is known about their making."""
    tensors, meta = read_checkpoint(path)
    if "rungs" not in meta:
        raise InputError(f"{path} is no ladder of policies: give a file that bcol data train-behaviour packed")
    rungs = [_rung({k: x[i] for k, x in tensors.items()}, meta, own) for i, own in enumerate(meta["rungs"])]
    return rungs, meta["about"]


def thinned(rungs: Iterable[Rung], most: int) -> list[Rung]:
    """At most `most` measured rungs by step: evenly chosen, with the first, the last and the best among them."""
    ordered = sorted((r for r in rungs if r.measured is not None), key=lambda r: r.step)
    if len(ordered) <= most:
        return ordered
    best = max(range(len(ordered)), key=lambda i: ordered[i].score())
    even = np.linspace(0, len(ordered) - 1, most - 1).round().astype(int)
    return [ordered[i] for i in sorted({best, *even.tolist()})]


def with_returns(rung: Rung, measured: Measured) -> Rung:
    """The rung, measured."""
    return replace(rung, measured=measured)


def _mapped(actor: Actor, change: Any) -> Actor:
    assert actor.log_std is not None
    weight, bias = actor.log_std
    return Actor(
        hidden=tuple(type(layer)(change(layer.weight), change(layer.bias)) for layer in actor.hidden),
        mean=(change(actor.mean[0]), change(actor.mean[1])),
        log_std=(None if weight is None else change(weight), change(bias)),
    )


def _tensors(actor: Actor) -> dict[str, Float[np.ndarray, "..."]]:
    assert actor.log_std is not None
    pairs = {f"hidden.{i}": layer for i, layer in enumerate(actor.hidden)}
    tensors = {f"actor.{name}.{part}": getattr(layer, part) for name, layer in pairs.items() for part in layer._fields}
    for name, output in (("mean", actor.mean), ("log_std", actor.log_std)):
        tensors |= {f"actor.{name}.{i}": x for i, x in enumerate(output) if x is not None}
    return {name: np.ascontiguousarray(x, np.float16) for name, x in tensors.items()}


def _common(rung: Rung) -> dict[str, Any]:
    space = rung.space
    spec = Spec(
        observation_dim=space.observation_dim,
        action_dim=space.action_dim,
        num_actions=None,
        action_low=tuple(space.low.tolist()),
        action_high=tuple(space.high.tolist()),
        normalization=None,
        source=f"online SAC in {rung.env}",
        checksum="",
        env_id=rung.env,
        reference=REFERENCES.get(rung.env),
    )
    names = {name: name for name in _tensors(rung.actor)}
    return {"env": rung.env, "data": asdict(spec), "rule": {}, "policy": names}


def _own(rung: Rung) -> dict[str, Any]:
    measured = None if rung.measured is None else asdict(rung.measured)
    return {"seed": rung.seed, "step": rung.step, "measured": measured}


def _rung(tensors: dict[str, np.ndarray], common: dict[str, Any], own: dict[str, Any]) -> Rung:
    spec = Spec.from_json(json.dumps(common["data"]))
    space = Space(spec.observation_dim, *(np.asarray(x, np.float32) for x in (spec.action_low, spec.action_high)))
    kept = own["measured"]
    measured = None if kept is None else Measured(tuple(kept["mode"]), tuple(kept["sampled"]))
    return Rung(common["env"], own["seed"], own["step"], space, rebuild_networks(tensors)["actor"], measured)


def _write(path: Path, tensors: dict[str, np.ndarray], meta: dict[str, Any]) -> None:
    meta = {"format": FORMAT, "bcol": bcol.__version__, **meta}
    write_atomically(path, save(tensors, {"bcol": json.dumps(meta)}))
