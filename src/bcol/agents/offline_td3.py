"""Offline TD3: BCOL-TD3 with the budget gone (B = infinity).

y = r + gamma mask Qbar'(s', a~),   a~ = clip(pi'(s') + clip(noise))
critic:  E (Q(s,a) - y)^2          actor, every second step:  - E Q(s, pi(s)) / E|Q(s, pi(s))|
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bcol.agents.base import Agent, Batch, Clock, Learner, actor_metrics, descend, gradient_if, learner, smoothed, track
from bcol.fused import Toward, values
from bcol.nets import Actor, Critic, Norm, gaussian, make_actor, make_critic, mix


class State(NamedTuple):
    """Everything that training changes."""

    actor: Learner
    critic: Learner
    target: Critic
    target_actor: Actor


@dataclass(frozen=True)
class OfflineTD3(Agent):
    """TD3 on a fixed log: unbudgeted deviation."""

    normalize_states: bool = True
    """whether observations are shifted and scaled by the data's mean and deviation"""
    critic_lr: float = 3e-4
    """learning rate of the critics"""
    tau: float = 0.005
    """how far target networks move towards their networks per step"""
    min_weight: float = 1.0
    """lambda: weight of the smaller critic in Qbar; the larger has the rest"""
    policy_noise: float = 0.2
    """deviation of the noise on target actions"""
    noise_clip: float = 0.5
    """largest noise on target actions"""
    policy_delay: int = 2
    """critic steps per step of the actor and the targets"""
    critic_norm: Norm = "none"
    """LayerNorm in the critics, or none"""

    name: ClassVar[str] = "offline-td3"
    presets: ClassVar[dict[str, dict[str, Any]]] = {"mujoco": {}, "antmaze": {"actor_schedule": "cosine"}}

    def init(self, random: np.random.Generator, observation_dim: int, action_dim: int) -> State:
        """Random networks; the targets start as their networks."""
        sizes = (observation_dim, action_dim, self.hidden)
        critic, actor = make_critic(random, *sizes, norm=self.critic_norm), make_actor(random, *sizes, std="none")
        return State(learner(actor), learner(critic), critic, actor)

    def update(self, state: State, batch: Batch, key: Array, clock: Clock) -> tuple[State, dict[str, Any]]:
        """Critics step every time; the actor and the targets every `policy_delay` steps."""
        next_action = smoothed(
            self.act(state.target_actor, batch.next_observation), key, self.policy_noise, self.noise_clip
        )
        next_q = mix(self.values(state.target, batch.next_observation, next_action, "nothing"), self.min_weight)
        y = jax.lax.stop_gradient(batch.reward + self.discount * batch.mask * next_q)

        def critic_loss(net: Critic) -> tuple[Float[Array, ""], Float[Array, "c n"]]:
            q = self.values(net, batch.observation, batch.action, "critic")
            return ((q - y) ** 2).mean(1).sum(), q

        (loss, q), gradient = jax.value_and_grad(critic_loss, has_aux=True)(state.critic.net)
        critic = descend(state.critic, gradient, self.critic_lr)

        now = clock.step % self.policy_delay == 0
        proposed, to_actor = jax.vjp(lambda net: self.act(net, batch.observation), state.actor.net)
        gradient = gradient_if(
            now, lambda: to_actor(jax.grad(self.actor_loss)(proposed, critic.net, batch))[0], state.actor.net
        )
        actor = descend(state.actor, gradient, self.actor_rate(clock), when=now)
        target = track(state.target, critic.net, self.tau * now)
        target_actor = track(state.target_actor, actor.net, self.tau * now)
        metrics = {"critic_loss": loss, "q": q.mean(), "q_size": jnp.abs(q).max(), **actor_metrics(proposed)}
        return State(actor, critic, target, target_actor), metrics

    def actor_loss(self, proposed: Float[Array, "n a"], critic: Critic, batch: Batch) -> Float[Array, ""]:
        """The first critic's value of what the actor does, scaled by its size, as TD3 does it."""
        first = jax.tree.map(lambda x: x[:1], critic)
        q = self.values(first, batch.observation, proposed, "action")[0]
        return -q.mean() / jax.lax.stop_gradient(jnp.abs(q).mean())

    def act(self, net: Actor, observation: Float[Array, "n s"]) -> Float[Array, "n a"]:
        """The deterministic action."""
        return jnp.tanh(gaussian(net, observation)[0][:, 0])

    def values(
        self, net: Critic, observation: Float[Array, "n s"], action: Float[Array, "n a"], toward: Toward
    ) -> Float[Array, "c n"]:
        """Every critic's value of one action per state."""
        return values(net, observation, action[:, None], [np.zeros(1, int)], precision=self.precision, toward=toward)[
            0, :, :, 0
        ]

    def policy(self) -> dict[str, Any]:
        """Always act by the actor."""
        return {}

    def deployed(self, state: State) -> dict[str, Any]:
        """The actor alone."""
        return {"actor": state.actor.net}

    def check(self) -> None:
        """InputError if a hyper-parameter makes no sense."""
        super().check()
        self.require(0 < self.tau <= 1, "tau", "in (0, 1]")
        self.require(0 <= self.min_weight <= 1, "min_weight", "in [0, 1]")
        self.require(self.policy_noise >= 0, "policy_noise", "0 or more")
        self.require(self.noise_clip >= 0, "noise_clip", "0 or more")
        self.require(self.policy_delay >= 1, "policy_delay", "at least 1")
