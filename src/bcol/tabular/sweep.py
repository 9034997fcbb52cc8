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

# The intermediate Q of a block of states should stay in the cache: these sizes were fastest on the CPUs tried.
_BLOCK_BYTES, _BLOCK_STATES = 4 << 20, 5000
# Successor slots that are added up in one pass over a block.
_GROUP = 8


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
        if width > _GROUP:
            width = -(-width // _GROUP) * _GROUP
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
        n_actions, width = block.successor.shape
        group = min(width, _GROUP)
        grouped = [x.reshape(n_actions, -1, group).swapaxes(0, 1) for x in (block.successor, block.probability)]

        def add_group(total, slots):
            successor, probability = slots
            for k in range(group):
                fetched = v.at[successor[:, k]].get(mode="promise_in_bounds")
                total = total + probability[:, k, None] * fetched
            return total, None

        expected, _ = jax.lax.scan(add_group, jnp.zeros((n_actions, v.shape[1]), v.dtype), grouped)
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
        return jax.lax.map(one_state, block, batch_size=max(1, min(_BLOCK_STATES, _BLOCK_BYTES // row_bytes)))

    parts = [mapped(block) for block in blocks]
    return jax.tree.map(lambda *xs: xs[0] if len(xs) == 1 else jnp.concatenate(xs), *parts)


def sweep(
    v: Float[Array, "S budgets"], blocks: tuple[Block, ...], discount: Float[Array, ""]
) -> Float[Array, "S budgets"]:
    """V'(s, b) = max(max_a Q(s, b-1, a), E_{a~mu} Q(s, b, a)) with Q from V: the operator, once."""

    def value(q: Float[Array, "A budgets"], behavior: Float[Array, " A"]) -> Float[Array, " budgets"]:
        follow, best = follow_and_best(q, behavior)
        return backup(follow, after_deviating(best[:-1]))

    return over_states(value, v, blocks, discount)
