"""The agents' updates as plain PyTorch, the way public implementations write them: the peer of the speed benchmarks.

    pip install torch
    python benchmarks/torch_peer.py

BCOL-SAC, BCOL-TD3 and TD3+BC: linear layers over the concatenated state and action, one module per critic, all budgets
as one output layer of which the needed head is gathered, one Adam per network. Nothing is done for speed that would
surprise a reader, and nothing is wasted either: critics are frozen in the actor's loss, targets run without gradients.
Run as a script it checks parity with bcol: the same weights, batch and noise must give the same targets, losses,
gradients and weights after a step of Adam.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
import tyro
from torch import Tensor, nn
from torch.nn import functional

Compile = Literal["none", "default", "reduce-overhead", "max-autotune"]


class Batch(NamedTuple):
    """Logged transitions, actions in [-1, 1]."""

    observation: Tensor
    action: Tensor
    reward: Tensor
    next_observation: Tensor
    next_action: Tensor
    mask: Tensor

    def sample(self, n: int) -> "Batch":
        """n rows, drawn with replacement."""
        rows = torch.randint(len(self.reward), (n,), device=self.reward.device)
        return Batch(*(x[rows] for x in self))


def mlp(sizes: list[int]) -> nn.Sequential:
    layers = [[nn.Linear(i, o), nn.ReLU()] for i, o in pairwise(sizes)]
    return nn.Sequential(*(x for pair in layers for x in pair))


class Critic(nn.Module):
    """Q(s, b, a) for all budgets b."""

    def __init__(self, observation_dim: int, action_dim: int, hidden: tuple[int, ...], heads: int = 1):
        """One critic; an agent has two."""
        super().__init__()
        self.trunk = mlp([observation_dim + action_dim, *hidden])
        self.head = nn.Linear(hidden[-1], heads)

    def forward(self, observation: Tensor, action: Tensor) -> Tensor:
        """[..., heads]."""
        return self.head(self.trunk(torch.cat([observation, action], dim=-1)))


class Actor(nn.Module):
    """A tanh-Gaussian, or a deterministic policy, per budget."""

    def __init__(
        self,
        observation_dim: int,
        action_dim: int,
        hidden: tuple[int, ...],
        heads: int = 1,
        deterministic: bool = False,
    ):
        """`heads` policies on one trunk."""
        super().__init__()
        self.trunk = mlp([observation_dim, *hidden])
        self.shape = (heads, action_dim)
        self.mean = nn.Linear(hidden[-1], heads * action_dim)
        self.log_std = None if deterministic else nn.Linear(hidden[-1], heads * action_dim)

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor | None]:
        """Mean and log-std before tanh, [n, heads, a]."""
        x = self.trunk(observation)
        mean = self.mean(x).unflatten(-1, self.shape)
        free = mean.clamp(-4, 4)
        mean = free + (mean - free) / (1 + (mean - free).abs())
        if self.log_std is None:
            return mean, None
        return mean, -5 + 3.5 * (torch.tanh(self.log_std(x).unflatten(-1, self.shape)) + 1)

    def log_prob(self, observation: Tensor, action: Tensor) -> Tensor:
        """Of a logged action under head 0."""
        mean, log_std = self(observation)
        action = action.clamp(-0.999, 0.999)
        normal = torch.distributions.Normal(mean[:, 0], log_std[:, 0].exp(), validate_args=False)
        return (normal.log_prob(torch.atanh(action)) - torch.log(1 - action**2)).sum(-1)


@contextmanager
def frozen(*modules: nn.Module) -> Iterator[None]:
    """No gradients for these parameters meanwhile."""
    for module in modules:
        module.requires_grad_(False)
    try:
        yield
    finally:
        for module in modules:
            module.requires_grad_(True)


def soft_update(target: nn.Module, source: nn.Module, tau: float) -> None:
    with torch.no_grad():
        torch._foreach_lerp_(list(target.parameters()), list(source.parameters()), tau)


@dataclass
class Settings:
    """Hyper-parameters; the defaults are those of BCOL-SAC."""

    observation_dim: int = 17
    action_dim: int = 6
    hidden: tuple[int, ...] = (256, 256, 256)
    budget: int = 10
    omega: float = 10.0
    samples: int = 5
    batch_size: int = 256
    discount: float = 0.99
    tau: float = 0.005
    actor_lr: float = 3e-4
    critic_lr: float = 7e-4
    min_weight: float = 0.75
    policy_noise: float = 0.2
    noise_clip: float = 0.5
    policy_delay: int = 2
    alpha: float = 2.5
    device: str = "cpu"
    compile: Compile = "none"
    """mode of torch.compile for targets and losses"""
    fused_adam: bool = False
    """torch's fused Adam; on a GPU also capturable"""


