"""Networks as plain pytrees of arrays, with one forward pass for JAX and NumPy alike.

Training calls these functions with JAX arrays, the deployed policy with NumPy arrays: there is no second
implementation that could disagree. Rows come first: n observations, and p actions for each of them.

Critics are stacked on a leading axis c and have one output, a *head*, per budget; so have actors.
Actions live in [-1, 1] here; data and policies scale them to the environment's own units.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

LOG_STD_RANGE = (-5.0, 2.0)
# In float32, tanh of anything above 9 is 1 and has no gradient: whole actors have died so. Means beyond this size are
# squeezed into the next unit; up to it (actions of 0.9993) they are what the network says.
FREE_MEAN = 4.0
# Logged actions at the bounds have no finite pre-image under tanh: this is the largest size that is inverted.
LARGEST_ACTION = 0.999

Norm = Literal["none", "layer"]
Std = Literal["state", "free", "none"]
"""Whether an actor's standard deviation depends on the state, is free of it, or the actor is deterministic."""


class Linear(NamedTuple):
    """x @ weight + bias; leading axes, where there are any, are separate layers."""

    weight: Float[Any, "*stack inputs outputs"]
    bias: Float[Any, "*stack outputs"]


class Critic(NamedTuple):
    """c critics Q(s, b, a).

    Attributes:
        state: the half of the first layer that reads the observation, computed once for all actions of a state.
        action: the half that reads the action; it has no bias of its own.
        hidden: the other hidden layers, shared by all heads.
        norms: LayerNorm scale and shift after each hidden layer; empty without LayerNorm.
        own: a hidden layer for each head alone, weight [c, heads, h, h] and bias [c, heads, h]; or None.
        head: the outputs, weight [c, heads, h] and bias [c, heads].
    """

    state: Linear
    action: Float[Any, "c a h"]
    hidden: tuple[Linear, ...]
    norms: tuple[tuple[Float[Any, "c h"], Float[Any, "c h"]], ...]
    own: tuple[Float[Any, "c heads h h"], Float[Any, "c heads h"]] | None
    head: tuple[Float[Any, "c heads h"], Float[Any, "c heads"]]


class Actor(NamedTuple):
    """A policy head per budget.

    Attributes:
        hidden: layers shared by all heads.
        mean: the mean before tanh, weight [h, heads, a] and bias [heads, a].
        log_std: the log standard deviation before squashing, likewise; the weight is None where it is free of the
            state, and all of it where the actor is deterministic.
    """

    hidden: tuple[Linear, ...]
    mean: tuple[Float[Any, "h heads a"], Float[Any, "heads a"]]
    log_std: tuple[Float[Any, "h heads a"] | None, Float[Any, "heads a"]] | None


class Behavior(NamedTuple):
    """mu-hat, a mixture of tanh-Gaussians: an actor whose heads are the components, and their log weights."""

    components: Actor
    logits: Linear


def make_critic(
    random: np.random.Generator,
    observation_dim: int,
    action_dim: int,
    hidden: Sequence[int],
    *,
    critics: int = 2,
    heads: int = 1,
    norm: Norm = "none",
    head_layers: int = 0,
) -> Critic:
    """Critics with random weights, uniform within 1/sqrt(inputs) as in the implementations we compare with."""
    first, last = observation_dim + action_dim, hidden[-1]

    def draw(inputs: int, *shape: int) -> np.ndarray:
        return _uniform(random, inputs, critics, *shape)

    ones = np.ones((critics, 1), np.float32)
    return Critic(
        state=Linear(draw(first, observation_dim, hidden[0]), draw(first, hidden[0])),
        action=draw(first, action_dim, hidden[0]),
        hidden=tuple(Linear(draw(i, i, o), draw(i, o)) for i, o in pairwise(hidden)),
        norms=tuple((ones.repeat(h, 1), 0 * ones.repeat(h, 1)) for h in hidden) if norm == "layer" else (),
        own=(draw(last, heads, last, last), draw(last, heads, last)) if head_layers else None,
        head=(draw(last, heads, last), draw(last, heads)),
    )


def make_actor(
    random: np.random.Generator,
    observation_dim: int,
    action_dim: int,
    hidden: Sequence[int],
    *,
    heads: int = 1,
    std: Std = "state",
) -> Actor:
    """An actor with random weights."""
    sizes, last = [observation_dim, *hidden], hidden[-1]
    layers = tuple(_linear(random, i, o) for i, o in pairwise(sizes))

    def output() -> tuple[np.ndarray, np.ndarray]:
        return _uniform(random, last, last, heads, action_dim), _uniform(random, last, heads, action_dim)

    mean = output()
    free = (None, np.zeros((heads, action_dim), np.float32))
    return Actor(layers, mean, None if std == "none" else output() if std == "state" else free)


