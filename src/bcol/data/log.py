"""Logged rows exactly as a file has them: what every reader returns and every writer takes.

A `Log` may still hold NaNs, unmarked time-outs or actions out of bounds: `check` wants to see them all. Only
what has no meaning at all (missing arrays, ragged lengths, wrong dtypes) is refused while a `Log` is made;
`pair` (in `transitions`) refuses the rest.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Int32

from bcol.data.arrays import actions as cast_actions
from bcol.data.arrays import column, flags, floats, matrix
from bcol.data.tasks import Task
from bcol.errors import InputError

# Blocks of rows that comparisons work through, so that their temporaries stay small beside the data.
_BLOCK = 1 << 16


@dataclass(frozen=True, eq=False)
class Log:
    """The rows of a log in the order they were written, in float32.

    Attributes:
        observations: what was seen before acting.
        actions: what was done; integers [rows] if the actions are discrete.
        rewards: what it gave.
        terminals: the world ended here, so there is no future to value.
        timeouts: the recording stopped here, but the world went on; None if the file does not say.
        next_observations: what was seen after acting; None if the file does not say.
        source: where the rows came from, for messages and specs.
        action_low: declared lower bounds of the actions, if any were declared.
        action_high: declared upper bounds.
        num_actions: declared number of discrete actions.
        env_id: the Gymnasium id of the environment, if the file says.
        infos: whatever else was recorded per row, read when asked for.
        metadata: whatever else was recorded once, read when asked for.
    """

    observations: Float32[np.ndarray, "rows obs"]
    actions: Float32[np.ndarray, "rows act"] | Int32[np.ndarray, " rows"]
    rewards: Float32[np.ndarray, " rows"]
    terminals: Bool[np.ndarray, " rows"]
    timeouts: Bool[np.ndarray, " rows"] | None = None
    next_observations: Float32[np.ndarray, "rows obs"] | None = None
    source: str = "memory"
    action_low: Float32[np.ndarray, " act"] | None = None
    action_high: Float32[np.ndarray, " act"] | None = None
    num_actions: int | None = None
    env_id: str | None = None
    # Not Mapping[str, Any]: checking that at run time would open the file.
    infos: Mapping = field(default_factory=dict)
    metadata: Mapping = field(default_factory=dict)

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.rewards)

    @property
    def discrete(self) -> bool:
        """Whether the actions are integers."""
        return self.actions.ndim == 1


def make_log(
    observations: Any,
    actions: Any,
    rewards: Any,
    terminals: Any,
    timeouts: Any = None,
    next_observations: Any = None,
    *,
    source: str = "memory",
    action_bounds: tuple[Any, Any] | None = None,
    **more: Any,
) -> Log:
    """A `Log` from any arrays that mean one, or an `InputError` that says which of them does not.

    Args:
        observations: [rows, dims], any real dtype whose values float32 can hold.
        actions: [rows, dims] floats, or [rows] integers for discrete actions.
        rewards: [rows] or [rows, 1].
        terminals: [rows] or [rows, 1], booleans or zeros and ones.
        timeouts: like `terminals`.
        next_observations: like `observations`.
        source: a name for messages.
        action_bounds: (low, high), each a number or one per action dimension.
        more: other fields of `Log`.
    """
    obs = matrix(source, "observations", observations)
    acts = cast_actions(source, actions)
    after = None if next_observations is None else matrix(source, "next_observations", next_observations)
    columns = {
        "observations": obs,
        "actions": acts,
        "rewards": floats(source, "rewards", column(source, "rewards", rewards)),
        "terminals": flags(source, "terminals", column(source, "terminals", terminals)),
        "timeouts": None if timeouts is None else flags(source, "timeouts", column(source, "timeouts", timeouts)),
        "next_observations": after,
    }
    for name, array in columns.items():
        if array is not None and len(array) != len(obs):
            raise InputError(
                f"{source}: {name} has {len(array)} rows and observations has {len(obs)}; "
                "every array needs one row per step"
            )
    if len(obs) == 0:
        raise InputError(f"{source}: has no rows; record at least one step")
    if after is not None and after.shape[1] != obs.shape[1]:
        raise InputError(
            f"{source}: next_observations has {after.shape[1]} columns and observations has {obs.shape[1]}; "
            "they must agree"
        )
    log = Log(**columns, source=source, **more)  # type: ignore[arg-type]
    return log if action_bounds is None else with_bounds(log, action_bounds)


def with_bounds(log: Log, bounds: tuple[Any, Any]) -> Log:
    """The log with declared action bounds (low, high), each a number or one per action dimension."""
    if log.discrete:
        raise InputError(f"{log.source}: action_bounds given, but the actions are discrete; leave the bounds out")
    dims = log.actions.shape[1:]
    try:
        low, high = (np.broadcast_to(np.asarray(bound, np.float32), dims).copy() for bound in bounds)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{log.source}: action_bounds must be (low, high), each one number or {dims[0]} of them"
        ) from error
    if not (low < high).all() or not np.isfinite([low, high]).all():
        raise InputError(f"{log.source}: action_bounds must be finite and have low < high in every dimension")
    return replace(log, action_low=low, action_high=high)


def breaks(log: Log) -> Bool[np.ndarray, " rows"] | None:
    """Rows after which the next row is seen not to follow; None if the log holds no evidence either way.

    The evidence is `next_observations`, or what AntMaze files hold instead: the simulator's state after the
    step (`infos/qpos`, `infos/qvel`), which is the next observation. The last row counts as a break.
    """
    after = log.next_observations
    if after is None:
        after = _state_after(log)
        if after is None:
            return None
    found = np.zeros(len(log), dtype=bool)
    found[-1] = True
    for start in range(0, len(log) - 1, _BLOCK):
        stop = min(start + _BLOCK, len(log) - 1)
        here, there = after[start:stop], log.observations[start + 1 : stop + 1]
        # Numbers that differ are few, so finding their rows is cheaper than asking every row.
        rows = np.unique(np.flatnonzero(here.reshape(-1) != there.reshape(-1)) // here.shape[1])
        if len(rows):
            # Equal but for rounding is the same state: files mix float64 and float32.
            with np.errstate(invalid="ignore", over="ignore"):
                near = np.abs(here[rows] - there[rows]) <= 1e-4 * (1 + np.abs(there[rows]))
            found[start + rows[~near.all(axis=1)]] = True
    if log.next_observations is None and found.mean() > 0.1:
        # Then qpos and qvel are not what follows here (other files store the state before the step).
        return None
    return found


def episode_ends(log: Log, task: Task | None = None) -> Bool[np.ndarray, " rows"]:
    """The last row of every episode: a terminal, a time-out, a seen break, or the end of the log.

    A task may say that recording went on after terminals; and where the log shows nothing of time-outs, its
    episodes end at the task's limit.
    """
    ends = log.terminals.copy() if task is None or task.ends_at_terminal else np.zeros(len(log), dtype=bool)
    seen = breaks(log)
    if log.timeouts is not None:
        ends |= log.timeouts
    if seen is not None:
        ends |= seen
    ends[-1] = True
    if log.timeouts is None and seen is None and task is not None:
        ends |= steps_since_start(ends) % task.episode_limit == task.episode_limit - 1
    return ends


def with_timeouts(log: Log, task: Task | None = None) -> Log:
    """The log with every end but terminals marked as a time-out, for readers that look for no breaks."""
    ends = episode_ends(log, task)
    timeouts = ends & ~log.terminals if task is None or task.ends_at_terminal else ends
    return replace(log, timeouts=timeouts if log.timeouts is None else timeouts | log.timeouts)


def steps_since_start(ends: Bool[np.ndarray, " rows"]) -> Int32[np.ndarray, " rows"]:
    """How many rows of the same episode stand before each row."""
    rows = np.arange(len(ends), dtype=np.int32)
    starts = np.concatenate([[True], ends[:-1]])
    return rows - np.maximum.accumulate(np.where(starts, rows, np.int32(0)))


def bad_values(log: Log) -> Iterator[tuple[str, np.ndarray]]:
    """What no training can use: each kind of it, with the rows that have it."""
    for name in ("observations", "actions", "rewards", "next_observations"):
        array = getattr(log, name)
        if array is None or array.dtype != np.float32:
            continue
        rows = _not_finite(array)
        if len(rows):
            yield f"{name} holds NaN, inf or a number too large for float32", rows
    if log.discrete:
        above = log.actions >= log.num_actions if log.num_actions is not None else np.zeros(len(log), dtype=bool)
        rows = np.flatnonzero((log.actions < 0) | above)
        if len(rows):
            yield f"actions outside 0..{'n-1' if log.num_actions is None else log.num_actions - 1}", rows
    elif log.action_low is not None and log.action_high is not None:
        rows = _outside(log.actions, log.action_low, log.action_high)
        if len(rows):
            yield "actions outside the declared bounds", rows


def _not_finite(array: np.ndarray) -> np.ndarray:
    """Rows with a NaN or an infinity; a finite sum clears a clean array without temporaries."""
    with np.errstate(all="ignore"):
        if np.isfinite(array.sum()):
            return np.empty(0, dtype=int)
    return np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(axis=1))


def _outside(actions: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    # Simulators clip in float64; what rounding to float32 adds is not worth an error.
    low, high = low - 1e-5, high + 1e-5
    if actions.min() >= low.max() and actions.max() <= high.min():
        return np.empty(0, dtype=int)
    return np.flatnonzero(((actions < low) | (actions > high)).any(axis=1))


def _state_after(log: Log) -> Float32[np.ndarray, "rows obs"] | None:
    if "qpos" not in log.infos or "qvel" not in log.infos:
        return None
    parts = [np.asarray(log.infos[name]) for name in ("qpos", "qvel")]
    if any(part.ndim != 2 or len(part) != len(log) or part.dtype.kind != "f" for part in parts):
        return None
    state = np.concatenate(parts, axis=1, dtype=np.float32, casting="same_kind")
    return state if state.shape == log.observations.shape else None
