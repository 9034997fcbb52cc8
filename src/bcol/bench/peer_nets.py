"""What the PyTorch peers are made of: batches, critics and actors as public implementations write them."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn


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
    """Hidden layers with rectifiers."""
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
    """Move a target by `tau` towards its network."""
    with torch.no_grad():
        torch._foreach_lerp_(list(target.parameters()), list(source.parameters()), tau)


def descend(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """One step."""
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