class Peer:
    """What the three agents share: twin critics and their targets, the actor, and optionally mu-hat."""

    def __init__(self, settings: Settings, heads: int, deterministic: bool, behavior: bool):
        """Random networks and their optimisers."""
        self.s = s = settings
        sizes = (s.observation_dim, s.action_dim, s.hidden)
        self.critic_1 = Critic(*sizes, heads).to(s.device)
        self.critic_2 = Critic(*sizes, heads).to(s.device)
        self.target_1, self.target_2 = copy.deepcopy(self.critic_1), copy.deepcopy(self.critic_2)
        self.actor = Actor(*sizes, heads, deterministic).to(s.device)
        self.target_actor = copy.deepcopy(self.actor)
        for target in (self.target_1, self.target_2, self.target_actor):
            target.requires_grad_(False)
        adam = partial(torch.optim.Adam, **({"fused": True} if s.fused_adam else {}))
        self.critic_optimizer = adam([*self.critic_1.parameters(), *self.critic_2.parameters()], lr=s.critic_lr)
        self.actor_optimizer = adam(self.actor.parameters(), lr=s.actor_lr)
        if behavior:
            self.behavior = Actor(*sizes).to(s.device)
            self.behavior_optimizer = adam(self.behavior.parameters(), lr=s.actor_lr)
        self.step = 0
        if s.compile != "none":
            for name in ("targets", "critic_loss", "actor_loss", "behavior_loss"):
                setattr(self, name, torch.compile(getattr(self, name), mode=s.compile))

    def normal(self, *shape: int) -> Tensor:
        """Standard normal noise."""
        return torch.randn(shape, device=self.s.device)

    def mix(self, q_1: Tensor, q_2: Tensor) -> Tensor:
        """Qbar = lambda min + (1 - lambda) max."""
        return self.s.min_weight * torch.minimum(q_1, q_2) + (1 - self.s.min_weight) * torch.maximum(q_1, q_2)

    def behavior_loss(self, batch: Batch) -> Tensor:
        """Maximum likelihood."""
        return -self.behavior.log_prob(batch.observation, batch.action).mean()

    def track(self, *, actor: bool) -> None:
        """Targets move towards their networks."""
        soft_update(self.target_1, self.critic_1, self.s.tau)
        soft_update(self.target_2, self.critic_2, self.s.tau)
        if actor:
            soft_update(self.target_actor, self.actor, self.s.tau)


