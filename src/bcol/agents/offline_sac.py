"""Offline SAC: BCOL-SAC with the budget gone (B = infinity).

y = r + gamma mask max_{k<=m} Qbar'(s', a_k),  a_k ~ pi(s')
critic:  E (Q(s,a) - y)^2          actor:  - E Qbar(s, a),  a ~ pi(s)
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bcol.agents.base import Agent, Batch, Clock, Learner, actor_metrics, descend, learner, track
from bcol.fused import Toward, route, values
from bcol.nets import Actor, Critic, Norm, Std, gaussian, make_actor, make_critic, mix


class State(NamedTuple):
    """Everything that training changes."""

    actor: Learner
    critic: Learner
    target: Critic


@dataclass(frozen=True)
class OfflineSAC(Agent):
    """SAC without entropy on a fixed log: unbudgeted deviation."""

    hidden: tuple[int, ...] = (256, 256, 256)
    """sizes of the hidden layers of every network"""
    critics: int = 2
    """number of critics"""
    critic_lr: float = 7e-4
    """learning rate of the critics"""
    tau: float = 0.005
    """how far the target network moves towards the critics per step"""
    min_weight: float = 0.75
    """lambda: weight of the smallest critic in Qbar; the largest has the rest"""
    samples: int = 5
    """m: actions sampled in the backup"""
    std: Std = "state"
    """whether the actor's deviation depends on the state or is free of it"""
    critic_norm: Norm = "none"
    """LayerNorm in the critics, or none"""

    name: ClassVar[str] = "offline-sac"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "mujoco": {},
        "antmaze": {"actor_lr": 1e-4, "actor_schedule": "cosine", "std": "free"},
    }

    def init(self, random: np.random.Generator, observation_dim: int, action_dim: int) -> State:
        """Random networks; the target starts as the critics."""
        sizes = (observation_dim, action_dim, self.hidden)
        critic = make_critic(random, *sizes, critics=self.critics, norm=self.critic_norm)
        return State(learner(make_actor(random, *sizes, std=self.std)), learner(critic), critic)

    def update(self, state: State, batch: Batch, key: Array, clock: Clock) -> tuple[State, dict[str, Any]]:
        """Critics and actor step at once, each against the other's old weights."""
        for_target, for_actor = jax.random.split(key)
        y = self.targets(state, batch, for_target)

        def critic_loss(net: Critic) -> tuple[Float[Array, ""], Float[Array, "c n"]]:
            q = self.values(net, batch.observation, batch.action[:, None], "critic")[..., 0]
            return ((q - y) ** 2).mean(1).sum(), q

        def actor_loss(net: Actor) -> tuple[Float[Array, ""], Float[Array, "n a"]]:
            action = self.sampled(net, batch.observation, for_actor, 1)
            q = self.values(state.critic.net, batch.observation, action, "action")[..., 0]
            return -mix(q, self.min_weight).mean(), action[:, 0]

        (loss, q), gradient = jax.value_and_grad(critic_loss, has_aux=True)(state.critic.net)
        critic = descend(state.critic, gradient, self.critic_lr)
        (actor_value, action), gradient = jax.value_and_grad(actor_loss, has_aux=True)(state.actor.net)
        actor = descend(state.actor, gradient, self.actor_rate(clock))
        metrics = {"critic_loss": loss, "actor_loss": actor_value, "q": q.mean(), "q_size": jnp.abs(q).max()}
        return State(actor, critic, track(state.target, critic.net, self.tau)), metrics | actor_metrics(action)

    def targets(self, state: State, batch: Batch, key: Array) -> Float[Array, " n"]:
        """y = r + gamma mask max_k Qbar'(s', a_k)."""
        proposed = self.sampled(state.actor.net, batch.next_observation, key, self.samples)
        q = mix(self.values(state.target, batch.next_observation, proposed, "nothing"), self.min_weight)
        return jax.lax.stop_gradient(batch.reward + self.discount * batch.mask * q.max(axis=1))

    def sampled(self, net: Actor, observation: Float[Array, "n s"], key: Array, m: int) -> Float[Array, "n m a"]:
        """m reparametrised actions per state."""
        mean, log_std = gaussian(net, observation)
        noise = jax.random.normal(key, (len(mean), m, mean.shape[-1]))
        return jnp.tanh(mean + jnp.exp(log_std) * noise)

    def values(
        self, net: Critic, observation: Float[Array, "n s"], action: Float[Array, "n p a"], toward: Toward
    ) -> Float[Array, "c n p"]:
        """Every critic's value of p actions per state."""
        return values(
            net, observation, action, [np.zeros(action.shape[1], int)], precision=self.precision, toward=toward
        )[0]

    def route(self, state: State) -> str:
        """How matrix products are computed here, for the log."""
        return route(state.critic.net, self.batch_size, self.precision)

    def policy(self) -> dict[str, Any]:
        """Always act by the actor's mode."""
        return {}

    def deployed(self, state: State) -> dict[str, Any]:
        """The actor alone."""
        return {"actor": state.actor.net}

    def check(self) -> None:
        """InputError if a hyper-parameter makes no sense."""
        super().check()
        self.require(self.critics >= 1, "critics", "at least 1")
        self.require(0 < self.tau <= 1, "tau", "in (0, 1]")
        self.require(0 <= self.min_weight <= 1, "min_weight", "in [0, 1]")
        self.require(self.samples >= 1, "samples", "at least 1")
        self.require(self.std != "none", "std", "'state' or 'free'")
