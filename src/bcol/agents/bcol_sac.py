"""BCOL, SAC-style: a stochastic actor and twin critics with a head per budget, all budgets in one step.

    y_b = r + gamma mask max( max_{k<=m} Qbar'(s', b-1, a_k^{b-1}),  Qbar'(s', b, a') )     (b = 0: second term only)
    critic:  sum_b E (Q(s,b,a) - y_b)^2 + omega sum_{b<B} E max(Q(s,b,a_b) - Q(s,b+1,a_b), 0)^2
    actor:   - sum_b E Qbar(s, b, a_b),   a_b ~ pi_b(s)

Qbar = lambda min + (1 - lambda) max over the critics; a' is the logged next action; ' marks the target network.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bcol.agents.base import Batch, Clock, actor_metrics, clone, descend, learner, track
from bcol.agents.budgeted import Budgeted, State
from bcol.budget import actor_head
from bcol.nets import (
    Actor,
    Std,
    gaussian,
    make_actor,
    make_behavior,
    make_critic,
    mix,
)


@dataclass(frozen=True)
class BCOLSAC(Budgeted):
    """Budgeting counterfactuals with a stochastic actor: the paper's best agent."""

    hidden: tuple[int, ...] = (256, 256, 256)
    """sizes of the hidden layers of every network"""
    samples: int = 5
    """m: actions sampled per budget in the backup"""
    std: Std = "state"
    """whether the actor's deviation depends on the state or is free of it"""

    name: ClassVar[str] = "bcol-sac"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "mujoco": {},
        "antmaze": {"budget": 50, "omega": 0.0, "actor_lr": 1e-4, "actor_schedule": "cosine", "std": "free"},
    }

    def init(self, random: np.random.Generator, observation_dim: int, action_dim: int) -> State:
        """Random networks; the target starts as the critic."""
        sizes, heads = (observation_dim, action_dim, self.hidden), self.budget + 1
        critic = make_critic(random, *sizes, heads=heads, norm=self.critic_norm, head_layers=self.head_layers)
        actor = make_actor(random, *sizes, heads=heads, std=self.std)
        behavior = make_behavior(random, *sizes, self.behavior_components)
        return State(learner(actor), learner(critic), critic, None, learner(behavior))

    def update(self, state: State, batch: Batch, key: Array, clock: Clock) -> tuple[State, dict[str, Any]]:
        """Critics and actor step at once, each against the other's old weights (the paper's algorithm 1)."""
        for_budgets, for_target, for_actor = jax.random.split(key, 3)
        budgets, weight = self.drawn_budgets(for_budgets)
        n, a = batch.action.shape
        noise = jax.random.normal(for_actor, (n, len(budgets), a))
        next_noise = jax.random.normal(for_target, (n, self.samples, len(budgets) - 1, a))

        mean, log_std = gaussian(state.actor.net, batch.next_observation, actor_head(budgets[1:], self.heads))
        next_proposed = jnp.tanh(mean[:, None] + jnp.exp(log_std)[:, None] * next_noise)
        y = self.targets(state.target, batch, next_proposed, budgets)

        def propose(actor: Actor) -> Float[Array, "n k a"]:
            mean, log_std = gaussian(actor, batch.observation, budgets)
            return jnp.tanh(mean + jnp.exp(log_std) * noise)

        proposed = jax.lax.stop_gradient(propose(state.actor.net))

        def actor_loss(net: Actor) -> Float[Array, ""]:
            q = self.proposed_values(state.critic.net, batch.observation, propose(net), budgets)
            return -(weight * mix(q, self.min_weight)).mean(0).sum()

        critic_gradient, metrics = jax.grad(self.critic_loss, has_aux=True)(
            state.critic.net, batch, y, proposed, budgets, weight
        )
        loss, actor_gradient = jax.value_and_grad(actor_loss)(state.actor.net)
        actor = descend(state.actor, actor_gradient, self.actor_rate(clock))
        critic = descend(state.critic, critic_gradient, self.critic_lr)
        behavior, behavior_loss = clone(state.behavior, batch, self, clock)
        metrics |= {"actor_loss": loss, "behavior_loss": behavior_loss, **actor_metrics(proposed)}
        return State(actor, critic, track(state.target, critic.net, self.tau), None, behavior), metrics

    def check(self) -> None:
        """InputError if a hyper-parameter makes no sense."""
        super().check()
        self.require(self.samples >= 1, "samples", "at least 1")
        self.require(self.std != "none", "std", "'state' or 'free'")
