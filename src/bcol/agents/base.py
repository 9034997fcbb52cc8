"""What every agent is: a frozen dataclass of hyper-parameters with `init`, `update` and `policy`."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from bcol.errors import InputError
from bcol.fused import Precision, platform, resolved
from bcol.nets import Behavior, log_probability

Schedule = Literal["constant", "cosine"]
Domain = Literal["mujoco", "antmaze"]
AnyAgent = TypeVar("AnyAgent", bound="Agent")


class Batch(NamedTuple):
    """n logged transitions; actions scaled to [-1, 1]. `mask` is 0 where nothing follows, and then a' means nothing."""

    observation: Float[Array, "n s"]
    action: Float[Array, "n a"]
    reward: Float[Array, " n"]
    next_observation: Float[Array, "n s"]
    next_action: Float[Array, "n a"]
    mask: Float[Array, " n"]


class Clock(NamedTuple):
    """How far training is: gradient steps done, and how many there will be."""

    step: Int[Array, ""]
    steps: Int[Array, ""]


class Learner(NamedTuple):
    """A network, and the state of the Adam that trains it."""

    net: Any
    adam: Any


@dataclass(frozen=True)
class Agent:
    """Hyper-parameters that all agents share.

    Any field that is a float may differ between runs of one program (see `bcol.train`).
    """

    hidden: tuple[int, ...] = (256, 256)
    """sizes of the hidden layers of every network"""
    discount: float = 0.99
    """gamma"""
    batch_size: int = 256
    """transitions per gradient step"""
    actor_lr: float = 3e-4
    """learning rate of the actor and of mu-hat"""
    actor_schedule: Schedule = "constant"
    """how the actor's learning rate changes over training"""
    normalize_states: bool = False
    """whether observations are shifted and scaled by the data's mean and deviation"""
    precision: Precision = "auto"
    """of matrix products: float32; tf32 (on a GPU); or bf16 in the critics' hidden layers and tf32 elsewhere, which is
    what auto means on a GPU; on a CPU it means float32; weights are always kept in float32"""

    name: ClassVar[str]
    """what the command line calls it"""
    presets: ClassVar[dict[str, dict[str, Any]]] = {"mujoco": {}, "antmaze": {}}
    """the paper's hyper-parameters by domain, where they differ from the defaults"""

    @classmethod
    def preset(cls: type[AnyAgent], domain: Domain, **changes: Any) -> AnyAgent:
        """The paper's hyper-parameters for a domain, with your changes."""
        if domain not in cls.presets:
            raise InputError(f"preset must be one of {', '.join(cls.presets)}: got {domain!r}")
        return cls(**(cls.presets[domain] | changes))

    def init(self, random: np.random.Generator, observation_dim: int, action_dim: int) -> Any:
        """Networks and optimisers before the first step, as a pytree of NumPy arrays."""
        raise NotImplementedError

    def update(self, state: Any, batch: Batch, key: Array, clock: Clock) -> tuple[Any, dict[str, Float[Array, ""]]]:
        """One gradient step on one batch: the new state, and what to log."""
        raise NotImplementedError

    def policy(self) -> dict[str, Any]:
        """How the deployed policy decides: arguments of `bcol.policy.Rule`."""
        raise NotImplementedError

    def deployed(self, state: Any) -> dict[str, Any]:
        """The networks the policy needs, by name: any of actor, critic, behavior."""
        raise NotImplementedError

    def route(self, state: Any) -> str:
        """How matrix products are computed here, for the log."""
        return "float32" if resolved(self.precision) == "float32" or platform() == "cpu" else "tf32"

    def to_json(self) -> dict[str, Any]:
        """All hyper-parameters, with the agent's name."""
        return {"agent": self.name, **asdict(self)}

    def check(self) -> None:
        """InputError if a hyper-parameter makes no sense."""
        self.require(len(self.hidden) >= 1 and min(self.hidden) >= 1, "hidden", "one or more positive sizes")
        self.require(0 <= self.discount < 1, "discount", "in [0, 1)")
        self.require(self.batch_size >= 1, "batch_size", "at least 1")
        for field in fields(self):
            if field.name.endswith("_lr"):
                self.require(getattr(self, field.name) > 0, field.name, "positive")

    def require(self, holds: bool, name: str, what: str) -> None:
        """InputError that says what a field must be, unless it holds."""
        if not holds:
            raise InputError(f"{name} must be {what}: got {getattr(self, name)!r}")

    def actor_rate(self, clock: Clock) -> Any:
        """The actor's learning rate now."""
        if self.actor_schedule == "constant":
            return self.actor_lr
        return self.actor_lr * 0.5 * (1 + jnp.cos(jnp.pi * clock.step / clock.steps))


def learner(net: Any) -> Learner:
    """A fresh optimiser for a network of NumPy arrays."""
    return Learner(net, jax.tree.map(np.asarray, optax.scale_by_adam().init(net)))


def descend(this: Learner, gradient: Any, rate: Any, when: Bool[Array, ""] | None = None) -> Learner:
    """One step of Adam; none where `when` is given and false."""
    direction, adam = optax.scale_by_adam().update(gradient, this.adam)
    moved = Learner(jax.tree.map(lambda p, d: p - rate * d, this.net, direction), adam)
    return moved if when is None else jax.tree.map(lambda new, old: jnp.where(when, new, old), moved, this)


def gradient_if(when: Bool[Array, ""], gradient: Callable[[], Any], net: Any) -> Any:
    """The gradient for a network where `when` holds, else zeros, which are not worth computing.

    Only this is branched on, and not the step that follows: networks that leave a branch are copied whole, every time.
    """
    return jax.lax.cond(when, gradient, lambda: jax.tree.map(jnp.zeros_like, net))


def track(target: Any, net: Any, tau: Any) -> Any:
    """The target network, moved by `tau` towards the network."""
    return jax.tree.map(lambda t, p: t + tau * (p - t), target, net)


def smoothed(action: Float[Array, "*shape"], key: Array, deviation: Any, largest: Any) -> Float[Array, "*shape"]:
    """Target actions with clipped Gaussian noise, kept within the bounds (TD3's target policy smoothing)."""
    noise = jnp.clip(deviation * jax.random.normal(key, action.shape), -largest, largest)
    return jnp.clip(action + noise, -1, 1)


def clone(behavior: Learner, batch: Batch, agent: Agent, clock: Clock) -> tuple[Learner, Float[Array, ""]]:
    """One maximum-likelihood step of mu-hat; also returns the loss, the mean of -log mu-hat(a|s)."""

    def loss(net: Behavior) -> Float[Array, ""]:
        return -log_probability(net, batch.observation, batch.action).mean()

    value, gradient = jax.value_and_grad(loss)(behavior.net)
    return descend(behavior, gradient, agent.actor_rate(clock)), value


def actor_metrics(proposed: Float[Array, "*shape"]) -> dict[str, Float[Array, ""]]:
    """What to log of an actor: how much its actions differ between states, and how many sit at the bounds."""
    return {"actor_spread": proposed.std(axis=0).mean(), "actor_saturation": (jnp.abs(proposed) > 0.99).mean()}


def is_zero(x: Any) -> bool:
    """Whether a hyper-parameter is zero for certain; one that differs between runs is not."""
    return isinstance(x, int | float) and x == 0
