"""TD3+BC (Fujimoto and Gu, 2021): offline TD3 with a pull towards the logged action.

actor:  - alpha E Q_1(s, pi(s)) / E|Q_1(s, pi(s))| + E |pi(s) - a|^2     (mean over rows and action dimensions)
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from bcol.agents.base import Batch
from bcol.agents.offline_td3 import OfflineTD3
from bcol.nets import Critic


@dataclass(frozen=True)
class TD3BC(OfflineTD3):
    """TD3 plus behaviour cloning."""

    alpha: float = 2.5
    """weight of the value against the squared distance to the logged action"""

    name: ClassVar[str] = "td3-bc"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "mujoco": {},
        "antmaze": {"alpha": 3.0, "actor_schedule": "cosine"},
    }

    def actor_loss(self, proposed: Float[Array, "n a"], critic: Critic, batch: Batch) -> Float[Array, ""]:
        """The scaled value against the distance to the log."""
        return self.alpha * super().actor_loss(proposed, critic, batch) + jnp.mean((proposed - batch.action) ** 2)

    def check(self) -> None:
        """InputError if a hyper-parameter makes no sense."""
        super().check()
        self.require(self.alpha >= 0, "alpha", "0 or more")
