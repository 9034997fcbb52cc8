"""What an environment sees and does: the sizes and bounds of its boxes."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from bcol.errors import InputError


@dataclass(frozen=True)
class Space:
    """The sizes and bounds of an environment with box observations and actions."""

    observation_dim: int
    low: Float[np.ndarray, " a"]
    high: Float[np.ndarray, " a"]

    @property
    def action_dim(self) -> int:
        """Numbers in an action."""
        return len(self.low)

    @property
    def half_range(self) -> Float[np.ndarray, " a"]:
        """What 1 stands for in an action in [-1, 1]."""
        return 0.5 * (self.high - self.low)

    def scaled(self, action: Float[np.ndarray, "*n a"]) -> Float[np.ndarray, "*n a"]:
        """Actions in [-1, 1] in the environment's own units; the very same where its bounds are -1 and 1."""
        own = 0.5 * (self.high + self.low) + self.half_range * action
        return np.minimum(np.maximum(own, self.low), self.high)  # rounding must not carry them out of the box


def space_of(world: Any, env: str) -> Space:
    """The environment's space; InputError unless it is made of bounded boxes."""
    import gymnasium

    seen, done = world.observation_space, world.action_space
    if not (isinstance(seen, gymnasium.spaces.Box) and isinstance(done, gymnasium.spaces.Box)):
        raise InputError(f"{env} must have box observations and actions: it has {seen} and {done}")
    low, high = (np.asarray(x, np.float32).reshape(-1) for x in (done.low, done.high))
    if not np.isfinite(low).all() or not np.isfinite(high).all():
        raise InputError(f"the actions of {env} must be bounded: its action space is {done}")
    if not (low < high).all():
        raise InputError(f"the actions of {env} must have low < high: its action space is {done}")
    return Space(int(np.prod(seen.shape)), low, high)
