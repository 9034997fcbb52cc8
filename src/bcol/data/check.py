"""Everything that is wrong or odd with a log, with rows, and what it would do to training."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bcol.data.log import Log, bad_values, breaks, episode_ends, steps_since_start
from bcol.data.tasks import Task


@dataclass(frozen=True)
class Problem:
    """One finding.

    Attributes:
        level: "error": loading refuses the log; "warning": training would suffer, or would elsewhere;
            "note": good to know.
        what: what was found.
        effect: what it does to training, and what bcol does about it.
        rows: the rows that have it; empty if it concerns the whole log.
    """

    level: Literal["error", "warning", "note"]
    what: str
    effect: str
    rows: tuple[int, ...] = ()


def check(log: Log, task: Task | None = None) -> list[Problem]:
    """Every problem found in a log, the worst first.

    Args:
        log: the rows as they were read.
        task: what is known about them.
    """
    found = [*_values(log, task), *_episodes(log, task), *_signal(log)]
    order = ("error", "warning", "note")
    return sorted(found, key=lambda problem: order.index(problem.level))


def _values(log: Log, task: Task | None) -> Iterator[Problem]:
    for what, rows in bad_values(log):
        yield Problem(
            "error",
            what,
            "one such row turns every network into NaN or leaves the world; refused",
            _rows(rows),
        )
    if log.discrete:
        return
    if log.action_low is None or log.action_high is None:
        outside = np.flatnonzero((np.abs(log.actions) > 1 + 1e-5).any(axis=1))
        if len(outside) and task is not None:
            yield Problem(
                "error",
                "actions outside -1..1, the task's bounds",
                "no policy could take them; refused",
                _rows(outside),
            )
        elif len(outside):
            effect = "the extreme values count as the bounds; declare the true ones with action_bounds"
            yield Problem("note", "actions go beyond -1..1 and no bounds are declared", effect, _rows(outside))


def _episodes(log: Log, task: Task | None) -> Iterator[Problem]:
    seen = breaks(log)
    timeouts = np.zeros(len(log), dtype=bool) if log.timeouts is None else log.timeouts
    ends_at_terminal = task is None or task.ends_at_terminal
    limit = None if task is None else task.episode_limit
    ends = episode_ends(log, task)
    if task is not None and task.caveat is not None:
        yield Problem(
            "warning", task.caveat, "episodes end at the wrong rows wherever nothing else shows the true ends"
        )
    if seen is not None:
        inner = seen.copy()
        inner[-1] = False  # the end of the file is nobody's mistake
        unmarked = np.flatnonzero(inner & ~log.terminals & ~timeouts)
        if len(unmarked):
            yield Problem(
                "warning",
                "unmarked time-outs: the next row starts elsewhere, yet neither terminal nor time-out is set",
                "libraries that trust the flags learn a jump to another episode here; bcol ends the episode",
                _rows(unmarked),
            )
        if len(unmarked) > 0.1 * len(log):
            yield Problem(
                "warning",
                "next_observations rarely equals the next row's observation",
                "nearly every row is dropped; are the two stored in different units?",
            )
        misplaced = np.flatnonzero(timeouts & ~seen & ~log.terminals)
        if len(misplaced):
            yield Problem(
                "warning",
                "wrong time-out flags: the trajectory goes on in the next row",
                "a row is lost and the episode is cut in two at each; its return is wrong",
                _rows(misplaced),
            )
        going = np.flatnonzero(log.terminals & ~seen)
        if len(going) and ends_at_terminal:
            yield Problem(
                "note",
                "terminals after which the trajectory goes on in the next row",
                "each ends an episode (mask 0), and what follows counts as a new one",
                _rows(going),
            )
    elif log.timeouts is None and limit is None:
        yield Problem(
            "warning",
            "no time-outs are stored and nothing shows where they were (no next_observations)",
            "rows at time-outs would lead into the next episode; store timeouts, or an episode column",
        )
    both = np.flatnonzero(log.terminals & timeouts)
    if len(both) and ends_at_terminal:
        yield Problem(
            "note", "terminal and time-out at once", "terminal wins: the row is kept with mask 0", _rows(both)
        )
    if limit is not None:
        length = steps_since_start(ends) + 1
        early = np.flatnonzero(timeouts & ~log.terminals & (length < limit))
        if len(early):
            yield Problem(
                "warning",
                f"time-outs before the task's limit of {limit} steps",
                "the flags may be misplaced; each drops a row and cuts an episode",
                _rows(early),
            )
        # Files also record the reset, so one row more than the limit is common.
        late = np.flatnonzero(ends & (length > limit + 1))
        if len(late):
            yield Problem(
                "warning",
                f"episodes longer than the task's limit of {limit} steps",
                "time-outs are missing: some rows lead into the next episode",
                _rows(late),
            )
    dropped = np.flatnonzero(ends & ~log.terminals)
    if len(dropped):
        effect = "their next action is unknown; dropped (they are not terminal)"
        yield Problem("note", f"{len(dropped)} episodes end without a terminal", effect, _rows(dropped))
    if not (log.terminals | ~ends).any():
        yield Problem("error", "no row has a successor", "nothing can be learned; record longer episodes")


def _signal(log: Log) -> Iterator[Problem]:
    if len(log) > 1 and log.rewards.min() == log.rewards.max():
        effect = "every policy looks alike; is the reward recorded?"
        yield Problem("warning", f"all rewards are {log.rewards[0]:g}", effect)
    constant = np.flatnonzero(log.observations.min(axis=0) == log.observations.max(axis=0))
    if len(constant) and len(log) > 1:
        columns = ", ".join(str(c) for c in constant[:10])
        yield Problem(
            "note", f"constant observation columns: {columns}", "they say nothing; normalise with eps above 0"
        )


def _rows(rows: np.ndarray) -> tuple[int, ...]:
    return tuple(int(row) for row in rows)
