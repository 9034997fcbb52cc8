"""Values of many actions per state, the pass that takes most of a step: by the kernels of `bcol.kernels` if possible.

Where the kernels cannot be used, `obstacle` says why, and `values` takes the plain way through `bcol.nets`, which the
kernels are tested against.
"""

import functools
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from bcol.kernels import Block, How, backward, forward
from bcol.nets import Critic, features, one_head, pick

Precision = Literal["auto", "float32", "tf32", "bf16"]
Toward = Literal["nothing", "critic", "action"]

WIDTHS = (64, 128, 256)
# States per block: more would share a fetch of the weights, but leave no room for two blocks on a multiprocessor.
ROWS = 64


def values(
    critic: Critic,
    observation: Float[Array, "n s"],
    action: Float[Array, "n p a"],
    heads: Sequence[Any],
    *,
    precision: Precision,
    toward: Toward,
) -> Float[Array, "r c n p"]:
    """Every critic's value of p actions in each of n states.

    Args:
        critic: the networks.
        observation: the states.
        action: the actions.
        heads: r arrays of p heads; head `heads[i][j]` judges action j.
        precision: of the products in the hidden layers; bf16 is for more than one action per state.
        toward: what gradients flow to; one of them only, since each costs a pass of its own.
    """
    if toward != "critic":
        critic = jax.lax.stop_gradient(critic)
    if toward != "action":
        observation, action = jax.lax.stop_gradient((observation, action))
    many = action.shape[1] > 1  # one action per state is too little work for kernels or bf16 to gain anything
    if many and obstacle(critic, len(observation), precision) is None:
        how = How(ROWS, jnp.bfloat16, "weights" if toward == "critic" else toward)
        return fused_values(how, critic, observation, action, heads)
    x = features(lowered(critic, precision) if many else critic, observation, action)
    return jnp.stack([one_head(critic, x, h) for h in heads])


def obstacle(critic: Critic, rows: int, precision: Precision) -> str | None:
    """Why the kernels cannot be used; None if they can."""
    widths = {critic.action.shape[-1], *(layer.weight.shape[-1] for layer in critic.hidden)}
    if resolved(precision) != "bf16":
        return f"precision is {resolved(precision)}"
    if platform() != "gpu":
        return f"they are for GPUs, and this is a {platform()}"
    if capability() != "9.0" or find_spec("jax.experimental.pallas.triton") is None:
        return "they have been tried on Hopper GPUs with a JAX that has Pallas' Triton compiler only"
    if critic.norms or critic.own is not None:
        return "they know neither LayerNorm nor hidden layers per head"
    if len(critic.hidden) not in (1, 2) or len(widths) > 1 or not widths <= set(WIDTHS):
        return f"they are for 2 or 3 hidden layers of one size, {', '.join(map(str, WIDTHS))}"
    if rows % ROWS:
        return f"they are for batches of a multiple of {ROWS}"
    return None


def route(critic: Critic, rows: int, precision: Precision) -> str:
    """How `values` computes here, for the log."""
    if platform() == "cpu":
        return resolved(precision)
    reason = obstacle(critic, rows, precision)
    return f"{resolved(precision)}, fused kernels" + ("" if reason is None else f" not used: {reason}")


def platform() -> str:
    """Where programs run now: cpu or gpu."""
    return _device().platform


def capability() -> str:
    """The compute capability of the GPU that programs run on now."""
    return getattr(_device(), "compute_capability", "")


def _device() -> Any:
    chosen: Any = jax.default_device.value
    return jax.devices(chosen)[0] if chosen is None or isinstance(chosen, str) else chosen


def resolved(precision: Precision) -> Precision:
    """What "auto" means here: the fastest that learns as well."""
    return precision if precision != "auto" else "bf16" if platform() == "gpu" else "float32"


def settled(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """The same; but on a GPU its gradient is finished before anything else is made of it.

    The compiler would otherwise mask the gradient of a layer and sum that of its bias in one slow kernel, for which all
    earlier layers wait.
    """
    return _settled(x) if platform() == "gpu" else x


@jax.custom_vjp
def _settled(x: Any) -> Any:
    return x


_settled.defvjp(lambda x: (x, None), lambda _, gradient: (jax.lax.optimization_barrier(gradient),))


def lowered(critic: Critic, precision: Precision) -> Critic:
    """The critics with hidden layers in the precision they compute in; heads and master weights stay float32."""
    if resolved(precision) != "bf16":
        return critic
    half = lambda x: x.astype(jnp.bfloat16)  # noqa: E731
    hidden = tuple(layer._replace(weight=half(layer.weight)) for layer in critic.hidden)
    return critic._replace(action=half(critic.action), hidden=hidden)


def fused_values(
    how: How, critic: Critic, observation: Float[Array, "n s"], action: Float[Array, "n p a"], heads: Sequence[Any]
) -> Float[Array, "r c n p"]:
    """`values` by the kernels."""
    c = len(critic.action)
    # The states' half of the first layer is the same for all actions. States and actions are the same for all critics
    # and yet repeated: products that share them would be one product, around which the compiler turns large arrays.
    state = jnp.broadcast_to(observation, (c, *observation.shape)) @ critic.state.weight + critic.state.bias[:, None]
    padding = max(16, 1 << (action.shape[-1] - 1).bit_length()) - action.shape[-1]  # what the matrix units take
    actions = jnp.pad(jnp.broadcast_to(action, (c, *action.shape)), ((0, 0), (0, 0), (0, 0), (0, padding)))
    first = jnp.pad(critic.action, ((0, 0), (0, padding), (0, 0)))
    weight, bias = critic.head
    weights = jnp.stack([pick(weight, h, axis=1) for h in heads], axis=2)
    biases = jnp.stack([pick(bias, h, axis=1) for h in heads])
    hidden = tuple((layer.weight, layer.bias) for layer in critic.hidden)
    q = jax.vmap(functools.partial(_judge, how))(Block(state, actions, first, hidden, weights))
    return q.transpose(2, 0, 3, 1) + biases[:, :, None]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _judge(how: How, block: Block) -> Float[Array, "p r n"]:
    """One critic's values of all actions."""
    return forward(how, block, keep=False)[0]


def _judge_forward(how: How, block: Block) -> Any:
    q, kept = forward(how, block, keep=True)
    return q, (block, kept)


def _judge_backward(how: How, residuals: Any, dq: Float[Array, "p r n"]) -> Any:
    block, kept = residuals
    found = backward(how, block, kept, dq)
    if how.toward == "action":
        return (jax.tree.map(jnp.zeros_like, block)._replace(action=found[0]),)
    layers = len(block.hidden)
    x, d, sums, heads = found[0], found[1 : 2 + layers], found[2 + layers : -1], found[-1]
    pairs = zip([x, *kept[:-1]], d[1:], sums, strict=True)
    return (
        Block(
            # Without the barrier the compiler sums the bias's gradient from all actions once more, which is slow.
            state=jax.lax.optimization_barrier(d[0].astype(jnp.float32).sum(1)),
            action=jnp.zeros_like(block.action),
            first=_outer(block.action.astype(how.dtype), d[0]),
            hidden=tuple((_outer(i, o), s.sum((0, 1))) for i, o, s in pairs),
            weight=heads.sum(0),
        ),
    )


_judge.defvjp(_judge_forward, _judge_backward)


def _outer(x: Any, d: Any) -> Any:
    """The gradient of a layer's weights: a sum over rows, which the library's matrix products do best."""
    return jnp.einsum("npi,npj->ij", x, d, preferred_element_type=jnp.float32)
