"""A critic's values of many actions in one kernel, and their gradients in another.

Between layers, the activations of 64,000 actions would be most of the traffic of a step: here they stay on the chip.
The forward kernel takes a block of rows from the first layer to the heads. The backward kernel takes the gradient of
the values back to the actions, or to everything that the gradients of the weights are made of.

Arrays have n states and p actions for each. Others use `bcol.fused`.
"""

import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jaxtyping import Array, Float

Toward = Literal["nothing", "weights", "action"]

# The layer's inputs or outputs that are worked on at a time while the next ones are fetched.
_CHUNK = 64
_WARPS = 4


class How(NamedTuple):
    """How the kernels run.

    Attributes:
        rows: states per block. More share a fetch of the weights; fewer use more of the machine.
        dtype: of the products.
        toward: what gradients flow to.
        interpret: whether they are interpreted, which a CPU can do, for tests.
    """

    rows: int
    dtype: Any
    toward: Toward
    interpret: bool = False


class Block(NamedTuple):
    """One critic, and what it judges.

    Attributes:
        state: the states' part of the first layer's pre-activation [n, h].
        action: the actions [n, p, a].
        first: the actions' weights in the first layer [a, h].
        hidden: weight [h, h] and bias [h] of the other hidden layers, one or two.
        weight: of the r heads that judge each action [p, r, h].
    """

    state: Any
    action: Any
    first: Any
    hidden: Any
    weight: Any


def forward(how: How, block: Block, *, keep: bool) -> tuple[Float[Array, "p r n"], list[Any]]:
    """The heads' values, without their biases; and, if asked for, the outputs [n, p, h] of all layers in `hidden`."""
    (n, p, _), h, r = block.action.shape, block.state.shape[1], block.weight.shape[1]
    outputs = [((p, r, n), jnp.float32, _by_judge(how, r))]
    outputs += [((n, p, h), how.dtype, _by_action(how, h))] * (len(block.hidden) if keep else 0)
    q, *kept = _call(_forward_kernel, how, block, outputs, [])
    return q, kept


def backward(how: How, block: Block, kept: list[Any], dq: Float[Array, "p r n"]) -> list[Any]:
    """From the gradient of the values, and from what the forward kernel kept.

    Returns:
        Toward the action: its gradient [n, p, a]. Toward the weights: the first layer's output and the gradients before
        each layer's rectifier, all [n, p, h]; sums over blocks of rows of all but the first of these gradients
        [n / rows, p, h]; and the gradient of the heads, summed likewise [n / rows, p, r, h].
    """
    (n, p, a), h, r = block.action.shape, block.state.shape[1], block.weight.shape[1]
    outputs: list[Any] = [((n, p, a), jnp.float32, _by_action(how, a))]
    if how.toward == "weights":
        layers, blocks = len(block.hidden), n // how.rows
        outputs = [((n, p, h), how.dtype, _by_action(how, h))] * (2 + layers)
        outputs += [((blocks, p, h), jnp.float32, _by_block(h))] * layers
        outputs += [((blocks, p, r, h), jnp.float32, _by_block(r, h))]
    arguments = [(dq, _by_judge(how, r)), *((x, _by_action(how, h)) for x in kept)]
    return _call(_backward_kernel, how, block, outputs, arguments)


def _call(kernel: Callable, how: How, block: Block, outputs: list[Any], arguments: list[Any]) -> list[Any]:
    """One program per action and block of states, on one axis: of a grid's three, critics and runs take two."""
    low = lambda x: x.astype(how.dtype)  # noqa: E731
    placed = [(low(block.state), _by_state(how, block.state.shape[1]))]
    placed += [(low(block.action), _by_action(how, block.action.shape[2])), (low(block.first), _whole(block.first))]
    for w, b in block.hidden:
        placed += [(low(w), _whole(w)), (b[None], _whole(b[None]))]
    placed += [(block.weight, _by_head(*block.weight.shape[1:])), *arguments]
    blocks = len(block.state) // how.rows
    options: dict[str, Any] = {"interpret": True}
    if not how.interpret:
        from jax.experimental.pallas import triton

        options = {"compiler_params": triton.CompilerParams(num_warps=_WARPS, num_stages=_STAGES[kernel])}
    call = pl.pallas_call(
        functools.partial(kernel, how, len(block.hidden)),
        grid=(block.action.shape[1] * blocks,),
        in_specs=[place(blocks) for _, place in placed],
        out_specs=[place(blocks) for *_, place in outputs],
        out_shape=[jax.ShapeDtypeStruct(shape, dtype) for shape, dtype, _ in outputs],
        **options,
    )
    return list(call(*(x for x, _ in placed)))


# Where the rows of program i lie in an array: the programs of one action follow each other.
def _whole(x: Any) -> Callable:
    return lambda blocks: pl.BlockSpec(x.shape, lambda i: (0, 0))


def _by_state(how: How, width: int) -> Callable:
    return lambda blocks: pl.BlockSpec((how.rows, width), lambda i: (i % blocks, 0))


