"""What the budgeted agents share: their options, the backup over budgets, the penalty, and how they decide."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bcol.agents.base import Agent, Batch, Learner, is_zero
from bcol.budget import Heads, after_deviating, backup, critic_head, richer_head
from bcol.fused import Toward, route, values
from bcol.nets import Actor, Critic, Norm, all_heads, features, mix, pick

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
        follow = mix(self.logged(target, batch.next_observation, batch.next_action, budgets), self.min_weight)
        # Each proposal is judged by one head only.
        judges = budgets.__array_namespace__().tile(critic_head(budgets[1:]), m)
        q = self.judged(target, batch.next_observation, proposed.reshape(n, m * k, a), [judges], "nothing")[0]
        best = mix(q, self.min_weight).reshape(n, m, k).max(axis=1)
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
        q = self.logged(net, batch.observation, batch.action, budgets)
        loss, penalty = (weight * (q - y) ** 2).mean(1).sum(), jnp.zeros(())
        if not is_zero(self.omega):
            poorer, richer = self.judged(net, batch.observation, proposed, self.judges(budgets), "critic")
            gap = poorer - richer
            penalty = (weight * jnp.maximum(gap, 0) ** 2).mean(1).sum()
        metrics = {"critic_loss": loss, "penalty": penalty, "q_size": jnp.abs(q).max()}
        metrics |= {"q_follow": q[:, :, 0].mean(), "q_budget": q[:, :, -1].mean()}
        return loss + self.omega * penalty, metrics

    def proposed_values(
        self, net: Critic, observation: Float[Array, "n s"], proposed: Float[Array, "n k a"], budgets: Int[Any, " k"]
    ) -> Float[Array, "c n k"]:
        """Q(s, b, a_b), as the actor climbs it; where there is a penalty, by the same pass over the critics."""
        return self.judged(net, observation, proposed, self.judges(budgets), "action")[0]

    def judges(self, budgets: Int[Any, " k"]) -> list[Int[Any, " k"]]:
        """The heads that value a_b: b, and b + 1 for the penalty."""
        return [budgets] if is_zero(self.omega) else [budgets, richer_head(budgets, self.budget)]

    def judged(
        self,
        net: Critic,
        observation: Float[Array, "n s"],
        action: Float[Array, "n p a"],
        heads: list[Int[Any, " p"]],
        toward: Toward,
    ) -> Float[Array, "r c n p"]:
        """Values of many actions per state, one head each: see `bcol.fused`."""
        return values(net, observation, action, heads, precision=self.precision, toward=toward)

    def logged(
        self, net: Critic, observation: Float[Array, "n s"], action: Float[Array, "n a"], budgets: Int[Any, " k"]
    ) -> Float[Array, "c n k"]:
        """Values of one action per state by every head."""
        return pick(all_heads(net, features(net, observation, action[:, None]))[:, :, 0], budgets, axis=2)

    def route(self, state: State) -> str:
        """How matrix products are computed here, for the log."""
        return route(state.critic.net, self.batch_size, self.precision)

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
