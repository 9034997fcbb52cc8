"""Behaviour cloning: mu-hat alone, by maximum likelihood.

    loss = - E log mu-hat(a | s)

mu-hat is a tanh-Gaussian, or a mixture of them; logged actions are clipped to 0.999 before tanh is inverted.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from jaxtyping import Array

from bcol.agents.base import Agent, Batch, Clock, Learner, clone, learner
from bcol.nets import make_behavior


class State(NamedTuple):
    """Everything that training changes."""

    behavior: Learner


@dataclass(frozen=True)
class BC(Agent):
    """Behaviour cloning."""

    behavior_components: int = 1
    """Gaussians in the mixture that models the behaviour"""
    follow: Literal["mode", "sample"] = "mode"
    """whether the policy takes the mode or a sample"""

    name: ClassVar[str] = "bc"

    def init(self, random: np.random.Generator, observation_dim: int, action_dim: int) -> State:
        """A random network."""
        return State(learner(make_behavior(random, observation_dim, action_dim, self.hidden, self.behavior_components)))

    def update(self, state: State, batch: Batch, key: Array, clock: Clock) -> tuple[State, dict[str, Any]]:
        """One maximum-likelihood step."""
        behavior, loss = clone(state.behavior, batch, self, clock)
        return State(behavior), {"behavior_loss": loss}

    def policy(self) -> dict[str, Any]:
        """Always follow."""
        return {"follow": self.follow}

    def deployed(self, state: State) -> dict[str, Any]:
        """mu-hat."""
        return {"behavior": state.behavior.net}

    def check(self) -> None:
        """InputError if a hyper-parameter makes no sense."""
        super().check()
        self.require(self.behavior_components >= 1, "behavior_components", "at least 1")