def make_behavior(
    random: np.random.Generator, observation_dim: int, action_dim: int, hidden: Sequence[int], components: int = 1
) -> Behavior:
    """A mixture policy with random weights; one component is the plain Gaussian policy."""
    actor = make_actor(random, observation_dim, action_dim, hidden, heads=components)
    return Behavior(actor, _linear(random, hidden[-1], components))


def features(critic: Critic, observation: Float[Any, "n s"], action: Float[Any, "n p a"]) -> Float[Any, "c n p h"]:
    """The last shared hidden layer of every critic for p actions in each of n states."""
    xp = observation.__array_namespace__()
    (n, p, a), c = action.shape, critic.action.shape[0]
    if p == 1 and not isinstance(action, np.ndarray):
        # Nothing is shared, so a compiled step needs one product for both halves. NumPy would join the weights anew for
        # every decision, which costs more than it saves.
        both = xp.concat([observation, action[:, 0]], axis=1)
        x = xp.broadcast_to(both, (c, *both.shape)) @ xp.concat([critic.state.weight, critic.action], axis=1)
        x += critic.state.bias[:, None]
    else:
        state = observation @ critic.state.weight + critic.state.bias[:, None]
        x = action.reshape(n * p, a).astype(critic.action.dtype) @ critic.action
        x = (state[:, :, None] + x.reshape(c, n, p, x.shape[-1])).reshape(c, n * p, x.shape[-1])
    x = _activate(critic, 0, x, xp)
    for i, layer in enumerate(critic.hidden):
        x = _activate(critic, i + 1, x.astype(layer.weight.dtype) @ layer.weight + layer.bias[:, None], xp)
    return x.reshape(c, n, p, x.shape[-1])


def all_heads(critic: Critic, x: Float[Any, "c n p h"]) -> Float[Any, "c n p heads"]:
    """Every head's value of every action."""
    xp = x.__array_namespace__()
    c, n, p, h = x.shape
    weight, bias = critic.head
    if critic.own is None:
        value = x.reshape(c, n * p, h) @ xp.matrix_transpose(weight)
        return value.reshape(c, n, p, -1) + bias[:, None, None]
    own_weight, own_bias = critic.own
    own = xp.maximum(x.reshape(c, 1, n * p, h) @ own_weight + own_bias[:, :, None], 0)
    value = (own * weight[:, :, None]).sum(-1) + bias[:, :, None]
    return xp.moveaxis(value, 1, 2).reshape(c, n, p, -1)


def one_head(critic: Critic, x: Float[Any, "c n p h"], head: Int[Any, " p"]) -> Float[Any, "c n p"]:
    """Head `head[i]`'s value of action i."""
    xp = x.__array_namespace__()
    weight, bias = (pick(each, head, axis=1) for each in critic.head)
    if critic.own is not None:
        own_weight, own_bias = (pick(each, head, axis=1) for each in critic.own)
        by_action = xp.moveaxis(x, 2, 1) @ own_weight + own_bias[:, :, None]
        x = xp.maximum(xp.moveaxis(by_action, 1, 2), 0)
    return (x * weight[:, None]).sum(-1) + bias[:, None]


def pick(x: Any, heads: Any, axis: int) -> Any:
    """Some heads of an array. Constant ones are cut out by slices: gathers, and their gradients, cost kernels."""
    if isinstance(heads, slice):
        return x[(slice(None),) * axis + (heads,)]
    if not isinstance(heads, np.ndarray) or len(heads) == 0:
        return x.__array_namespace__().take(x, heads, axis=axis)
    ends = [*np.flatnonzero(np.diff(heads) != 1) + 1, len(heads)]
    pieces = [pick(x, slice(int(heads[i]), int(heads[j - 1]) + 1), axis) for i, j in pairwise([0, *ends])]
    return pieces[0] if len(pieces) == 1 else x.__array_namespace__().concat(pieces, axis=axis)


def mix(q: Float[Any, "c *shape"], weight_of_min: Any) -> Float[Any, "*shape"]:
    """Qbar = lambda min + (1 - lambda) max over the critics."""
    xp = q.__array_namespace__()
    return weight_of_min * xp.min(q, axis=0) + (1 - weight_of_min) * xp.max(q, axis=0)


def gaussian(
    actor: Actor, observation: Float[Any, "n s"], heads: Int[Any, " k"] | slice = slice(None)
) -> tuple[Float[Any, "n k a"], Any]:
    """Mean and log standard deviation, before tanh, of the chosen heads; None for the latter if deterministic."""
    return _gaussian(actor, _hidden(actor.hidden, observation), heads)


