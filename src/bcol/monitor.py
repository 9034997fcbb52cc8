"""Watching a run: the live line, evaluations in the background, and the diagnosis of runs that are lost."""

import math
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bcol.evaluate import Scores, collect, groups, outcome, play
from bcol.policy import Policy
from bcol.runs import Member

# An honest value is at most the largest reward over 1 - gamma; this many times it is no longer learning.
_EXPLODED = 100.0
# Actions that differ by less than this between states do not depend on the state.
_DEAD = 1e-7
# Evaluations per run that may wait before training waits for them.
_MOST_PENDING = 8


def diagnosis(metrics: dict[str, float], largest_value: float) -> str | None:
    """What is wrong with a run, in one line; None if nothing is.

    Args:
        metrics: averages over the last interval.
        largest_value: the largest size that a value can have with these rewards and this discount.
    """
    for name, value in metrics.items():
        if not math.isfinite(value):
            return f"{name} is {value}: lower the learning rates, or look for outliers with bcol data check"
    if metrics.get("q_size", 0.0) > _EXPLODED * largest_value:
        return (
            f"values have reached {metrics['q_size']:.3g}, where rewards allow {largest_value:.3g}: the critics feed "
            "on their own errors; use a smaller budget, a larger omega or critic_norm='layer'"
        )
    if metrics.get("actor_spread", 1.0) < _DEAD:
        return "the actor does the same in every state and cannot learn any more: lower actor_lr, or normalise states"
    return None


@dataclass
class _Pending:
    step: int
    run: int
    policy: Policy
    futures: list[Future]


class Monitor:
    """Shows, logs and evaluates; knows which runs are still alive.

    Attributes:
        alive: indices of the runs that go on.
        lost: what went wrong with the others.
    """

    def __init__(
        self,
        path: Path,
        members: Sequence[Member],
        start: int,
        steps: int,
        env: str | None,
        episodes: int,
        pool: ProcessPoolExecutor | None,
        progress: bool,
    ):
        """Watch `members` from step `start` to `steps`; evaluate in `pool`, if there is one."""
        self.alive, self.lost = list(range(len(members))), dict[int, str]()
        self._members, self._env, self._episodes, self._pool = members, env, episodes, pool
        self._pending: list[_Pending] = []
        self._saves: list[tuple[int, Callable[[], None]]] = []
        self._scores: dict[int, Scores] = {}
        self._console = Console(stderr=True)
        self._live = progress and sys.stderr.isatty()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[news]}"),
            console=self._console,
            disable=not self._live,
        )
        self._task = self._bar.add_task(str(path), total=steps, completed=start, rate="", news="compiling")
        self._news = ""

    def __enter__(self) -> "Monitor":
        """Start the live line."""
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the live line, and close what logs go to."""
        self._bar.stop()
        for member in self._members:
            member.close()

    def tick(self, step: int) -> None:
        """Training has reached `step`: move the line, and collect evaluations that are done."""
        task = self._bar.tasks[self._task]
        rate = f"{task.speed:,.0f} steps/s" if task.speed else ""
        self._bar.update(self._task, completed=step, rate=rate, news=self._news)
        while self._pending and all(f.done() for f in self._pending[0].futures):
            self._collect()
        self._save_what_is_due()

    def say(self, what: str) -> None:
        """A line for whoever watches."""
        self._console.print(what, highlight=False, soft_wrap=True)

    def report(self, step: int, metrics: list[dict[str, float]]) -> None:
        """Log the averages since the last report."""
        for i in self.alive:
            self._members[i].log("metrics.jsonl", {"step": step, **metrics[i]})
        shown = ("critic_loss", "actor_loss", "behavior_loss")
        values = [f"{k.removesuffix('_loss')} {metrics[0][k]:.3g}" for k in shown if k in metrics[0]]
        if self._scores:
            played = [self._scores[i] for i in self._scores]
            mean = sum(float(s.normalized.mean()) for s in played) / len(played)
            spent = sum(float(s.deviations.mean()) for s in played) / len(played)
            values.append(f"score {mean:.1f}, {spent:.1f} deviations")
        self._news = " ".join(values)

    def lose(self, i: int, step: int, problem: str) -> None:
        """Give up a run: it is not logged, evaluated or saved any more; its last good checkpoint stays."""
        self.alive.remove(i)
        self.lost[i] = f"at step {step}, {problem}"
        self._members[i].log("metrics.jsonl", {"step": step, "lost": problem})
        self.say(f"{self._members[i].path} stopped {self.lost[i]}")

    def evaluate(self, step: int, policies: dict[int, Policy]) -> None:
        """Begin to score these policies, in the background."""
        if self._pool is None or self._env is None:
            return
        while len(self._pending) >= _MOST_PENDING * len(self._members):
            self._collect()
        for i, policy in policies.items():
            jobs = groups(self._episodes, seed=step)
            futures = [self._pool.submit(play, policy, self._env, seeds, None) for seeds in jobs]
            self._pending.append(_Pending(step, i, policy, futures))

    def save(self, step: int, write: Callable[[], None]) -> None:
        """Write a checkpoint once all evaluations up to it are logged, so that a run resumed from it lacks none."""
        self._saves.append((step, write))
        self._save_what_is_due()

    def finish(self) -> None:
        """Wait for every evaluation that has begun, and for the checkpoints that wait for them."""
        while self._pending:
            self._collect()
        self._save_what_is_due()

    def _save_what_is_due(self) -> None:
        while self._saves and not any(pending.step <= self._saves[0][0] for pending in self._pending):
            self._saves.pop(0)[1]()

    def _collect(self) -> None:
        assert self._env is not None
        first = self._pending.pop(0)
        scores = collect([outcome(f, self._env) for f in first.futures], self._env, first.policy)
        self._scores[first.run] = scores
        self._members[first.run].log("scores.jsonl", {"step": first.step, **scores.to_json()})
