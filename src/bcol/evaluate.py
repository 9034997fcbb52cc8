"""Whole episodes in worker processes, and their scores.

Episodes are played in groups of fixed size, each with seeds of its own: the result depends on the seed alone, not on
the number of workers or on who finishes first.
"""

import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, TimeoutError
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from threading import RLock
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from bcol.data.tasks import REFERENCES
from bcol.errors import InputError
from bcol.policy import Policy
from bcol.runs import RunError

# Episodes that share one process and decide in one batch. Fixed, because the size of a batch changes rounding.
GROUP = 5
# A group that takes longer than this hangs; the slowest tasks here need a minute.
PATIENCE_SECONDS = 900.0
# MuJoCo has one handler of warnings for all threads.
_ONE_AT_A_TIME = RLock()


@dataclass(frozen=True)
class Scores:
    """How the episodes of an evaluation went.

    Attributes:
        returns: undiscounted return of each episode.
        lengths: steps of each episode.
        deviations: deviations in each episode.
        reference: the returns that score 0 and 100, if the environment has them.
    """

    returns: Float[np.ndarray, " n"]
    lengths: Int[np.ndarray, " n"]
    deviations: Int[np.ndarray, " n"]
    reference: tuple[float, float] | None

    @property
    def normalized(self) -> Float[np.ndarray, " n"]:
        """100 (R - min) / (max - min) of each episode; the plain returns where there is no reference."""
        low, high = self.reference or (0.0, 100.0)
        return 100 * (self.returns - low) / (high - low)

    def to_json(self) -> dict[str, Any]:
        """One row of scores.jsonl."""
        return {
            "score": float(self.normalized.mean()),
            "scores": self.normalized.tolist(),
            "returns": self.returns.tolist(),
            "lengths": self.lengths.tolist(),
            "deviations": self.deviations.tolist(),
        }


def evaluate(
    policy: Policy,
    env: str,
    episodes: int = 10,
    *,
    seed: int = 0,
    budget: int | None = None,
    workers: int | None = None,
    finished: Callable[[int], None] = lambda episodes: None,
) -> Scores:
    """Play whole episodes and score them.

    Args:
        policy: from `load_policy`.
        env: Gymnasium id, such as "Hopper-v4"; "module:Name-v0" imports the module that registers it first.
        episodes: how many.
        seed: of the episodes; the same seed gives the same scores whatever `workers` is.
        budget: deviations per episode; by default the policy's own B.
        workers: processes; by default one per core. 0 plays in this process.
        finished: called with the number of episodes that a group has just finished.
    """
    if episodes < 1:
        raise InputError(f"episodes must be at least 1: got {episodes}")
    check_environment(policy, env)
    policy.reset(1, budget)  # refuses a bad budget here rather than in a worker
    jobs = groups(episodes, seed)
    if workers == 0:
        parts = []
        for seeds in jobs:
            parts.append(play(policy, env, seeds, budget))
            finished(len(seeds))
        return collect(parts, env, policy)
    with worker_pool(min(workers or os.cpu_count() or 1, len(jobs))) as pool:
        futures = [pool.submit(play, policy, env, seeds, budget) for seeds in jobs]
        parts = []
        for future, seeds in zip(futures, jobs, strict=True):
            parts.append(outcome(future, env))
            finished(len(seeds))
        return collect(parts, env, policy)


def groups(episodes: int, seed: int) -> list[list[tuple[int, int]]]:
    """The seeds of the episodes, cut into groups that play together."""
    seeds = [(seed, i) for i in range(episodes)]
    return [seeds[i : i + GROUP] for i in range(0, episodes, GROUP)]