def mixture(
    behavior: Behavior, observation: Float[Any, "n s"]
) -> tuple[Float[Any, "n k"], Float[Any, "n k a"], Float[Any, "n k a"]]:
    """Log weights, means and log standard deviations, before tanh, of mu-hat's components."""
    x = _hidden(behavior.components.hidden, observation)
    logits = x @ behavior.logits.weight + behavior.logits.bias
    return logits - _log_sum_exp(logits)[:, None], *_gaussian(behavior.components, x, slice(None))


def squash_mean(x: Float[Any, "*shape"]) -> Float[Any, "*shape"]:
    """Smoothly within one of FREE_MEAN, so that an actor at its bounds still has a gradient to leave them."""
    xp = x.__array_namespace__()
    free = xp.clip(x, -FREE_MEAN, FREE_MEAN)
    excess = x - free
    return free + excess / (1 + xp.abs(excess))


def squash_log_std(x: Float[Any, "*shape"]) -> Float[Any, "*shape"]:
    """Smoothly into LOG_STD_RANGE: a hard clip has no gradient at its bounds and leaves dimensions stuck there."""
    low, high = LOG_STD_RANGE
    return low + 0.5 * (high - low) * (x.__array_namespace__().tanh(x) + 1)


def tanh_gaussian_log_probability(
    mean: Float[Any, "n k a"], log_std: Float[Any, "n k a"], action: Float[Any, "n a"]
) -> Float[Any, "n k"]:
    """log pi_k(a|s) of actions in [-1, 1] under each of k tanh-Gaussians, by the change of variables through tanh."""
    xp = action.__array_namespace__()
    inside = xp.clip(action, -LARGEST_ACTION, LARGEST_ACTION)
    z = (xp.atanh(inside)[:, None] - mean) * xp.exp(-log_std)
    normal = -0.5 * (z * z + float(np.log(2 * np.pi))) - log_std
    return normal.sum(-1) - xp.log(1 - inside * inside).sum(-1)[:, None]


def log_probability(behavior: Behavior, observation: Float[Any, "n s"], action: Float[Any, "n a"]) -> Float[Any, " n"]:
    """log mu-hat(a|s) of actions in [-1, 1]."""
    log_weight, mean, log_std = mixture(behavior, observation)
    return _log_sum_exp(log_weight + tanh_gaussian_log_probability(mean, log_std, action))


def _activate(critic: Critic, i: int, x: Any, xp: Any) -> Any:
    if critic.norms:
        scale, shift = critic.norms[i]
        centred = x - x.mean(-1, keepdims=True)
        variance = (centred * centred).mean(-1, keepdims=True)
        x = centred / xp.sqrt(variance + 1e-5) * scale[:, None] + shift[:, None]
    return _rectified(x)


def _rectified(x: Any) -> Any:
    if not isinstance(x, np.ndarray):
        from bcol.fused import settled  # only here: what is deployed needs no JAX

        x = settled(x)
    return x.__array_namespace__().maximum(x, 0)


def _hidden(layers: tuple[Linear, ...], x: Any) -> Any:
    for layer in layers:
        x = _rectified(x @ layer.weight + layer.bias)
    return x


def _gaussian(actor: Actor, x: Any, heads: Any) -> tuple[Any, Any]:
    weight, bias = actor.mean
    mean = squash_mean(_outputs(x, pick(weight, heads, axis=1), pick(bias, heads, axis=0)))
    if actor.log_std is None:
        return mean, None
    weight, bias = actor.log_std
    bias = pick(bias, heads, axis=0)
    raw = bias + 0 * mean if weight is None else _outputs(x, pick(weight, heads, axis=1), bias)
    return mean, squash_log_std(raw)


def _outputs(x: Any, weight: Any, bias: Any) -> Any:
    """The last layer of some heads."""
    h, k, a = weight.shape
    return (x @ weight.reshape(h, k * a)).reshape(x.shape[0], k, a) + bias


def _log_sum_exp(x: Float[Any, "n k"]) -> Float[Any, " n"]:
    xp = x.__array_namespace__()
    top = x.max(-1)
    return top + xp.log(xp.exp(x - top[:, None]).sum(-1))


def _linear(random: np.random.Generator, inputs: int, outputs: int) -> Linear:
    return Linear(_uniform(random, inputs, inputs, outputs), _uniform(random, inputs, outputs))


def _uniform(random: np.random.Generator, inputs: int, *shape: int) -> np.ndarray:
    bound = 1 / np.sqrt(inputs)
    return random.uniform(-bound, bound, shape).astype(np.float32)
