"""What is in a log, in numbers and as a picture."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float64, Int64

from bcol.data.log import Log, episode_ends
from bcol.data.tasks import Task
from bcol.errors import InputError


@dataclass(frozen=True, eq=False)
class Summary:
    """The numbers of a log, as logged: no row dropped, no reward transformed.

    Attributes:
        rows: steps.
        returns: of each episode.
        scores: the returns normalised to 0..100, if the reference returns are known.
        lengths: of each episode.
        terminals: rows where the world ended.
        timeouts: episodes that ended without a terminal, unmarked ones included.
        rewarded: rows whose reward is not 0.
        observation_dim: numbers in an observation.
        actions: what they are, in words.
    """

    rows: int
    returns: Float64[np.ndarray, " episodes"]
    scores: Float64[np.ndarray, " episodes"] | None
    lengths: Int64[np.ndarray, " episodes"]
    terminals: int
    timeouts: int
    rewarded: int
    observation_dim: int
    actions: str


def describe(log: Log, task: Task | None = None) -> Summary:
    """The numbers of a log, with scores if its task is known."""
    ends = episode_ends(log, task)
    last = np.flatnonzero(ends)
    starts = np.append(0, last[:-1] + 1)
    returns = np.add.reduceat(log.rewards, starts, dtype=np.float64)
    scores = None
    if task is not None:
        low, high = task.reference
        # An AntMaze trajectory collects rewards as long as it is at the goal; a policy's episode ends there.
        reached = returns if task.ends_at_terminal else np.minimum(returns, high)
        scores = 100 * (reached - low) / (high - low)
    if log.discrete:
        actions = f"discrete, {int(log.actions.min())}..{int(log.actions.max())}"
    else:
        actions = f"{log.actions.shape[1]}-d, {log.actions.min():.4g} to {log.actions.max():.4g}"
    return Summary(
        rows=len(log),
        returns=returns,
        scores=scores,
        lengths=np.diff(starts, append=len(log)).astype(np.int64),
        terminals=int(log.terminals.sum()),
        timeouts=int((ends & ~log.terminals).sum()),
        rewarded=int(np.count_nonzero(log.rewards)),
        observation_dim=log.observations.shape[1],
        actions=actions,
    )


def draw(log: Log, summary: Summary, task: Task | None, title: str, path: str | os.PathLike[str]) -> None:
    """A picture of how returns and lengths are spread over the episodes, and for AntMaze of where the rows lie."""
    from matplotlib.figure import Figure

    in_maze = task is not None and "AntMaze" in task.env_id and summary.observation_dim > 1
    figure = Figure(figsize=(12.5 if in_maze else 9, 3.4), layout="constrained")
    panels = figure.subplots(1, 2 + in_maze)
    spread = summary.returns if summary.scores is None or in_maze else summary.scores
    label = "return" if summary.scores is None or in_maze else "normalised score"
    for axes, values, name in zip(panels[:2], (spread, summary.lengths), (label, "length"), strict=True):
        axes.hist(values, bins=min(50, max(5, len(values) // 5)), color="#31688e")
        axes.set(xlabel=name, ylabel="episodes")
        axes.spines[["top", "right"]].set_visible(False)
    if in_maze:
        x, y = log.observations[:, :2].T
        panels[2].hexbin(x, y, gridsize=60, bins="log", cmap="Greens", linewidths=0)
        at_goal = log.rewards > 0
        panels[2].plot(x[at_goal], y[at_goal], ".", color="#c44e52", ms=3)
        panels[2].set(xlabel="x", ylabel="y", aspect="equal", title="rows; red: rewarded")
    figure.suptitle(title)
    try:
        figure.savefig(Path(path), dpi=150)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot write the picture {os.fspath(path)} ({error}); use a path ending in .png") from error
