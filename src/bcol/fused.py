"""Q(s, b, a) of many actions per state: the pass that takes most of the time, in two kernels.

Between layers, the activations of 64,000 actions are most of the traffic of a step; here they never leave the chip. The
forward kernel takes a block of actions from the first layer's pre-activation to the heads' values, the backward kernel
takes the gradient of these values back to the actions, or to what the gradients of the weights are made of. Products
are in bfloat16 and sums in float32; weights are kept, and gradients returned, in float32.

`values` is the only entrance. Where the kernels cannot be used, `obstacle` says why, and `values` takes the plain way
through `bcol.nets`, which the kernels are tested against.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jaxtyping import Array, Float

from bcol.nets import Critic, features, one_head, pick

Precision = Literal["auto", "float32", "tf32", "bf16"]
Toward = Literal["nothing", "critic", "action"]

WIDTHS = (64, 128, 256)
# Actions per block: more share a fetch of the weights, fewer leave room for two blocks at a time on a multiprocessor.
ROWS = 64
# The layer's inputs or outputs that are worked on at a time while the next ones are fetched.
_CHUNK = 64
_WARPS, _STAGES = 4, 3


class How(NamedTuple):
    """What gradients flow to; and, for tests, the type of the products, and whether a CPU interprets the kernels."""

    toward: Toward
    dtype: Any = jnp.bfloat16
    interpret: bool = False


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
        precision: of the products in the hidden layers.
        toward: what gradients flow to; one of them only, since each costs a pass of its own.
    """
    if toward != "critic":
        critic = jax.lax.stop_gradient(critic)
    if toward != "action":
        observation, action = jax.lax.stop_gradient((observation, action))
    if action.shape[1] and obstacle(critic, len(observation), precision) is None:
        return fused_values(critic, observation, action, heads, How(toward))
    x = features(lowered(critic, precision), observation, action)
    return jnp.stack([one_head(critic, x, h) for h in heads])


def obstacle(critic: Critic, rows: int, precision: Precision) -> str | None:
    """Why the kernels cannot be used; None if they can."""
    widths = {critic.action.shape[-1], *(layer.weight.shape[-1] for layer in critic.hidden)}
    if resolved(precision) != "bf16":
        return f"precision is {resolved(precision)}"
    if platform() != "gpu":
        return f"they are for GPUs, and this is a {platform()}"
    if critic.norms or critic.own is not None:
        return "they know neither LayerNorm nor hidden layers per head"
    if len(critic.hidden) not in (1, 2) or len(widths) > 1 or not widths <= set(WIDTHS):
        return f"they are for 2 or 3 hidden layers of one size, {', '.join(map(str, WIDTHS))}"
    if rows % ROWS:
        return f"they are for batches of a multiple of {ROWS}"
    return None


def platform() -> str:
    """Where programs run now: cpu or gpu."""
    device: Any = jax.default_device.value or jax.devices()[0]
    return device if isinstance(device, str) else device.platform


def resolved(precision: Precision) -> Precision:
    """What "auto" means here: the fastest that learns as well."""
    return precision if precision != "auto" else "bf16" if platform() == "gpu" else "float32"


def lowered(critic: Critic, precision: Precision) -> Critic:
    """The critics with hidden layers in the precision they compute in; heads and master weights stay float32."""
    if resolved(precision) != "bf16":
        return critic
    half = lambda x: x.astype(jnp.bfloat16)  # noqa: E731
    hidden = tuple(layer._replace(weight=half(layer.weight)) for layer in critic.hidden)
    return critic._replace(action=half(critic.action), hidden=hidden)


def fused_values(
    critic: Critic, observation: Float[Array, "n s"], action: Float[Array, "n p a"], heads: Sequence[Any], how: How
) -> Float[Array, "r c n p"]:
    """`values` by the kernels."""
    a = action.shape[-1]
    # The states' half of the first layer is the same for all actions, and is not rounded: positions need their digits.
    state = observation @ critic.state.weight + critic.state.bias[:, None]
    padding = max(16, pl.next_power_of_2(a)) - a  # the least that the matrix units take
    actions = jnp.pad(action, ((0, 0), (0, 0), (0, padding))).transpose(1, 0, 2)
    first = jnp.pad(critic.action, ((0, 0), (0, padding), (0, 0)))
    weight, bias = critic.head
    weights = jnp.stack([pick(weight, h, axis=1) for h in heads], axis=2)
    biases = jnp.stack([pick(bias, h, axis=1) for h in heads])
    hidden = tuple((layer.weight, layer.bias) for layer in critic.hidden)
    q = jax.vmap(functools.partial(_judge, how), (0, None, 0, 0, 0))(state, actions, first, hidden, weights)
    return q.transpose(2, 0, 3, 1) + biases[:, :, None]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _judge(how: How, state: Any, action: Any, first: Any, hidden: Any, weight: Any) -> Float[Array, "p r n"]:
    """One critic; state [n h], action [p n a], first [a h], hidden ((h h), (h))s, weight [p r h]."""
    return _call_forward(how, state, action, first, hidden, weight, keep=False)[0]


