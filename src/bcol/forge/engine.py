"""The device's part of online SAC: the replay buffer, and thousands of updates per dispatch for all runs at once."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Int

from bcol.errors import InputError
from bcol.forge.sac import SAC, named, unpack
from bcol.forge.space import Space
from bcol.nets import Actor


class Engine:
    """All runs on the device: networks, optimisers, replay buffers.

    Attributes:
        rows: transitions that each run has seen.
        updates: gradient steps that each run has made.
        block: transitions that are appended at a time.
    """

    def __init__(self, agent: SAC, seeds: Sequence[int], space: Space, block: int, capacity: int, updates: int):
        """Fresh runs, one per seed; `capacity` is a multiple of `block`, and `learn` makes `updates` steps."""
        self.rows, self.updates, self.block = 0, 0, block
        self._agent, self._space, self._capacity, self._each = agent, space, capacity, updates
        dims = space.observation_dim, space.action_dim
        states = [agent.init(np.random.default_rng(seed), *dims) for seed in seeds]
        self._state = jax.tree.map(lambda *xs: jnp.stack([jnp.asarray(x) for x in xs]), *states)
        self._keys = jnp.stack([jax.random.key(seed) for seed in seeds])
        self._replay = jnp.zeros((len(seeds), capacity, 2 * dims[0] + dims[1] + 2), jnp.float32)
        self._sums: dict[str, Array] = {}
        self._compiled = jax.jit(self._many, donate_argnums=0)
        self._put = jax.jit(_put, donate_argnums=0)

    def append(self, rows: Float32[np.ndarray, "runs block width"]) -> None:
        """Remember new transitions, in the place of the oldest ones when the buffer is full."""
        self._replay = self._put(self._replay, rows, self.rows % self._capacity)
        self.rows += rows.shape[1]

    def learn(self) -> None:
        """Begin the updates of a round; nothing here waits for them."""
        size = min(self.rows, self._capacity)
        self._state, self._sums = self._compiled(self._state, self._replay, self._keys, self.updates, size)
        self.updates += self._each

    def metrics(self) -> list[dict[str, float]]:
        """Averages over the last updates, by run; waits for them."""
        sums = {name: np.asarray(x) for name, x in self._sums.items()}
        return [{name: float(x[i]) / self._each for name, x in sums.items()} for i in range(len(self._keys))]

    def actors(self) -> list[Actor]:
        """The actors of the runs, as NumPy arrays; waits for the updates."""
        stacked = jax.tree.map(np.asarray, self._state.actor.net)
        return [jax.tree.map(lambda x, i=i: x[i], stacked) for i in range(len(self._keys))]

    def tensors(self) -> dict[str, np.ndarray]:
        """Networks and optimisers of all runs, by name."""
        return {name: np.asarray(x) for name, x in named(self._state).items()}

    def restore(self, tensors: dict[str, np.ndarray], updates: int, rows: int, blocks: Sequence[np.ndarray]) -> None:
        """Go on from a checkpoint after `rows` transitions, of which `blocks` are the last."""
        expected = named(self._state)
        if {n: x.shape for n, x in tensors.items()} != {n: x.shape for n, x in expected.items()}:
            raise InputError("the checkpoint in the run folder is of other networks than the configuration asks for")
        leaves = [jnp.asarray(tensors[name]) for name in expected]
        self._state = jax.tree.unflatten(jax.tree.structure(self._state), leaves)
        self.updates, self.rows = updates, rows - sum(part.shape[1] for part in blocks)
        for part in blocks:
            for start in range(0, part.shape[1], self.block):
                self.append(part[:, start : start + self.block])

    def _many(self, state: Any, replay: Array, keys: Array, step: Int[Array, ""], size: Int[Array, ""]) -> Any:
        def one(state: Any, replay: Array, key: Array, step: Array) -> Any:
            for_rows, for_update = jax.random.split(jax.random.fold_in(key, step))
            chosen = jax.random.randint(for_rows, (self._agent.batch_size,), 0, size)
            return self._agent.update(state, unpack(replay[chosen], self._space.observation_dim), for_update)

        every = jax.vmap(one, (0, 0, 0, None))

        def body(i: Array, carry: Any) -> Any:
            state, sums = carry
            state, metrics = every(state, replay, keys, step + i)
            return state, jax.tree.map(jnp.add, sums, metrics)

        # Half the mantissa is enough for products here, and several times faster where the hardware has it.
        with jax.default_matmul_precision("tensorfloat32"):
            shapes = jax.eval_shape(every, state, replay, keys, step)[1]
            nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
            # A number of steps that is known when compiling spares the device asking the host after each.
            return jax.lax.fori_loop(0, self._each, body, (state, nothing))


def _put(
    replay: Float[Array, "runs capacity width"], rows: Float[Array, "runs block width"], at: Int[Array, ""]
) -> Float[Array, "runs capacity width"]:
    return jax.lax.dynamic_update_slice(replay, rows, (0, at, 0))
