"""BCOL, TD3-style: a deterministic actor with a target of its own, noise on its target actions, delayed updates.

    y_b = r + gamma mask max( Qbar'(s', b-1, a^{b-1}),  Qbar'(s', b, a') ),   a^j = clip(pi'_j(s') + clip(noise))
    critic:  sum_b E (Q(s,b,a) - y_b)^2 + omega sum_{b<B} E max(Q(s,b,pi_b(s)) - Q(s,b+1,pi_b(s)), 0)^2
    actor:   - sum_b E Qbar(s, b, pi_b(s)) / E|Qbar(s, b, pi_b(s))|,   every second step

Qbar is the smaller of the two critics (lambda = 1).
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bcol.agents.base import Batch, Clock, actor_metrics, clone, descend, gradient_if, learner, smoothed, track
from bcol.agents.budgeted import Budgeted, Follow, State
from bcol.budget import actor_head
from bcol.nets import Actor, gaussian, make_actor, make_behavior, make_critic, mix


@dataclass(frozen=True)
class BCOLTD3(Budgeted):
    """Budgeting counterfactuals with a deterministic actor."""

    budget: int = 50
    """B: the most deviations per episode"""
    critic_lr: float = 3e-4
    """learning rate of the critics"""
    min_weight: float = 1.0
    """lambda: weight of the smaller critic in Qbar; the larger has the rest"""
    follow: Follow = "mode"
    """what following mu-hat means in deployment"""
    normalize_states: bool = True
    """whether observations are shifted and scaled by the data's mean and deviation"""
    policy_noise: float = 0.2
    """deviation of the noise on target actions"""
    noise_clip: float = 0.5
    """largest noise on target actions"""
    policy_delay: int = 2
    """critic steps per step of the actor and the targets"""

    name: ClassVar[str] = "bcol-td3"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "mujoco": {},
        "antmaze": {"omega": 0.0, "actor_schedule": "cosine"},
    }

    def init(self, random: np.random.Generator, observation_dim: int, action_dim: int) -> State:
        """Random networks; the targets start as their networks."""
        sizes, heads = (observation_dim, action_dim, self.hidden), self.budget + 1
        critic = make_critic(random, *sizes, heads=heads, norm=self.critic_norm, head_layers=self.head_layers)
        actor = make_actor(random, *sizes, heads=heads, std="none")
        behavior = make_behavior(random, *sizes, self.behavior_components)
        return State(learner(actor), learner(critic), critic, actor, learner(behavior))

    def update(self, state: State, batch: Batch, key: Array, clock: Clock) -> tuple[State, dict[str, Any]]:
        """Critics and mu-hat step every time; the actor and the targets every `policy_delay` steps."""
        for_budgets, for_target = jax.random.split(key)
        budgets, weight = self.drawn_budgets(for_budgets)

        def propose(net: Actor) -> Float[Array, "n k a"]:
            return jnp.tanh(gaussian(net, batch.observation, budgets)[0])

        assert state.target_actor is not None
        mean, _ = gaussian(state.target_actor, batch.next_observation, actor_head(budgets[1:], self.heads))
        next_proposed = smoothed(jnp.tanh(mean), for_target, self.policy_noise, self.noise_clip)
        y = self.targets(state.target, batch, next_proposed[:, None], budgets)
        proposed, to_actor = jax.vjp(propose, state.actor.net)

        def actor_loss(proposed: Float[Array, "n k a"]) -> Float[Array, ""]:
            q = mix(self.proposed_values(state.critic.net, batch.observation, proposed, budgets), self.min_weight)
            return -(weight * q / jax.lax.stop_gradient(jnp.abs(q).mean(0))).mean(0).sum()

        critic_gradient, metrics = jax.grad(self.critic_loss, has_aux=True)(
            state.critic.net, batch, y, proposed, budgets, weight
        )
        critic = descend(state.critic, critic_gradient, self.critic_lr)
        behavior, behavior_loss = clone(state.behavior, batch, self, clock)

        now = clock.step % self.policy_delay == 0
        # The forward pass is the penalty's too; inside the branch it would be made once more.
        _, to_proposed = jax.vjp(actor_loss, proposed)
        actor_gradient = gradient_if(now, lambda: to_actor(to_proposed(jnp.ones(()))[0])[0], state.actor.net)
        actor = descend(state.actor, actor_gradient, self.actor_rate(clock), when=now)
        target = track(state.target, critic.net, self.tau * now)
        target_actor = track(state.target_actor, actor.net, self.tau * now)
        metrics |= {"behavior_loss": behavior_loss, **actor_metrics(proposed)}
        return State(actor, critic, target, target_actor, behavior), metrics

    def check(self) -> None:
        """InputError if a hyper-parameter makes no sense."""
        super().check()
        self.require(self.policy_noise >= 0, "policy_noise", "0 or more")
        self.require(self.noise_clip >= 0, "noise_clip", "0 or more")
        self.require(self.policy_delay >= 1, "policy_delay", "at least 1")
