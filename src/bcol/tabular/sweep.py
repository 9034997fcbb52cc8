"""One sweep of the counterfactual-budgeting Bellman operator over all states and budgets, compiled.

Values are held as [states, budgets]: one row holds every budget of a state, so that fetching the value of a
successor reads one contiguous piece of memory and no loop over budgets is needed anywhere.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jaxtyping import Array, Float, Int

from bcol.budget import after_deviating, backup

# The intermediate Q of a block of states should stay in the cache: this many bytes was fastest on the CPUs tried.
_BLOCK_BYTES = 4 << 20
# Successor slots fused into one pass over a block.
_UNROLL = 8


class Block(NamedTuple):
    """States with about equally many successors; rows are padded with probability 0.

    Attributes:
        successor: s' per state, action and slot; None where every state is a successor, in order.
        probability: P(s'|s, a) per state, action and slot.
        reward: r(s, a).
        behavior: mu(a|s).
    """

    successor: Int[Array, "n A K"] | None
    probability: Float[Array, "n A K"]
    reward: Float[Array, "n A"]
    behavior: Float[Array, "n A"]


class Layout(NamedTuple):
    """An MDP as the sweep wants it: states in `order`, cut into blocks."""

    blocks: tuple[Block, ...]
    order: Int[np.ndarray, " S"]


def lay_out(transition: Any, reward: np.ndarray, behavior: np.ndarray) -> Layout:
    """Cut a checked MDP into blocks of states with between 2^k and 2^(k+1) successors.

    Padding within a block at most doubles the memory, and a few states with very many successors do not make
    all others pay for them.
    """
    n_states, n_actions = reward.shape
    if not sp.issparse(transition):
        block = Block(None, jnp.asarray(transition), jnp.asarray(reward), jnp.asarray(behavior))
        return Layout((block,), np.arange(n_states))
    count = np.diff(transition.indptr).reshape(n_states, n_actions)
    size_class = np.ceil(np.log2(count.max(axis=1))).astype(int)
    order = np.argsort(size_class, kind="stable")
    new_name = np.empty(n_states, np.int32)
    new_name[order] = np.arange(n_states, dtype=np.int32)
    blocks = []
    for k in np.unique(size_class):
        states = order[size_class[order] == k]
        width = int(count[states].max())
        # Slot k of a pair is entry indptr + k of the sparse arrays where it has one.
        start = transition.indptr[:-1].reshape(n_states, n_actions)[states]
        slot = start[..., None] + np.arange(width, dtype=start.dtype)
        real = np.arange(width) < count[states][..., None]
        slot = np.where(real, slot, 0)
        blocks.append(
            Block(
                jnp.asarray(new_name[transition.indices[slot]]),
                jnp.asarray(np.where(real, transition.data[slot], 0)),
                jnp.asarray(reward[states]),
                jnp.asarray(behavior[states]),
            )
        )
    return Layout(tuple(blocks), order)


def action_values(v: Float[Array, "S budgets"], block: Block, discount: Float[Array, ""]) -> Float[Array, "A budgets"]:
    """Q(s, b, a) = r(s, a) + gamma E_{s'} V(s', b) of one state, all actions and budgets at once."""
    if block.successor is None:
        expected = jnp.dot(block.probability, v, precision="highest")
    else:

        def add_slot(total, slot):
            successor, probability = slot
            return total + probability[:, None] * v.at[successor].get(mode="promise_in_bounds"), None

        nothing = jnp.zeros((block.reward.shape[0], v.shape[1]), v.dtype)
        slots = (block.successor.T, block.probability.T)
        expected, _ = jax.lax.scan(add_slot, nothing, slots, unroll=min(_UNROLL, len(slots[0])))
    return block.reward[:, None] + discount * expected


def follow_and_best(
    q: Float[Array, "A budgets"], behavior: Float[Array, " A"]
) -> tuple[Float[Array, " budgets"], Float[Array, " budgets"]]:
    """E_{a~mu} Q(s, b, a) and max_a Q(s, b, a) of one state."""
    return (behavior[:, None] * q).sum(axis=0), q.max(axis=0)


def over_states(function: Any, v: Float[Array, "S budgets"], blocks: tuple[Block, ...], discount: Any) -> Any:
    """Map `function(q, behavior)` of one state over all states, block by block, in the layout's order."""

    def mapped(block: Block) -> Any:
        def one_state(state: Block) -> Any:
            return function(action_values(v, state, discount), state.behavior)

        if block.successor is None:
            return jax.vmap(one_state)(block)  # a dense product is blocked by the library that runs it
        row_bytes = block.reward.shape[1] * v.shape[1] * v.dtype.itemsize
        return jax.lax.map(one_state, block, batch_size=max(1, _BLOCK_BYTES // row_bytes))

    parts = [mapped(block) for block in blocks]
    return jax.tree.map(lambda *xs: xs[0] if len(xs) == 1 else jnp.concatenate(xs), *parts)


def sweep(
    v: Float[Array, "S budgets"], blocks: tuple[Block, ...], discount: Float[Array, ""]
) -> Float[Array, "S budgets"]:
    """V'(s, b) = max(max_a Q(s, b-1, a), E_{a~mu} Q(s, b, a)) with Q from V: the operator, once."""

    def value(q: Float[Array, "A budgets"], behavior: Float[Array, " A"]) -> Float[Array, " budgets"]:
        follow, best = follow_and_best(q, behavior)
        return backup(follow, after_deviating(best))

    return over_states(value, v, blocks, discount)
