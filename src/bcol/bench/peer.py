"""The agents' updates as plain PyTorch, the way public implementations write them: what bcol is timed against.

BCOL-SAC, BCOL-TD3 and TD3+BC: linear layers over the concatenated state and action, one module per critic, all budgets
as one output layer of which the needed head is gathered, one Adam per network. Nothing is done for speed that would
surprise a reader, and nothing is wasted either: critics are frozen in the actor's loss, targets run without gradients.
`benchmarks/torch_peer.py` checks that they compute what bcol computes. Needs PyTorch: imported only where it is used.
"""

import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from bcol.bench.peer_nets import Actor, Batch, Critic, descend, frozen, soft_update

Compile = Literal["none", "default", "reduce-overhead", "max-autotune"]


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
        fused = {"fused": True, "capturable": s.device == "cuda"} if s.fused_adam else {}
        adam = partial(torch.optim.Adam, **fused)
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
