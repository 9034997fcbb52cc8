"""Is the PyTorch peer of the speed benchmarks (`bcol.bench.peer`) the same update as bcol's?

    pip install torch
    python benchmarks/torch_peer.py

The same weights, batch and noise must give the same targets, losses, gradients and weights after a step of Adam.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import tyro
from torch import Tensor

from bcol.bench.peer import Compile, make
from bcol.bench.peer_nets import Batch


def weights(peer: Any) -> dict[str, dict[str, Tensor]]:
    """The peer's parameters by network and name."""
    networks = ("critic_1", "critic_2", "target_1", "target_2", "actor", "target_actor", "behavior")
    return {name: dict(getattr(peer, name).named_parameters()) for name in networks if hasattr(peer, name)}


def as_torch(state: Any) -> dict[str, dict[str, np.ndarray]]:
    """The weights of a bcol state under the peer's names."""

    def critic(net: Any, i: int) -> dict[str, np.ndarray]:
        first = np.concatenate([net.state.weight[i], net.action[i]])
        layers = [(first, net.state.bias[i]), *((x.weight[i], x.bias[i]) for x in net.hidden)]
        return trunk(layers) | {"head.weight": np.asarray(net.head[0][i]), "head.bias": np.asarray(net.head[1][i])}

    def actor(net: Any) -> dict[str, np.ndarray]:
        named = trunk(net.hidden)
        for name, output in (("mean", net.mean), ("log_std", net.log_std)):
            if output is not None:
                named[f"{name}.weight"] = np.asarray(output[0]).reshape(len(output[0]), -1).T
                named[f"{name}.bias"] = np.asarray(output[1]).ravel()
        return named

    def trunk(layers: Any) -> dict[str, np.ndarray]:
        return {
            f"trunk.{2 * i}.{name}": np.asarray(x).T
            for i, layer in enumerate(layers)
            for name, x in zip(("weight", "bias"), layer, strict=True)
        }

    named = {f"critic_{i + 1}": critic(state.critic.net, i) for i in (0, 1)}
    named |= {f"target_{i + 1}": critic(state.target, i) for i in (0, 1)}
    named["actor"] = actor(state.actor.net)
    if getattr(state, "target_actor", None) is not None:
        named["target_actor"] = actor(state.target_actor)
    if hasattr(state, "behavior"):
        named["behavior"] = actor(state.behavior.net.components)
    return named


def load(peer: Any, state: Any) -> None:
    """Give the peer the weights of a bcol state."""
    with torch.no_grad():
        ours = as_torch(state)
        for network, named in weights(peer).items():
            for name, parameter in named.items() if network in ours else ():
                parameter.copy_(torch.from_numpy(np.array(ours[network][name])))


def difference(x: Any, y: Any) -> float:
    """The largest difference, relative to the largest size."""
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    return float(np.abs(x - y).max() / max(np.abs(x).max(), 1e-30))


@dataclass
class Options:
    """Sizes of the check, and the largest relative difference allowed."""

    budget: int = 10
    batch_size: int = 64
    steps: int = 2
    tolerance: float = 1e-4
    device: str = "cpu"
    compile: Compile = "none"


def random_rows(random: np.random.Generator, n: int, s: int, a: int) -> list[np.ndarray]:
    """Columns of a Batch."""
    normal = lambda *shape: random.normal(size=shape).astype(np.float32)  # noqa: E731
    actions = [np.tanh(normal(n, a)) for _ in range(2)]
    return [normal(n, s), actions[0], normal(n), normal(n, s), actions[1], (random.random(n) > 0.1).astype(np.float32)]


def compare(agent: Any, options: Options) -> dict[str, float]:
    """The largest relative difference in targets, losses, gradients and weights over some steps from bcol's weights."""
    import jax
    import jax.numpy as jnp

    from bcol.agents.base import Batch as BcolBatch
    from bcol.agents.base import Clock

    s, a, n = 17, 6, options.batch_size
    random = np.random.default_rng(0)
    state = jax.tree.map(jnp.asarray, agent.init(random, s, a))
    peer = make(agent, s, a, device=options.device, compile=options.compile)
    load(peer, state)
    update = jax.jit(agent.update)
    worst: dict[str, float] = {}

    def note(what: str, x: Any, y: Any) -> None:
        worst[what] = max(worst.get(what, 0.0), difference(x, y))

    for step in range(options.steps):
        rows, key = random_rows(random, n, s, a), jax.random.key(step)
        if agent.name == "bcol-sac":
            _, for_target, for_actor = jax.random.split(key, 3)
            noise = {
                "noise": jax.random.normal(for_actor, (n, agent.budget + 1, a)),
                "next_noise": jax.random.normal(for_target, (n, agent.samples, agent.budget, a)),
            }
        elif agent.name == "bcol-td3":
            noise = {"next_noise": jax.random.normal(jax.random.split(key)[1], (n, agent.budget, a))}
        else:
            noise = {"next_noise": jax.random.normal(key, (n, a))}
        theirs = Batch(*(torch.from_numpy(x).to(options.device) for x in rows))
        drawn = {name: torch.from_numpy(np.array(x)).to(options.device) for name, x in noise.items()}
        y = peer.targets(theirs, drawn["next_noise"]).cpu()
        new, metrics = update(state, BcolBatch(*map(jnp.asarray, rows)), key, Clock(jnp.int32(step), jnp.int32(100)))
        if agent.name == "bcol-sac":
            from bcol.nets import gaussian

            mean, log_std = gaussian(state.actor.net, rows[3], np.arange(agent.budget))
            proposed = jnp.tanh(mean[:, None] + jnp.exp(log_std)[:, None] * noise["next_noise"])
            batch = BcolBatch(*map(jnp.asarray, rows))
            note("targets", agent.targets(state.target, batch, proposed, np.arange(agent.budget + 1)), y)
        losses = peer.update(theirs, **drawn)
        for name, loss in losses.items():
            note("losses", metrics[name], loss.cpu())
        # The first moment of Adam is 0.1 times the gradient after the first step.
        if step == 0:
            moments = as_torch(
                new._replace(
                    **{
                        name: getattr(new, name)._replace(net=getattr(new, name).adam.mu)
                        for name in ("actor", "critic", "behavior")
                        if hasattr(new, name)
                    }
                )
            )
            for network, named in weights(peer).items():
                for name, parameter in named.items() if "target" not in network else ():
                    note("gradients", 10 * moments[network][name], parameter.grad.cpu())
        state = new
        ours = as_torch(state)
        for network, named in weights(peer).items():
            for name, parameter in named.items() if network in ours else ():
                note("weights", ours[network][name], parameter.detach().cpu())
    return worst


def main(options: Options) -> None:
    from bcol.agents import BCOLSAC as SAC
    from bcol.agents import BCOLTD3 as TD3
    from bcol.agents import TD3BC as BC

    common: dict[str, Any] = {"batch_size": options.batch_size, "precision": "float32"}
    for agent in (SAC(budget=options.budget, **common), TD3(budget=options.budget, **common), BC(**common)):
        worst = compare(agent, options)
        print(f"{agent.name:9}" + "".join(f"  {what} {x:.1e}" for what, x in worst.items()))
        if max(worst.values()) > options.tolerance:
            raise SystemExit(f"{agent.name}: the peer differs from bcol by more than {options.tolerance}")


if __name__ == "__main__":
    main(tyro.cli(Options))