def descend(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()


class Budgeted(Peer):
    """The backup over budgets and the critics' loss, for both styles."""

    def __init__(self, settings: Settings, deterministic: bool):
        """Heads 0..B."""
        super().__init__(settings, settings.budget + 1, deterministic, behavior=True)

    def backup(self, batch: Batch, proposed: Tensor) -> Tensor:
        """y_b [n, B+1] from proposals [n, m, B, a] of the heads 0..B-1 in s'."""
        n, m, b, _ = proposed.shape
        states = batch.next_observation[:, None, None].expand(n, m, b, -1)
        judge = torch.arange(b, device=proposed.device).expand(n, m, b).unsqueeze(-1)
        q_1 = self.target_1(states, proposed).gather(-1, judge).squeeze(-1)
        q_2 = self.target_2(states, proposed).gather(-1, judge).squeeze(-1)
        deviate = self.mix(q_1, q_2).amax(dim=1)
        follow = self.mix(
            self.target_1(batch.next_observation, batch.next_action),
            self.target_2(batch.next_observation, batch.next_action),
        )
        value = torch.cat([follow[:, :1], torch.maximum(follow[:, 1:], deviate)], dim=1)
        return batch.reward[:, None] + self.s.discount * batch.mask[:, None] * value

    def critic_loss(self, batch: Batch, y: Tensor, proposed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Squared error, penalty, and both together."""
        n, heads, _ = proposed.shape
        states = batch.observation[:, None].expand(n, heads, -1)
        head = torch.arange(heads - 1, device=y.device)[None, :, None].expand(n, -1, 1)
        error, penalty = torch.zeros((), device=y.device), torch.zeros((), device=y.device)
        for critic in (self.critic_1, self.critic_2):
            error = error + ((critic(batch.observation, batch.action) - y) ** 2).mean(0).sum()
            if self.s.omega:
                q = critic(states[:, :-1], proposed[:, :-1])
                gap = q.gather(-1, head) - q.gather(-1, head + 1)
                penalty = penalty + (gap.relu() ** 2).mean(0).sum()
        return error, penalty, error + self.s.omega * penalty

    def proposed_values(self, batch: Batch, proposed: Tensor) -> Tensor:
        """Qbar(s, b, a_b) [n, B+1]."""
        n, heads, _ = proposed.shape
        states = batch.observation[:, None].expand(n, heads, -1)
        head = torch.arange(heads, device=proposed.device)[None, :, None].expand(n, -1, 1)
        q_1 = self.critic_1(states, proposed).gather(-1, head).squeeze(-1)
        q_2 = self.critic_2(states, proposed).gather(-1, head).squeeze(-1)
        return self.mix(q_1, q_2)


class BCOLSAC(Budgeted):
    """BCOL with a stochastic actor."""

    def __init__(self, settings: Settings):
        """Three networks and the critics' target."""
        super().__init__(settings, deterministic=False)

    def noise(self) -> dict[str, Tensor]:
        """What one step draws."""
        n, heads, a = self.s.batch_size, self.s.budget + 1, self.s.action_dim
        return {"noise": self.normal(n, heads, a), "next_noise": self.normal(n, self.s.samples, heads - 1, a)}

    @torch.no_grad()
    def targets(self, batch: Batch, next_noise: Tensor) -> Tensor:
        """y [n, B+1]."""
        mean, log_std = self.actor(batch.next_observation)
        proposed = torch.tanh(mean[:, None, :-1] + log_std.exp()[:, None, :-1] * next_noise)
        return self.backup(batch, proposed)

    def actor_loss(self, batch: Batch, noise: Tensor) -> tuple[Tensor, Tensor]:
        """The loss, and the actions it judges."""
        mean, log_std = self.actor(batch.observation)
        proposed = torch.tanh(mean + log_std.exp() * noise)
        return -self.proposed_values(batch, proposed).mean(0).sum(), proposed

    def update(self, batch: Batch, noise: Tensor, next_noise: Tensor) -> dict[str, Tensor]:
        """Critics and actor step at once, each against the other's old weights."""
        y = self.targets(batch, next_noise)
        with frozen(self.critic_1, self.critic_2):
            actor_loss, proposed = self.actor_loss(batch, noise)
        error, penalty, critic_loss = self.critic_loss(batch, y, proposed.detach())
        behavior_loss = self.behavior_loss(batch)
        # Both losses are taken before either network moves.
        self.actor_optimizer.zero_grad(set_to_none=True)
        actor_loss.backward()
        descend(self.critic_optimizer, critic_loss)
        self.actor_optimizer.step()
        descend(self.behavior_optimizer, behavior_loss)
        self.track(actor=False)
        self.step += 1
        losses = {"critic_loss": error, "penalty": penalty, "actor_loss": actor_loss, "behavior_loss": behavior_loss}
        return {name: x.detach() for name, x in losses.items()}


class BCOLTD3(Budgeted):
    """BCOL with a deterministic actor."""

    def __init__(self, settings: Settings):
        """As BCOL-SAC, with a target actor."""
        super().__init__(settings, deterministic=True)

    def noise(self) -> dict[str, Tensor]:
        """What one step draws."""
        return {"next_noise": self.normal(self.s.batch_size, self.s.budget, self.s.action_dim)}

    @torch.no_grad()
    def targets(self, batch: Batch, next_noise: Tensor) -> Tensor:
        """y [n, B+1]."""
        action = torch.tanh(self.target_actor(batch.next_observation)[0][:, :-1])
        noise = (self.s.policy_noise * next_noise).clamp(-self.s.noise_clip, self.s.noise_clip)
        return self.backup(batch, (action + noise).clamp(-1, 1)[:, None])

    def actor_loss(self, batch: Batch, proposed: Tensor) -> Tensor:
        """Qbar over its own size, head by head."""
        q = self.proposed_values(batch, proposed)
        return -(q / q.detach().abs().mean(0)).mean(0).sum()

    def update(self, batch: Batch, next_noise: Tensor) -> dict[str, Tensor]:
        """Critics and mu-hat step every time, actor and targets every second."""
        y = self.targets(batch, next_noise)
        delayed = self.step % self.s.policy_delay == 0
        with torch.set_grad_enabled(delayed):
            proposed = torch.tanh(self.actor(batch.observation)[0])
        if delayed:
            with frozen(self.critic_1, self.critic_2):
                actor_loss = self.actor_loss(batch, proposed)
            self.actor_optimizer.zero_grad(set_to_none=True)
            actor_loss.backward()
        error, penalty, critic_loss = self.critic_loss(batch, y, proposed.detach())
        descend(self.critic_optimizer, critic_loss)
        behavior_loss = self.behavior_loss(batch)
        descend(self.behavior_optimizer, behavior_loss)
        if delayed:
            self.actor_optimizer.step()
            self.track(actor=True)
        self.step += 1
        losses = {"critic_loss": error, "penalty": penalty, "behavior_loss": behavior_loss}
        return {name: x.detach() for name, x in losses.items()}


class TD3BC(Peer):
    """TD3+BC."""

    def __init__(self, settings: Settings):
        """No budgets, no mu-hat."""
        super().__init__(settings, 1, deterministic=True, behavior=False)

    def noise(self) -> dict[str, Tensor]:
        """What one step draws."""
        return {"next_noise": self.normal(self.s.batch_size, self.s.action_dim)}

    @torch.no_grad()
    def targets(self, batch: Batch, next_noise: Tensor) -> Tensor:
        """y [n, 1]."""
        noise = (self.s.policy_noise * next_noise).clamp(-self.s.noise_clip, self.s.noise_clip)
        action = (torch.tanh(self.target_actor(batch.next_observation)[0][:, 0]) + noise).clamp(-1, 1)
        q_1, q_2 = (target(batch.next_observation, action) for target in (self.target_1, self.target_2))
        return batch.reward[:, None] + self.s.discount * batch.mask[:, None] * torch.minimum(q_1, q_2)

    def critic_loss(self, batch: Batch, y: Tensor) -> Tensor:
        """Squared error of both critics."""
        q_1, q_2 = (critic(batch.observation, batch.action) for critic in (self.critic_1, self.critic_2))
        return functional.mse_loss(q_1, y) + functional.mse_loss(q_2, y)

    def actor_loss(self, batch: Batch) -> Tensor:
        """The scaled value against the distance to the log."""
        action = torch.tanh(self.actor(batch.observation)[0][:, 0])
        q = self.critic_1(batch.observation, action)
        return -self.s.alpha * q.mean() / q.abs().mean().detach() + functional.mse_loss(action, batch.action)

    def update(self, batch: Batch, next_noise: Tensor) -> dict[str, Tensor]:
        """Critics step every time, actor and targets every second."""
        critic_loss = self.critic_loss(batch, self.targets(batch, next_noise))
        descend(self.critic_optimizer, critic_loss)
        if self.step % self.s.policy_delay == 0:
            with frozen(self.critic_1, self.critic_2):
                actor_loss = self.actor_loss(batch)
            descend(self.actor_optimizer, actor_loss)
            self.track(actor=True)
        self.step += 1
        return {"critic_loss": critic_loss.detach()}


AGENTS: dict[str, Any] = {"bcol-sac": BCOLSAC, "bcol-td3": BCOLTD3, "td3-bc": TD3BC}


def make(agent: Any, observation_dim: int, action_dim: int, **options: Any) -> Any:
    """The peer of a bcol agent, with random weights."""
    names = Settings.__dataclass_fields__
    same = {name: value for name, value in vars(agent).items() if name in names}
    settings = Settings(observation_dim=observation_dim, action_dim=action_dim, **(same | options))
    return AGENTS[agent.name](settings)


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