def _judge_forward(how: How, state: Any, action: Any, first: Any, hidden: Any, weight: Any) -> Any:
    q, *kept = _call_forward(how, state, action, first, hidden, weight, keep=True)
    return q, (state, action, first, hidden, weight, kept)


def _judge_backward(how: How, residuals: Any, dq: Float[Array, "p r n"]) -> Any:
    state, action, first, hidden, weight, kept = residuals
    if how.toward == "action":
        (to_action,) = _call_backward(how, state, action, first, hidden, weight, kept, dq)
        return None, to_action, None, None, None
    x, d, sums = _split(_call_backward(how, state, action, first, hidden, weight, kept, dq), len(hidden))
    # Row-sums of outer products, which the library's matrix products do best.
    outer = functools.partial(jnp.einsum, "pni,pnj->ij", preferred_element_type=jnp.float32)
    inputs = [x, *kept[:-1]]
    to_hidden = tuple((outer(i, o), s.sum((0, 1))) for i, o, s in zip(inputs, d[1:], sums, strict=True))
    to_weight = jnp.einsum("prn,pnh->prh", dq, kept[-1].astype(jnp.float32))
    return d[0].astype(jnp.float32).sum(0), None, outer(action.astype(how.dtype), d[0]), to_hidden, to_weight


_judge.defvjp(_judge_forward, _judge_backward)


def _split(outputs: list[Any], layers: int) -> tuple[Any, list[Any], list[Any]]:
    """The backward kernel's outputs: the first layer's x, gradients at every layer, their sums at all but the first."""
    return outputs[0], outputs[1 : 2 + layers], outputs[2 + layers :]


def _call_forward(how: How, state: Any, action: Any, first: Any, hidden: Any, weight: Any, *, keep: bool) -> list[Any]:
    (p, n, _), h, r = action.shape, state.shape[1], weight.shape[1]
    kept = len(hidden) if keep else 0
    outputs = [((p, r, n), jnp.float32, _by_action(r, ROWS, rows_last=True))]
    outputs += kept * [((p, n, h), how.dtype, _by_action(ROWS, h))]
    kernel = functools.partial(_forward_kernel, layers=len(hidden))
    return _call(kernel, how, (p, n), outputs, *_inputs(how, state, action, first, hidden, weight))


