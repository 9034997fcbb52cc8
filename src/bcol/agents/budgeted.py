"""What the budgeted agents share: their options, the backup over budgets, the penalty, and how they decide."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bcol.agents.base import Agent, Batch, Learner, is_zero, lowered
from bcol.budget import Heads, after_deviating, backup, critic_head, richer_head
from bcol.nets import Actor, Critic, Norm, all_heads, features, mix, one_head

Follow = Literal["best", "mode", "sample"]
"""What following mu-hat means: its best of several samples by Q, its mode, or one sample."""


class State(NamedTuple):
    """Everything that training changes; only the TD3 style has a target actor."""

    actor: Learner
    critic: Learner
    target: Critic
    target_actor: Actor | None
    behavior: Learner


@dataclass(frozen=True)
class Budgeted(Agent):
    """Options of agents that plan with a budget of deviations."""

    budget: int = 10
    """B: the most deviations per episode"""
    omega: float = 10.0
    """weight of the penalty on values that fall as the budget grows"""
    critic_lr: float = 7e-4
    """learning rate of the critics"""
    tau: float = 0.005
    """how far target networks move towards their networks per step"""
    min_weight: float = 0.75
    """lambda: weight of the smaller critic in Qbar; the larger has the rest"""
    budget_samples: int | None = None
    """budgets updated per step, 0 and others drawn anew each time; by default all"""
    heads: Heads = "remaining"
    """which actor head proposes a deviation: by what remains after it, or as the paper's text has it"""
    follow: Follow = "best"
    """what following mu-hat means in deployment"""
    follow_samples: int = 10
    """samples of mu-hat to choose from when follow is best"""
    critic_norm: Norm = "none"
    """LayerNorm in the critics, or none"""
    head_layers: int = 0
    """1 gives each budget of the critics a hidden layer of its own"""
    behavior_components: int = 1
    """Gaussians in the mixture that models the behaviour"""

    def drawn_budgets(self, key: Array) -> tuple[Int[Any, " k"], Float[Any, " k"]]:
        """The budgets of this step, 0 first, and weights that make the sum over them unbiased for the sum over all."""
        if self.budget_samples is None or self.budget_samples > self.budget:
            return np.arange(self.budget + 1), np.ones(self.budget + 1, np.float32)
        k = self.budget_samples - 1
        drawn = jax.random.permutation(key, self.budget)[:k] + 1
        weight = np.full(k + 1, self.budget / max(k, 1), np.float32)
        weight[0] = 1
        return jnp.concatenate([jnp.zeros(1, drawn.dtype), drawn]), weight

    def targets(
        self,
        target: Critic,
        batch: Batch,
        proposed: Float[Array, "n m spending a"],
        budgets: Int[Any, " k"],
    ) -> Float[Array, "n k"]:
        """y_b for every row and budget, from m proposals in s' for every budget but 0."""
        n, m, k, a = proposed.shape
        # One pass over a' and all proposals; each action is read only by the heads that judge it.
        actions = jnp.concatenate([batch.next_action[:, None], proposed.reshape(n, m * k, a)], axis=1)
        x = features(target, batch.next_observation, actions)
        follow = mix(all_heads(target, x[:, :, :1])[:, :, 0, budgets], self.min_weight)
        judges = jnp.tile(critic_head(budgets[1:]), m)
        best = mix(one_head(target, x[:, :, 1:], judges), self.min_weight).reshape(n, m, k).max(axis=1)
        y = jax.vmap(td_target, (0, 0, None, 0, 0))(batch.reward, batch.mask, self.discount, follow, best)
        return jax.lax.stop_gradient(y)

    def critic_loss(
        self,
        net: Critic,
        batch: Batch,
        y: Float[Array, "n k"],
        proposed: Float[Array, "n k a"],
        budgets: Int[Any, " k"],
        weight: Float[Any, " k"],
    ) -> tuple[Float[Array, ""], dict[str, Any]]:
        """Squared error to the targets, and the penalty where values fall as the budget grows; also what to log."""
        critic = lowered(net, self.precision)
        q = all_heads(critic, features(critic, batch.observation, batch.action[:, None]))[:, :, 0, budgets]
        loss, penalty = (weight * (q - y) ** 2).mean(1).sum(), jnp.zeros(())
        if not is_zero(self.omega):
            x = features(critic, batch.observation, proposed)
            gap = one_head(critic, x, budgets) - one_head(critic, x, richer_head(budgets, self.budget))
            penalty = (weight * jnp.maximum(gap, 0) ** 2).mean(1).sum()
        metrics = {"critic_loss": loss, "penalty": penalty, "q_size": jnp.abs(q).max()}
        metrics |= {"q_follow": q[:, :, 0].mean(), "q_budget": q[:, :, -1].mean()}
        return loss + self.omega * penalty, metrics

    def policy(self) -> dict[str, Any]:
        """Follow mu-hat or spend a deviation, whichever is worth more."""
        return {
            "budget": self.budget,
            "heads": self.heads,
            "follow": self.follow,
            "follow_samples": self.follow_samples,
            "min_weight": float(self.min_weight),
        }

    def deployed(self, state: State) -> dict[str, Any]:
        """All three networks take part in a decision."""
        return {"actor": state.actor.net, "critic": state.critic.net, "behavior": state.behavior.net}

    def check(self) -> None:
        """InputError if a hyper-parameter makes no sense."""
        super().check()
        self.require(self.budget >= 0, "budget", "0 or more")
        self.require(self.omega >= 0, "omega", "0 or more")
        self.require(0 < self.tau <= 1, "tau", "in (0, 1]")
        self.require(0 <= self.min_weight <= 1, "min_weight", "in [0, 1]")
        self.require(self.budget_samples is None or self.budget_samples >= 1, "budget_samples", "at least 1")
        self.require(self.follow_samples >= 1, "follow_samples", "at least 1")
        self.require(self.head_layers in (0, 1), "head_layers", "0 or 1")
        self.require(self.behavior_components >= 1, "behavior_components", "at least 1")


def td_target(
    reward: Float[Array, ""],
    mask: Float[Array, ""],
    discount: Any,
    follow: Float[Array, " k"],
    best: Float[Array, " spending"],
) -> Float[Array, " k"]:
    """y_b of one transition: r + gamma mask max(best[b-1], follow[b]), and follow alone for b = 0."""
    return reward + discount * mask * backup(follow, after_deviating(best))
