"""Watching behaviour policies in training: the ladder and its returns, the learning curve, the live line."""

import time
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bcol.data.tasks import REFERENCES
from bcol.evaluate import worker_pool
from bcol.forge.folder import append_to_curve, rung_files, rung_path
from bcol.forge.rungs import Measured, Rung, halved, measure, read_rung, with_returns, write_rung
from bcol.forge.space import Space
from bcol.nets import Actor


class Ladder:
    """Writes rungs at once, and again with their returns when these are known."""

    def __init__(self, folder: Path, env: str, space: Space, seeds: Sequence[int], episodes: int, evaluators: int):
        """A ladder of `env` in a run folder; `evaluators` processes play `episodes` of each kind per rung."""
        self._folder, self._env, self._space, self._seeds, self._episodes = folder, env, space, seeds, episodes
        self._stack, self._evaluators = ExitStack(), evaluators
        self._pending: list[tuple[Rung, Future[Measured]]] = []
        self._news = ""

    def __enter__(self) -> "Ladder":
        """Start the processes, and give them what an interrupted run left unmeasured."""
        self._pool = self._stack.enter_context(worker_pool(self._evaluators))
        for path in rung_files(self._folder):
            rung = read_rung(path)
            if rung.measured is None:
                self._submit(rung)
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        """Wait for what is being measured, unless something failed."""
        try:
            while kind is None and self._pending:
                self._collect()
        finally:
            self._stack.close()

    def add(self, step: int, actors: list[Actor]) -> None:
        """Keep these policies, and begin to measure them."""
        for seed, actor in zip(self._seeds, actors, strict=True):
            rung = Rung(self._env, seed, step, self._space, halved(actor))
            write_rung(rung_path(self._folder, rung), rung)
            self._submit(rung)

    def news(self) -> str:
        """What the last measured rungs reached."""
        while self._pending and self._pending[0][1].done():
            self._collect()
        return self._news

    def _submit(self, rung: Rung) -> None:
        seed = 1_000_000 + rung.step
        self._pending.append((rung, self._pool.submit(measure, self._env, rung.actor, self._episodes, seed)))

    def _collect(self) -> None:
        rung, future = self._pending.pop(0)
        rung = with_returns(rung, future.result())
        write_rung(rung_path(self._folder, rung), rung)
        assert rung.measured is not None
        means = {name: float(np.mean(getattr(rung.measured, name))) for name in ("mode", "sampled")}
        append_to_curve(self._folder, {"step": rung.step, "seed": rung.seed, **means, "score": rung.score()})
        self._news = f"rung {rung.step:,}: {means['sampled']:.0f} sampled, {means['mode']:.0f} mode"


class Window:
    """Averages over a stretch of training, for the learning curve."""

    def __init__(self, folder: Path, seeds: Sequence[int], rounds: int = 10):
        """Write a row per run every so many rounds."""
        self._folder, self._seeds, self._rounds = folder, seeds, rounds
        self._seen, self._episodes, self._metrics = 0, list[tuple[int, float, int]](), list[list[dict[str, float]]]()
        self._began, self.news = time.monotonic(), ""

    def add(self, step: int, updates: int, episodes: list[tuple[int, float, int]], metrics: Any) -> None:
        """Take a round; every so many of them, write a row for each run."""
        self._seen += 1
        self._episodes += episodes
        self._metrics += [] if metrics is None else [metrics]
        if self._seen % self._rounds:
            return
        for run, seed in enumerate(self._seeds):
            mine = [(r, n) for which, r, n in self._episodes if which == run]
            row: dict[str, Any] = {"step": step, "seed": seed, "updates": updates, "episodes": len(mine)}
            row["seconds"] = round(time.monotonic() - self._began, 2)
            if mine:
                row["return"], row["length"] = (float(np.mean(x)) for x in zip(*mine, strict=True))
                self.news = f"return {row['return']:.0f}"
            if self._metrics:
                last = [m[run] for m in self._metrics]
                row |= {name: float(np.mean([m[name] for m in last])) for name in last[0]}
            append_to_curve(self._folder, row)
        self._episodes, self._metrics = [], []


class Line:
    """The live progress line."""

    def __init__(self, folder: Path, steps: int, start: int, progress: bool):
        """A line from `start` to `steps`, on a terminal if `progress`."""
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn())
        more = (TextColumn("{task.fields[rate]}"), TimeRemainingColumn(), TextColumn("{task.fields[news]}"))
        self._bar = Progress(*columns, *more, console=console, disable=not (progress and console.is_terminal))
        self._task = self._bar.add_task(str(folder), total=steps, completed=start, rate="", news="compiling")

    def __enter__(self) -> "Line":
        """Start it."""
        self._bar.start()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        """Stop it."""
        self._bar.stop()

    def show(self, step: int, *news: str) -> None:
        """Training has reached `step`."""
        speed = self._bar.tasks[self._task].speed
        rate = f"{speed:,.0f} steps/s" if speed else ""
        self._bar.update(self._task, completed=step, rate=rate, news=", ".join(x for x in news if x))


def draw_curve(folder: Path) -> Path:
    """A picture of what the rungs of a run folder reach, `curve.png` beside them."""
    from matplotlib.figure import Figure

    measured = [rung for rung in map(read_rung, rung_files(folder)) if rung.measured is not None]
    figure = Figure(figsize=(6.5, 3.8), layout="constrained")
    axes = figure.subplots()
    for color, seed in zip(cycle(["#31688e", "#c44e52", "#55a868", "#8172b2"]), {r.seed: None for r in measured}):
        mine = sorted((rung for rung in measured if rung.seed == seed), key=lambda rung: rung.step)
        for sampled, style in ((False, "--"), (True, "-")):
            label = f"seed {seed}, {'sampled' if sampled else 'mode'}"
            scores = [rung.score(sampled) for rung in mine]
            axes.plot([rung.step for rung in mine], scores, style, color=color, lw=1.2, label=label)
    known = bool(measured) and measured[0].env in REFERENCES
    axes.set(xlabel="environment steps", ylabel="normalised score" if known else "return", title=str(folder))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(folder / "curve.png", dpi=150)
    return folder / "curve.png"