def _call_backward(
    how: How, state: Any, action: Any, first: Any, hidden: Any, weight: Any, kept: Any, dq: Any
) -> list[Any]:
    (p, n, a), h, r = action.shape, state.shape[1], weight.shape[1]
    if how.toward == "action":
        outputs = [((p, n, a), jnp.float32, _by_action(ROWS, a))]
    else:
        outputs = (2 + len(hidden)) * [((p, n, h), how.dtype, _by_action(ROWS, h))]
        outputs += len(hidden) * [((p, n // ROWS, h), jnp.float32, _by_action(None, h))]
    arguments = _inputs(how, state, action, first, hidden, weight)
    arguments += [(dq, _by_action(r, ROWS, rows_last=True)), *((x, _by_action(ROWS, h)) for x in kept)]
    kernel = functools.partial(_backward_kernel, layers=len(hidden), toward_action=how.toward == "action")
    return _call(kernel, how, (p, n), outputs, *arguments)


def _inputs(how: How, state: Any, action: Any, first: Any, hidden: Any, weight: Any) -> list[tuple[Any, Callable]]:
    """What both kernels read, each with its place."""
    half = lambda x: x.astype(how.dtype)  # noqa: E731
    arguments = [(state, _by_state(*state.shape)), (half(action), _by_action(ROWS, action.shape[-1]))]
    arguments += [(half(first), _whole(first.shape))]
    for w, b in hidden:
        arguments += [(half(w), _whole(w.shape)), (b[None], _whole((1, *b.shape)))]
    return [*arguments, (weight, _by_action(*weight.shape[1:], once=True))]


def _call(kernel: Callable, how: How, grid: tuple[int, int], outputs: Any, *arguments: Any) -> list[Any]:
    """One program per block of actions. The grid is one axis, for there are three and vmapped ones come before it."""
    p, n = grid
    blocks = n // ROWS
    options: dict[str, Any] = {"interpret": True}
    if not how.interpret:
        from jax.experimental.pallas import triton

        options = {"compiler_params": triton.CompilerParams(num_warps=_WARPS, num_stages=_STAGES)}
    call = pl.pallas_call(
        kernel,
        grid=(p * blocks,),
        in_specs=[place(blocks) for _, place in arguments],
        out_specs=[place(blocks) for *_, place in outputs],
        out_shape=[jax.ShapeDtypeStruct(shape, dtype) for shape, dtype, _ in outputs],
        **options,
    )
    return list(call(*(x for x, _ in arguments)))


def _whole(shape: Sequence[int]) -> Callable:
    return lambda blocks: pl.BlockSpec(tuple(shape), lambda i: (0, 0))


def _by_state(n: int, h: int) -> Callable:
    return lambda blocks: pl.BlockSpec((ROWS, h), lambda i: (i % blocks, 0))


def _by_action(x: int | None, y: int, *, rows_last: bool = False, once: bool = False) -> Callable:
    """Block [x, y] of an array whose first axis is the action; the states are along x, along y, or on neither."""
    if once:
        return lambda blocks: pl.BlockSpec((None, x, y), lambda i: (i // blocks, 0, 0))
    if rows_last:
        return lambda blocks: pl.BlockSpec((None, x, y), lambda i: (i // blocks, 0, i % blocks))
    return lambda blocks: pl.BlockSpec((None, x, y), lambda i: (i // blocks, i % blocks, 0))


def _forward_kernel(state: Any, action: Any, first: Any, *refs: Any, layers: int) -> None:
    hidden, weight, q, kept = refs[: 2 * layers], refs[2 * layers], refs[2 * layers + 1], refs[2 * layers + 2 :]
    width, judges, w, b = state.shape[1], range(weight.shape[0]), hidden[0], hidden[1]
    actions = action[...]

    def through_first(i: Any, total: Any) -> Any:
        some = pl.ds(i * _CHUNK, _CHUNK)
        return total + _dot(_first_layer(state, actions, first, some).astype(w.dtype), w[some, :])

    x = _over_chunks(through_first, width, jnp.zeros((ROWS, width), jnp.float32))
    x = jnp.maximum(x + b[0, :][None], 0)
    if kept:
        kept[0][...] = x.astype(w.dtype)
    if layers == 1:
        found = [(x * weight[j, :][None]).sum(1) for j in judges]
    else:
        x, w, b = x.astype(w.dtype), hidden[2], hidden[3]

        def through_last(i: Any, found: Any) -> Any:
            some = pl.ds(i * _CHUNK, _CHUNK)
            y = jnp.maximum(_dot(x, w[:, some]) + b[0, some][None], 0)
            if kept:
                kept[1][:, some] = y.astype(w.dtype)
            return tuple(f + (y * weight[j, some][None]).sum(1) for j, f in zip(judges, found, strict=True))

        found = _over_chunks(through_last, width, tuple(jnp.zeros(ROWS, jnp.float32) for _ in judges))
    for j in judges:
        q[j, :] = found[j]


def _backward_kernel(state: Any, action: Any, first: Any, *refs: Any, layers: int, toward_action: bool) -> None:
    hidden, (weight, dq), refs = refs[: 2 * layers], refs[2 * layers : 2 * layers + 2], refs[2 * layers + 2 :]
    kept, outputs = refs[:layers], refs[layers:]
    width, actions = state.shape[1], action[...]
    if not toward_action:
        x_first, d, sums = _split(list(outputs), layers)

    def from_heads(x: Any, some: Any) -> Any:
        """The gradient before the last layer's rectifier."""
        judges = range(weight.shape[0])
        gradient = functools.reduce(jnp.add, [dq[j, :][:, None] * weight[j, some][None] for j in judges])
        return jnp.where(x > 0, gradient, 0)

    def give(layer: int, some: Any, gradient: Any) -> Any:
        """Round a gradient before a rectifier, and write it out where weights need it."""
        low = gradient.astype(first.dtype)
        if not toward_action:
            d[layer][:, some] = low
            if layer:
                sums[layer - 1][some] = gradient.sum(0)
        return low

    every = slice(None)
    if layers == 1:
        low = give(1, every, from_heads(kept[0][...], every))
    else:
        w = hidden[2]

        def through_last(i: Any, total: Any) -> Any:
            some = pl.ds(i * _CHUNK, _CHUNK)
            return total + _dot(give(2, some, from_heads(kept[1][:, some], some)), w[:, some], transposed=True)

        total = _over_chunks(through_last, width, jnp.zeros((ROWS, width), jnp.float32))
        low = give(1, every, jnp.where(kept[0][...] > 0, total, 0))

    def through_first(i: Any, total: Any) -> Any:
        some = pl.ds(i * _CHUNK, _CHUNK)
        x = _first_layer(state, actions, first, some)
        if not toward_action:
            x_first[:, some] = x.astype(first.dtype)
        gradient = give(0, some, jnp.where(x > 0, _dot(low, hidden[0][some, :], transposed=True), 0))
        return total + _dot(gradient, first[:, some], transposed=True) if toward_action else total

    total = _over_chunks(through_first, width, jnp.zeros(actions.shape, jnp.float32))
    if toward_action:
        outputs[0][...] = total


def _first_layer(state: Any, actions: Any, first: Any, some: Any) -> Any:
    return jnp.maximum(state[:, some] + _dot(actions, first[:, some]), 0)


def _dot(x: Any, y: Any, *, transposed: bool = False) -> Any:
    """x @ y, or x @ y.T, summed in float32."""
    return jax.lax.dot_general(x, y, (((1,), (int(transposed),)), ((), ())), preferred_element_type=jnp.float32)


def _over_chunks(body: Callable, width: int, start: Any) -> Any:
    return jax.lax.fori_loop(0, width // _CHUNK, body, start)