def _by_action(how: How, width: int) -> Callable:
    return lambda blocks: pl.BlockSpec((how.rows, None, width), lambda i: (i % blocks, i // blocks, 0))


def _by_block(*shape: int) -> Callable:
    origin = (0,) * len(shape)
    return lambda blocks: pl.BlockSpec((None, None, *shape), lambda i: (i % blocks, i // blocks, *origin))


def _by_head(judges: int, width: int) -> Callable:
    return lambda blocks: pl.BlockSpec((None, judges, width), lambda i: (i // blocks, 0, 0))


def _by_judge(how: How, judges: int) -> Callable:
    return lambda blocks: pl.BlockSpec((None, judges, how.rows), lambda i: (i // blocks, 0, i % blocks))


def _forward_kernel(how: How, layers: int, state: Any, action: Any, first: Any, *refs: Any) -> None:
    hidden, weight, q, kept = refs[: 2 * layers], refs[2 * layers], refs[2 * layers + 1], refs[2 * layers + 2 :]
    actions, width, judges = action[...], state.shape[1], range(weight.shape[0])
    w, b = hidden[:2]

    def through_first(some: Any, total: Any) -> Any:
        return total + _dot(_first_layer(state, actions, first, some).astype(how.dtype), w[some, :])

    x = _over_chunks(through_first, width, jnp.zeros((how.rows, width), jnp.float32))
    x = jnp.maximum(x + b[0, :][None], 0)
    if kept:
        kept[0][...] = x.astype(how.dtype)
    if layers == 1:
        found = [(x * weight[j, :][None]).sum(1) for j in judges]
    else:
        low, (last, shift) = x.astype(how.dtype), hidden[2:]

        def through_last(some: Any, found: Any) -> Any:
            y = jnp.maximum(_dot(low, last[:, some]) + shift[0, some][None], 0)
            if kept:
                kept[1][:, some] = y.astype(how.dtype)
            return [f + (y * weight[j, some][None]).sum(1) for j, f in zip(judges, found, strict=True)]

        found = _over_chunks(through_last, width, [jnp.zeros(how.rows, jnp.float32) for _ in judges])
    for j in judges:
        q[j, :] = found[j]


def _backward_kernel(how: How, layers: int, state: Any, action: Any, first: Any, *refs: Any) -> None:
    hidden, (weight, dq), refs = refs[: 2 * layers], refs[2 * layers : 2 * layers + 2], refs[2 * layers + 2 :]
    kept, outputs = refs[:layers], refs[layers:]
    actions, width, every, toward_action = action[...], state.shape[1], slice(None), how.toward == "action"

    def give(layer: int, some: Any, x: Any) -> Any:
        """Round a gradient before a rectifier, and write it out where weights need it."""
        low = x.astype(how.dtype)
        if not toward_action:
            outputs[1 + layer][:, some] = low
            if layer:
                outputs[1 + layers + layer][some] = x.sum(0)
        return low

    def into_last(some: Any) -> Any:
        judges, y = range(weight.shape[0]), kept[-1][:, some]
        if not toward_action:
            for j in judges:
                outputs[-1][j, some] = (dq[j, :][:, None] * y.astype(jnp.float32)).sum(0)
        heads = [dq[j, :][:, None] * weight[j, some][None] for j in judges]
        return give(layers, some, jnp.where(y > 0, functools.reduce(jnp.add, heads), 0))

    def through_last(some: Any, total: Any) -> Any:
        return total + _dot(into_last(some), hidden[2][:, some], transposed=True)

    if layers == 1:
        low = into_last(every)
    else:
        total = _over_chunks(through_last, width, jnp.zeros((how.rows, width), jnp.float32))
        low = give(1, every, jnp.where(kept[0][...] > 0, total, 0))

    def through_first(some: Any, total: Any) -> Any:
        x = _first_layer(state, actions, first, some)
        into_first = give(0, some, jnp.where(x > 0, _dot(low, hidden[0][some, :], transposed=True), 0))
        if toward_action:
            return total + _dot(into_first, first[:, some], transposed=True)
        outputs[0][:, some] = x.astype(how.dtype)
        return total

    to_action = _over_chunks(through_first, width, jnp.zeros(actions.shape, jnp.float32))
    if toward_action:
        outputs[0][...] = to_action


# Fetches in flight. Going back there are more arrays, and with three the blocks would be too large for two at a time.
_STAGES = {_forward_kernel: 3, _backward_kernel: 2}


def _first_layer(state: Any, actions: Any, first: Any, some: Any) -> Any:
    return jnp.maximum(state[:, some] + _dot(actions, first[:, some]), 0)


def _dot(x: Any, y: Any, *, transposed: bool = False) -> Any:
    """x @ y, or x @ y.T, summed in float32."""
    return jax.lax.dot_general(x, y, (((1,), (int(transposed),)), ((), ())), preferred_element_type=jnp.float32)


def _over_chunks(body: Callable, width: int, start: Any) -> Any:
    return jax.lax.fori_loop(0, width // _CHUNK, lambda i, x: body(pl.ds(i * _CHUNK, _CHUNK), x), start)
