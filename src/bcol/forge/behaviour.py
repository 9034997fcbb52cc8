"""Behaviour policies in NumPy, wherever they come from: shipped with the package, a D4RL file, a checkpoint of ours."""

import hashlib
import json
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Float32

from bcol.data.d4rl import Tree
from bcol.errors import InputError
from bcol.forge.goal_policy import LAYERS, GoalPolicy, load_goal_policy
from bcol.forge.rungs import Rung, in_single, read_ladder
from bcol.nets import Actor, squash_log_std
from bcol.runs import read_policy

_HDF5 = (".hdf5", ".h5")


@dataclass(frozen=True, eq=False)
class Behaviour:
    """A tanh-Gaussian MLP with ReLU layers: a = tanh(mean + std N(0, 1)).

    Attributes:
        weights: of the hidden layers, the mean and the log-std, each [in, out].
        biases: likewise.
        smooth: whether the log-std is squashed smoothly, as in `bcol.nets`, or clipped to -20..2, as in D4RL's files.
        source: where it comes from, for the data card.
        bounds: (low, high) of the actions that -1 and 1 stand for; None where they are the environment's.
    """

    weights: tuple[Float32[np.ndarray, "..."], ...]
    biases: tuple[Float32[np.ndarray, "..."], ...]
    smooth: bool
    source: str
    bounds: tuple[tuple[float, ...], tuple[float, ...]] | None = None

    @property
    def observation_dim(self) -> int:
        """Numbers in an observation."""
        return len(self.weights[0])

    @property
    def action_dim(self) -> int:
        """Numbers in an action."""
        return len(self.biases[-1])

    @property
    def checksum(self) -> str:
        """SHA-256 of the weights."""
        digest = hashlib.sha256(b"smooth" if self.smooth else b"clipped")
        for array in (*self.weights, *self.biases):
            digest.update(f"{array.shape}".encode())
            digest.update(array.tobytes())
        return f"sha256:{digest.hexdigest()}"

    def distribution(
        self, observation: Float32[np.ndarray, "n s"]
    ) -> tuple[Float32[np.ndarray, "n a"], Float32[np.ndarray, "n a"]]:
        """Mean and log standard deviation before tanh.

        The last bit can depend on n and on BLAS's threads: datasets are made with one n, in processes of one thread.
        """
        x = observation
        for weight, bias in zip(self.weights[:-2], self.biases[:-2], strict=True):
            x = x @ weight
            x += bias
            np.maximum(x, 0, out=x)
        mean, log_std = x @ self.weights[-2] + self.biases[-2], x @ self.weights[-1] + self.biases[-1]
        return mean, squash_log_std(log_std) if self.smooth else np.clip(log_std, -20, 2)

    @classmethod
    def from_actor(cls, actor: Actor, source: str) -> "Behaviour":
        """The policy of a network of ours."""
        actor = in_single(actor)
        outputs = [output for output in (actor.mean, actor.log_std) if output is not None and output[0] is not None]
        if len(outputs) != 2 or actor.mean[0].shape[1] != 1:
            raise InputError(
                f"{source} cannot be sampled: a behaviour needs one head whose deviation depends on the state"
            )
        weights = [layer.weight for layer in actor.hidden] + [
            weight[:, 0] for weight, _ in outputs if weight is not None
        ]
        biases = [layer.bias for layer in actor.hidden] + [bias[0] for _, bias in outputs]
        return cls(tuple(map(np.ascontiguousarray, weights)), tuple(map(np.ascontiguousarray, biases)), True, source)


def log_probability(
    mean: Float32[np.ndarray, "n a"], log_std: Float32[np.ndarray, "n a"], inside: Float[np.ndarray, "n a"]
) -> Float[np.ndarray, " n"]:
    """log pi(a|s) of the action tanh(inside)."""
    z = (inside - mean) * np.exp(-log_std)
    normal = -0.5 * (z * z + np.log(2 * np.pi)) - log_std
    # log(1 - tanh(x)^2), written so that it does not vanish where tanh saturates
    shrinkage = 2 * (np.log(2) - inside - np.logaddexp(0, -2 * inside))
    return (normal - shrinkage).sum(-1)


def read_behaviour(path: str | Path) -> Behaviour:
    """The policy in a file: a D4RL v2 file that carries the one it was made with, or a checkpoint of ours."""
    path = Path(path)
    if path.suffix in _HDF5:
        return _from_d4rl(path)
    spec, _, networks = read_policy(path, None)
    if "actor" not in networks or spec.normalization is not None:
        what = "holds no actor to sample" if "actor" not in networks else "acts on normalised states"
        raise InputError(f"{path} {what}: give a rung of bcol data train-behaviour, or a D4RL file")
    behaviour = Behaviour.from_actor(networks["actor"], path.name)
    return replace(behaviour, bounds=(spec.action_low, spec.action_high))


def read_walker(path: str | Path) -> GoalPolicy:
    """The goal-reaching ant in a file: an `.npz`, or a checkpoint trained in `bcol/AntDirections-v0`."""
    path = Path(path)
    if path.suffix == ".npz":
        return load_goal_policy(path)
    _, _, networks = read_policy(path, None)
    if "actor" not in networks:
        raise InputError(f"{path} holds no actor: give an .npz, or a rung trained in bcol/AntDirections-v0")
    return GoalPolicy.from_actor(networks["actor"])


def shipped(robot: str) -> tuple[dict[int, Rung], dict[str, Any]]:
    """The ladder that the package ships for a robot, by step, and its card."""
    folder = resources.files("bcol.forge") / "behaviours"
    card = folder / f"{robot}.json"
    if not card.is_file():
        raise InputError(
            f"no behaviour policies for {robot} are installed: "
            "give --policy FILE, or train some with bcol data train-behaviour"
        )
    with resources.as_file(folder / f"{robot}.safetensors") as path:
        rungs, _ = read_ladder(path)
    return {rung.step: rung for rung in rungs}, json.loads(card.read_text())


def _from_d4rl(path: Path) -> Behaviour:
    inside = Tree(path, "metadata")
    names = [f"policy/{layer}/{part}" for layer in LAYERS for part in ("weight", "bias")]
    missing = [name for name in names if name not in inside]
    if missing:
        raise InputError(
            f"{path} carries no policy (metadata/{missing[0]} is not there): give a D4RL v2 medium or expert file"
        )
    arrays = [np.asarray(inside[name], np.float32) for name in names]
    weights, biases = arrays[::2], arrays[1::2]
    sizes = [weights[0].shape[1], len(biases[0]), len(biases[1])]
    fits = all(w.shape == (len(b), i) for w, b, i in zip(weights, biases, [*sizes, sizes[-1]], strict=True))
    if not fits or inside.get("policy/nonlinearity", "relu") != "relu":
        raise InputError(f"{path} carries a policy of another kind than two ReLU layers and a tanh-Gaussian")
    return Behaviour(tuple(np.ascontiguousarray(w.T) for w in weights), tuple(biases), False, path.name)
