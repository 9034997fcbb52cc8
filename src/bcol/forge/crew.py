"""Processes that step environments while the learner learns. NumPy only: they never load JAX.

A round is a fixed number of steps of every environment under fixed weights. What a round brings depends on the
weights and the seeds alone, not on who is faster; in a *fresh* round every environment begins a new episode with a
seed made of the run's seed, its own number and the round's: a run can go on from there as if it had never stopped.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32

from bcol.evaluate import make_environment
from bcol.forge.space import space_of
from bcol.nets import Actor, gaussian
from bcol.runs import RunError

# A round takes seconds; one that takes longer than this hangs.
PATIENCE_SECONDS = 300.0
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Order(NamedTuple):
    """What to do in a round: actors by run, or None to act at random."""

    round: int
    fresh: bool
    actors: list[Actor] | None


class Haul(NamedTuple):
    """What a round brought: rows (s, a, r, s', mask) by slot, and (run, return, length) of finished episodes."""

    rows: Float32[np.ndarray, "slots steps width"]
    episodes: list[tuple[int, float, int]]


class Slot(NamedTuple):
    """An environment: which run it serves, that run's seed, and its number there."""

    run: int
    seed: int
    number: int


class Deck:
    """Some environments in this process, and the episodes they are in."""

    def __init__(self, env: str, slots: Sequence[Slot], steps: int):
        """Make the environments; a round is `steps` steps of each."""
        self._slots, self._steps = list(slots), steps
        self._worlds = [make_environment(env, disable_env_checker=True) for _ in slots]
        self._space = space_of(self._worlds[0], env)
        self._random = [np.random.default_rng(0) for _ in slots]
        self._seen = np.zeros((len(slots), self._space.observation_dim), np.float32)
        self._returns, self._lengths = [0.0] * len(slots), [0] * len(slots)

    def play(self, order: Order) -> Haul:
        """Play a round."""
        if order.fresh:
            for i, slot in enumerate(self._slots):
                self._random[i] = np.random.default_rng((slot.seed, slot.number, order.round))
                self._begin(i, seed=int(self._random[i].integers(2**31)))
        s, a = self._space.observation_dim, self._space.action_dim
        rows = np.empty((len(self._slots), self._steps, 2 * s + a + 2), np.float32)
        if order.actors is None:
            chosen = np.stack([r.uniform(-1, 1, (self._steps, a)) for r in self._random]).astype(np.float32)
        else:
            noise = np.stack([r.standard_normal((self._steps, a), np.float32) for r in self._random])
        episodes = []
        for t in range(self._steps):
            action = chosen[:, t] if order.actors is None else self._act(order.actors, noise[:, t])
            commands = self._space.scaled(action).reshape(len(action), *self._worlds[0].action_space.shape)
            rows[:, t, :s], rows[:, t, s : s + a] = self._seen, action
            for i, world in enumerate(self._worlds):
                seen, reward, terminated, truncated, _ = world.step(commands[i])
                row = rows[i, t]
                row[s + a], row[s + a + 1 : -1], row[-1] = reward, np.reshape(seen, -1), not terminated
                self._returns[i] += float(reward)
                self._lengths[i] += 1
                if terminated or truncated:
                    episodes.append((self._slots[i].run, self._returns[i], self._lengths[i]))
                    self._begin(i)
                else:
                    self._seen[i] = row[s + a + 1 : -1]
        if not np.isfinite(rows).all():
            raise RunError("the environment gave NaN or infinite observations or rewards")
        return Haul(rows, episodes)

    def _begin(self, i: int, seed: int | None = None) -> None:
        self._seen[i] = np.reshape(self._worlds[i].reset(seed=seed)[0], -1)
        self._returns[i], self._lengths[i] = 0.0, 0

    def _act(self, actors: list[Actor], noise: Float32[np.ndarray, "slots a"]) -> Float32[np.ndarray, "slots a"]:
        action = np.empty_like(noise)
        for run, actor in enumerate(actors):
            mine = [i for i, slot in enumerate(self._slots) if slot.run == run]
            if mine:
                mean, log_std = gaussian(actor, self._seen[mine])
                action[mine] = np.tanh(mean[:, 0] + np.exp(log_std[:, 0]) * noise[mine])
        return action


class Crew:
    """Several processes with a deck each."""

    def __init__(self, pipes: list[Connection], processes: list[Any]):
        """Talk to processes that have been started."""
        self._pipes, self._processes = pipes, processes

    def begin(self, order: Order) -> None:
        """Let everyone play a round; it goes on while the caller does something else."""
        for pipe in self._pipes:
            try:
                pipe.send(order)
            except OSError:
                raise RunError("a process that steps environments died") from None

    def finish(self) -> Haul:
        """Wait for the round, and return all of it in the order of the slots."""
        hauls = [self._receive(pipe) for pipe in self._pipes]
        return Haul(np.concatenate([h.rows for h in hauls]), [e for h in hauls for e in h.episodes])

    def _receive(self, pipe: Connection) -> Haul:
        if not pipe.poll(PATIENCE_SECONDS):
            raise RunError(f"a round took longer than {PATIENCE_SECONDS:.0f} s: the environment hangs")
        try:
            haul = pipe.recv()
        except EOFError:
            raise RunError("a process that steps environments died: it crashed, or memory ran out") from None
        if isinstance(haul, str):
            raise RunError(f"the environment failed: {haul}")
        return haul


@contextmanager
def hired(env: str, slots: Sequence[Slot], steps: int, workers: int) -> Iterator[Crew]:
    """A crew with the slots dealt out over `workers` processes of one thread each; none outlives the block."""
    context = get_context("spawn")
    parts = [part for part in np.array_split(np.arange(len(slots)), workers) if len(part)]
    kept = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    pipes, processes = [], []
    try:
        for part in parts:
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(there, env, [slots[i] for i in part], steps), daemon=True)
            process.start()
            there.close()
            pipes.append(here)
            processes.append(process)
        yield Crew(pipes, processes)
    finally:
        for name, value in kept.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()


def _serve(pipe: Connection, env: str, slots: list[Slot], steps: int) -> None:
    """Obey orders until the other end is gone."""
    deck = None
    while True:
        try:
            order = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        try:
            deck = deck or Deck(env, slots, steps)
            answer: Haul | str = deck.play(order)
        except Exception as error:  # whatever a user's environment raises is one line for the user
            answer = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        try:
            pipe.send(answer)
        except OSError:
            return
