"""Online SAC with automatic temperature: the learner behind behaviour policies.

    y = r + gamma mask ( min_c Q'_c(s', a') - alpha log pi(a'|s') ),   a' ~ pi(s')
    critic:       sum_c E (Q_c(s, a) - y)^2
    actor:        E ( alpha log pi(a|s) - min_c Q_c(s, a) ),   a ~ pi(s)
    temperature:  - E log alpha ( log pi(a|s) + target entropy )

The target entropy is minus the number of action dimensions; ' marks the target network.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bcol.agents.base import Learner, descend, learner, track
from bcol.errors import InputError
from bcol.nets import Actor, Critic, Norm, all_heads, features, gaussian, make_actor, make_critic


class State(NamedTuple):
    """Everything that training changes; the temperature's network is log alpha."""

    actor: Learner
    critic: Learner
    target: Critic
    temperature: Learner


class Seen(NamedTuple):
    """n transitions; actions scaled to [-1, 1], `mask` 0 where the world ended."""

    observation: Float[Array, "n s"]
    action: Float[Array, "n a"]
    reward: Float[Array, " n"]
    next_observation: Float[Array, "n s"]
    mask: Float[Array, " n"]


def unpack(rows: Float[Array, "n width"], observation_dim: int) -> Seen:
    """Transitions from the rows they are stored in: s, a, r, s', mask side by side, one gather for all of them."""
    s, last = observation_dim, rows.shape[1] - observation_dim - 2
    return Seen(rows[:, :s], rows[:, s:last], rows[:, last], rows[:, last + 1 : -1], rows[:, -1])


@dataclass(frozen=True)
class SAC:
    """Soft actor-critic: its hyper-parameters, its networks, one update."""

    hidden: tuple[int, ...] = (256, 256)
    """sizes of the hidden layers of every network"""
    discount: float = 0.99
    """gamma"""
    batch_size: int = 256
    """transitions per gradient step"""
    learning_rate: float = 3e-4
    """of actor, critics and temperature"""
    tau: float = 0.005
    """how far the target network moves towards the critics per step"""
    first_temperature: float = 1.0
    """alpha before it is learned"""
    critic_norm: Norm = "none"
    """LayerNorm in the critics, or none"""

    def init(self, random: np.random.Generator, observation_dim: int, action_dim: int) -> State:
        """Random networks; the target starts as the critics."""
        sizes = (observation_dim, action_dim, self.hidden)
        critic = make_critic(random, *sizes, norm=self.critic_norm)
        log_temperature = np.float32(math.log(self.first_temperature))
        return State(learner(make_actor(random, *sizes)), learner(critic), critic, learner(log_temperature))

    def update(self, state: State, batch: Seen, key: Array) -> tuple[State, dict[str, Float[Array, ""]]]:
        """One gradient step of everything, each part against the old weights of the others; and what to log."""
        for_target, for_actor = jax.random.split(key)
        temperature = jnp.exp(state.temperature.net)
        after, log_after = sampled(state.actor.net, batch.next_observation, for_target)
        soft = values(state.target, batch.next_observation, after).min(0) - temperature * log_after
        y = jax.lax.stop_gradient(batch.reward + self.discount * batch.mask * soft)

        def critic_loss(net: Critic) -> tuple[Float[Array, ""], Float[Array, ""]]:
            q = values(net, batch.observation, batch.action)
            return ((q - y) ** 2).mean(1).sum(), q.mean()

        def actor_loss(net: Actor) -> tuple[Float[Array, ""], Float[Array, ""]]:
            action, log_probability = sampled(net, batch.observation, for_actor)
            q = values(state.critic.net, batch.observation, action).min(0)
            return (temperature * log_probability - q).mean(), -log_probability.mean()

        (loss, q), gradient = jax.value_and_grad(critic_loss, has_aux=True)(state.critic.net)
        critic = descend(state.critic, gradient, self.learning_rate)
        (actor_value, entropy), gradient = jax.value_and_grad(actor_loss, has_aux=True)(state.actor.net)
        actor = descend(state.actor, gradient, self.learning_rate)
        # The derivative of the temperature's loss by log alpha: how much more random than asked the actor is.
        excess = entropy + batch.action.shape[1]
        warmth = descend(state.temperature, excess, self.learning_rate)
        metrics = {
            "critic_loss": loss,
            "actor_loss": actor_value,
            "q": q,
            "entropy": entropy,
            "temperature": temperature,
        }
        return State(actor, critic, track(state.target, critic.net, self.tau), warmth), metrics

    def check(self) -> None:
        """InputError if a hyper-parameter makes no sense."""
        for holds, name, what in (
            (len(self.hidden) >= 1 and min(self.hidden) >= 1, "hidden", "one or more positive sizes"),
            (0 <= self.discount < 1, "discount", "in [0, 1)"),
            (self.batch_size >= 1, "batch_size", "at least 1"),
            (self.learning_rate > 0, "learning_rate", "positive"),
            (0 < self.tau <= 1, "tau", "in (0, 1]"),
            (self.first_temperature > 0, "first_temperature", "positive"),
        ):
            if not holds:
                raise InputError(f"{name} must be {what}: got {getattr(self, name)!r}")


def sampled(net: Actor, observation: Float[Array, "n s"], key: Array) -> tuple[Float[Array, "n a"], Float[Array, " n"]]:
    """A reparametrised action per state, and its log-probability."""
    mean, log_std = (x[:, 0] for x in gaussian(net, observation))
    noise = jax.random.normal(key, mean.shape)
    inside = mean + jnp.exp(log_std) * noise
    normal = -0.5 * (noise * noise + math.log(2 * math.pi)) - log_std
    # log(1 - tanh(x)^2), written so that it does not vanish where tanh saturates
    shrinkage = 2 * (math.log(2) - inside - jax.nn.softplus(-2 * inside))
    return jnp.tanh(inside), (normal - shrinkage).sum(-1)


def values(net: Critic, observation: Float[Array, "n s"], action: Float[Array, "n a"]) -> Float[Array, "c n"]:
    """Every critic's value of one action per state."""
    return all_heads(net, features(net, observation, action[:, None]))[..., 0, 0]


def named(tree: Any) -> dict[str, Any]:
    """The leaves of a pytree by their place in it, such as `actor.net.hidden.0.weight`."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}
