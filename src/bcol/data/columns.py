"""Own logs, whatever their columns are called: a small mapping from columns to a `Log`."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from bcol.data.arrays import listed
from bcol.data.log import Log, make_log
from bcol.errors import InputError


@dataclass(frozen=True)
class Columns:
    """Which column (or array) of an own log means what. What is left out is found by its usual name.

    Attributes:
        observation: columns of the observation, or patterns such as `sensor_*` (their matches in the order of
            their numbers); one two-dimensional array will do. Usual: observations, observation, obs, or these
            followed by numbers, as obs_0, obs_1, ...
        action: like `observation`. Usual: actions, action, act, or numbered. Integers mean discrete actions.
        reward: usual: rewards, reward.
        terminal: 1 where the world ended. Usual: terminals, terminal, terminated, terminations.
        timeout: 1 where only the recording ended. Usual: timeouts, timeout, truncated, truncations.
        next_observation: like `observation`. Usual: next_observations, next_observation, next_obs, numbered.
        episode: numbers or names; rows with the same one form an episode. Usual: episode, episode_id.
        step: the row's place in its episode, counted by ones. Usual: step, timestep.
    """

    observation: tuple[str, ...] = ()
    action: tuple[str, ...] = ()
    reward: str | None = None
    terminal: str | None = None
    timeout: str | None = None
    next_observation: tuple[str, ...] = ()
    episode: str | None = None
    step: str | None = None


_USUAL = {
    "observation": ("observations", "observation", "obs"),
    "action": ("actions", "action", "act"),
    "reward": ("rewards", "reward"),
    "terminal": ("terminals", "terminal", "terminated", "terminations"),
    "timeout": ("timeouts", "timeout", "truncated", "truncations"),
    "next_observation": ("next_observations", "next_observation", "next_obs"),
    "episode": ("episode", "episode_id"),
    "step": ("step", "timestep"),
}
_NEEDED = ("observation", "action", "reward", "terminal")


def log_from_columns(
    names: Iterable[str],
    load: Callable[[list[str]], dict[str, np.ndarray]],
    columns: Columns | None,
    source: str,
) -> Log:
    """A `Log` from named columns.

    Args:
        names: the columns there are.
        load: gives the columns asked for; the others are never read.
        columns: what they mean.
        source: a name for messages.
    """
    chosen = _choose(list(names), columns or Columns(), source)
    arrays = load([name for group in chosen.values() for name in group])
    parts: dict[str, Any] = {
        meaning: _join(source, [arrays[name] for name in group]) for meaning, group in chosen.items()
    }
    episode, step = parts.pop("episode", None), parts.pop("step", None)
    order, last = _episodes(source, episode, step, len(parts["reward"]))
    if order is not None:
        parts = {meaning: _in_order(source, meaning, array, order) for meaning, array in parts.items()}
    log = make_log(**{f"{meaning}s": array for meaning, array in parts.items()}, source=source)
    return log if last is None else _marked(log, last)


def _choose(names: list[str], columns: Columns, source: str) -> dict[str, list[str]]:
    chosen: dict[str, list[str]] = {}
    for meaning, usual in _USUAL.items():
        asked = getattr(columns, meaning)
        patterns = (asked,) if isinstance(asked, str) else asked
        found = _match(names, patterns, source) if patterns else _guess(names, usual, source)
        if found:
            chosen[meaning] = found
        elif meaning in _NEEDED:
            raise InputError(
                f"{source}: no column for the {meaning} (there are: {listed(names)}); "
                f"name it with Columns({meaning}=...)"
            )
    return chosen


def _match(names: list[str], patterns: tuple[str, ...], source: str) -> list[str]:
    found: list[str] = []
    for pattern in patterns:
        hits = [pattern] if pattern in names else sorted((n for n in names if fnmatchcase(n, pattern)), key=_by_number)
        if not hits:
            raise InputError(f"{source}: no column {pattern!r} (there are: {listed(names)}); correct the name")
        found += hits
    return found


def _guess(names: list[str], usual: tuple[str, ...], source: str) -> list[str]:
    for stem in usual:
        if stem in names:
            return [stem]
        numbered = sorted((n for n in names if re.fullmatch(rf"{stem}[_.]?\d+", n)), key=_by_number)
        if numbered:
            numbers = [int(re.findall(r"\d+", name)[-1]) for name in numbered]
            if np.any(np.diff(numbers) != 1) or numbers[0] > 1:
                raise InputError(
                    f"{source}: columns {stem}_* are numbered {numbers[0]}..{numbers[-1]} with holes; "
                    "add the missing ones, or name the columns"
                )
            return numbered
    return []


def _by_number(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _join(source: str, arrays: list[np.ndarray]) -> np.ndarray:
    if len(arrays) == 1:
        return arrays[0]
    try:
        return np.concatenate([a[:, None] if a.ndim == 1 else a for a in arrays], axis=1)
    except (ValueError, IndexError, TypeError) as error:
        raise InputError(
            f"{source}: columns that belong together differ in length or kind ({error}); make them alike"
        ) from error


def _episodes(
    source: str, episode: np.ndarray | None, step: np.ndarray | None, rows: int
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """The order that puts episodes together and steps in sequence, and the last rows, if they are known."""
    if episode is None:
        if step is not None:
            _integers(source, step, rows)
            return None, np.append(np.diff(step) != 1, True)
        return None, None
    if episode.ndim != 1 or len(episode) != rows:
        raise InputError(
            f"{source}: the episode column has shape {list(episode.shape)} for {rows} rows; it must be [rows]"
        )
    _, first, which = np.unique(episode, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))[which]  # episodes stay in the order they first appear
    if step is None:
        order = np.argsort(rank, kind="stable")
        return order, np.append(np.diff(rank[order]) != 0, True)
    _integers(source, step, rows)
    order = np.lexsort((step, rank))
    same, stride = np.diff(rank[order]) == 0, np.diff(step[order])
    twice = np.flatnonzero(same & (stride == 0))
    if len(twice):
        row = order[twice[0] + 1]
        raise InputError(f"{source}: row {row} repeats step {step[row]} of episode {episode[row]!r}; steps must differ")
    return order, np.append(~same | (stride != 1), True)


def _integers(source: str, step: np.ndarray, rows: int) -> None:
    if step.dtype.kind not in "iu" or step.shape != (rows,):
        raise InputError(
            f"{source}: the step column is {step.dtype} {list(step.shape)}; it must hold one integer per row"
        )


def _in_order(source: str, meaning: str, array: np.ndarray, order: np.ndarray) -> np.ndarray:
    if array.ndim == 0 or len(array) != len(order):
        raise InputError(
            f"{source}: {meaning} has shape {list(array.shape)} for {len(order)} rows; "
            "every array needs one row per step"
        )
    return array if np.array_equal(order, np.arange(len(order))) else array[order]


def _marked(log: Log, last: np.ndarray) -> Log:
    """The log with a time-out wherever an episode stops without a terminal."""
    inside = np.flatnonzero(log.terminals & ~last)
    if len(inside):
        raise InputError(
            f"{log.source}: row {inside[0]} (by episode and step) is terminal but its episode goes on; "
            "start a new episode there"
        )
    timeouts = last & ~log.terminals
    return replace(log, timeouts=timeouts if log.timeouts is None else timeouts | log.timeouts)