def play(
    policy: Policy, env: str, seeds: Sequence[tuple[int, int]], budget: int | None
) -> list[tuple[float, int, int]]:
    """Play one group to the end of its last episode: return, length and deviations of each."""
    n = len(seeds)
    worlds = [make_environment(env) for _ in seeds]
    try:
        starts = [int(np.random.SeedSequence(s).generate_state(1)[0] >> 1) for s in seeds]
        rows = np.stack([world.reset(seed=start)[0] for world, start in zip(worlds, starts, strict=True)])
        rows, shape = rows.reshape(n, -1), worlds[0].action_space.shape
        policy.reset(n, budget, seed=seeds)
        total, length, spent, running = np.zeros(n), np.zeros(n, int), np.zeros(n, int), np.ones(n, bool)
        while running.any():
            decision = policy.act(rows)
            for i in np.flatnonzero(running):
                seen, reward, terminated, truncated, _ = worlds[i].step(decision.action[i].reshape(shape))
                rows[i] = np.reshape(seen, -1)
                total[i] += float(reward)
                length[i] += 1
                spent[i] += decision.deviated[i]
                running[i] = not (terminated or truncated)
        return list(zip(total.tolist(), length.tolist(), spent.tolist(), strict=True))
    except InputError:
        raise
    except Exception as error:
        raise RunError(
            f"the environment {env} failed: {type(error).__name__}: {str(error).splitlines()[0:1]}"
        ) from error
    finally:
        for world in worlds:
            world.close()


def make_environment(env: str, **options: Any) -> Any:
    """The Gymnasium environment, with bcol's own ones registered; InputError if there is none."""
    import gymnasium

    if env.startswith("bcol/"):
        import bcol.envs  # noqa: F401
    try:
        with warnings.catch_warnings(), _without_old_news():
            # D4RL's scores are those of -v4: that it is not the newest is why it is here.
            warnings.filterwarnings("ignore", message=".*is out of date", category=DeprecationWarning)
            return gymnasium.make(env, **options)
    except InputError:
        raise
    except (gymnasium.error.Error, ImportError, AttributeError) as error:
        raise InputError(f"cannot make the environment {env!r}: {str(error).splitlines()[0]}") from None


@contextmanager
def _without_old_news() -> Iterator[None]:
    """Without MuJoCo's word, in every process and in a log file, on how HalfCheetah-v4 states its mass."""
    import mujoco

    def say(text: str) -> None:
        if "settotalmass" not in text:
            print(f"MuJoCo: {text}", file=sys.stderr)

    with _ONE_AT_A_TIME:
        before = mujoco.get_mju_user_warning()
        mujoco.set_mju_user_warning(say)
        try:
            yield
        finally:
            mujoco.set_mju_user_warning(before)


def check_environment(policy: Policy, env: str) -> None:
    """InputError unless the environment fits the policy."""
    import gymnasium

    world = make_environment(env)
    try:
        seen, done = world.observation_space, world.action_space
        if not isinstance(done, gymnasium.spaces.Box) or not isinstance(seen, gymnasium.spaces.Box):
            raise InputError(f"{env} must have box observations and actions: it has {seen} and {done}")
        have = (policy.spec.observation_dim, policy.spec.action_dim)
        want = (int(np.prod(seen.shape)), int(np.prod(done.shape)))
        if have != want:
            raise InputError(
                f"the policy is for {have[0]} observations and {have[1]} actions, {env} has {want[0]} and {want[1]}: "
                "choose the environment that the data came from"
            )
        low, high = np.array(policy.spec.action_low), np.array(policy.spec.action_high)
        if np.any(low < done.low.reshape(-1) - 1e-5) or np.any(high > done.high.reshape(-1) + 1e-5):
            raise InputError(f"the policy's actions reach beyond those of {env}: its data had other bounds")
    finally:
        world.close()


@contextmanager
def worker_pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that start afresh (a forked JAX would hang), one thread each; none outlives the block."""
    threads = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    os.environ.update(dict.fromkeys(threads, "1"))
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
    try:
        yield pool
    finally:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
        for name, value in threads.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def outcome(future: Future, env: str) -> list[tuple[float, int, int]]:
    """What a group played; RunError if its process hangs or died."""
    try:
        return future.result(PATIENCE_SECONDS)
    except TimeoutError:
        raise RunError(f"episodes of {env} took longer than {PATIENCE_SECONDS:.0f} s: the environment hangs") from None
    except BrokenProcessPool:
        raise RunError(f"a process that played {env} died: the environment crashed, or memory ran out") from None


def collect(parts: Sequence[list[tuple[float, int, int]]], env: str, policy: Policy) -> Scores:
    """The scores of all groups, in order."""
    returns, lengths, deviations = zip(*(episode for part in parts for episode in part), strict=True)
    reference = REFERENCES.get(env, policy.spec.reference)
    return Scores(np.array(returns), np.array(lengths), np.array(deviations), reference)
