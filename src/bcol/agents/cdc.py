"""CDC (Fakoor et al., 2021), as the paper re-implements it: offline SAC, kept near the log on both sides.

    y = r + gamma mask max_{k<=m} Qbar'(s', a_k)
    actor:   E[ -Qbar(s, a) - coef log pi(a_data | s) ],  first
    critic:  sum_i E (Q_i(s,a_data) - y)^2 + eta mean_{i,k} E max( max_j Q_i(s, a_j) - Q_k(s, a_data), 0 )^2

The policy takes the best of m samples by Qbar.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from bcol.agents.base import Batch, Clock, actor_metrics, descend, track
from bcol.agents.offline_sac import OfflineSAC, State
from bcol.nets import Actor, Critic, gaussian, mix, tanh_gaussian_log_probability


@dataclass(frozen=True)
class CDC(OfflineSAC):
    """Continuous doubly constrained RL. The defaults of eta and coef are those published for halfcheetah-medium."""

    critics: int = 4
    """number of critics"""
    samples: int = 15
    """m: actions sampled in the backup, in the penalty and by the policy"""
    eta: float = 0.2
    """weight of the penalty on critics that value unlogged actions above logged ones"""
    coef: float = 0.1
    """weight of the log-likelihood of logged actions in the actor's loss"""

    name: ClassVar[str] = "cdc"

    def update(self, state: State, batch: Batch, key: Array, clock: Clock) -> tuple[State, dict[str, Any]]:
        """The actor steps first; targets and penalty then use the new one."""
        for_actor, for_target, for_penalty = jax.random.split(key, 3)

        def actor_loss(net: Actor) -> tuple[Float[Array, ""], Float[Array, "n a"]]:
            action = self.sampled(net, batch.observation, for_actor, 1)
            q = mix(self.values(state.critic.net, batch.observation, action, "action")[..., 0], self.min_weight)
            mean, log_std = gaussian(net, batch.observation)
            likelihood = tanh_gaussian_log_probability(mean, log_std, batch.action)[:, 0]
            return -(q + self.coef * likelihood).mean(), action[:, 0]

        (actor_value, action), gradient = jax.value_and_grad(actor_loss, has_aux=True)(state.actor.net)
        actor = descend(state.actor, gradient, self.actor_rate(clock))
        state = state._replace(actor=actor)
        y = self.targets(state, batch, for_target)
        unlogged = jax.lax.stop_gradient(self.sampled(actor.net, batch.observation, for_penalty, self.samples))

        def critic_loss(net: Critic) -> tuple[Float[Array, ""], tuple[Any, Any]]:
            actions = jnp.concatenate([batch.action[:, None], unlogged], axis=1)
            q = self.values(net, batch.observation, actions, "critic")
            logged, best = q[..., 0], q[..., 1:].max(axis=2)
            excess = jnp.maximum(best[:, None] - logged[None], 0)  # [i, k, n]: critic i's best over critic k's logged
            penalty = (excess**2).mean()
            return ((logged - y) ** 2).mean(1).sum() + self.eta * penalty, (logged, penalty)

        (loss, (q, penalty)), gradient = jax.value_and_grad(critic_loss, has_aux=True)(state.critic.net)
        critic = descend(state.critic, gradient, self.critic_lr)
        metrics = {"critic_loss": loss, "actor_loss": actor_value, "penalty": penalty, "q": q.mean()}
        metrics |= {"q_size": jnp.abs(q).max(), **actor_metrics(action)}
        return State(actor, critic, track(state.target, critic.net, self.tau)), metrics

    def policy(self) -> dict[str, Any]:
        """The best of m samples by Qbar."""
        return {"act_samples": self.samples, "min_weight": float(self.min_weight)}

    def deployed(self, state: State) -> dict[str, Any]:
        """The actor proposes, the critics choose."""
        return {"actor": state.actor.net, "critic": state.critic.net}

    def check(self) -> None:
        """InputError if a hyper-parameter makes no sense."""
        super().check()
        self.require(self.eta >= 0, "eta", "0 or more")
        self.require(self.coef >= 0, "coef", "0 or more")
