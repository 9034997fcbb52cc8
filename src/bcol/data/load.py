"""From a name or a path to transitions: the front door."""

import difflib
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bcol.data.columns import Columns
from bcol.data.d4rl import Progress, read_d4rl
from bcol.data.download import cache_dir, fetch
from bcol.data.filters import transform_reward
from bcol.data.log import Log, with_bounds
from bcol.data.minari import read_minari
from bcol.data.npz import read_npz
from bcol.data.table import read_table
from bcol.data.tasks import FORGED, TASKS, Task, task_of_file
from bcol.data.transitions import Transitions, pair
from bcol.errors import InputError

_HDF5 = (".hdf5", ".h5")
_KNOWN = TASKS | FORGED
_OWN = {".npz": read_npz, ".parquet": read_table, ".csv": read_table}


def load_dataset(
    name_or_path: str | os.PathLike[str],
    *,
    task: str | None = None,
    columns: Columns | None = None,
    action_bounds: tuple[Any, Any] | None = None,
    reward_transform: bool = True,
    cache: str | os.PathLike[str] | None = None,
    mirrors: Sequence[str] = (),
    progress: Progress | None = None,
) -> Transitions:
    """Logged decisions, ready for training.

    Args:
        name_or_path: a D4RL name (`hopper-medium-v2`, downloaded when first used), `forge/hopper-medium` and so on
            (made here when first used), `minari:...`, or a file: D4RL-layout `.hdf5`, own logs as `.npz`,
            `.parquet` or `.csv`.
        task: the task a file belongs to, for its environment, reference returns and reward transform; known
            by itself if the file has the name of a task.
        columns: what the columns of an own log mean.
        action_bounds: (low, high) of the actions, each a number or one per dimension; others are refused.
        reward_transform: apply the task's reward transform (AntMaze: minus 1); it is recorded in the spec.
        cache: where downloads are kept, instead of `BCOL_DATA`.
        mirrors: base addresses to try before D4RL's own.
        progress: told how far reading is.
    """
    log, known = read_log(
        name_or_path,
        task=task,
        columns=columns,
        action_bounds=action_bounds,
        cache=cache,
        mirrors=mirrors,
        progress=progress,
    )
    data = pair(log, known)
    if known is not None and reward_transform and known.reward_shift:
        data = transform_reward(data, shift=known.reward_shift)
    return data


def read_log(
    name_or_path: str | os.PathLike[str],
    *,
    task: str | None = None,
    columns: Columns | None = None,
    action_bounds: tuple[Any, Any] | None = None,
    cache: str | os.PathLike[str] | None = None,
    mirrors: Sequence[str] = (),
    progress: Progress | None = None,
) -> tuple[Log, Task | None]:
    """The rows as logged, and the task they belong to, if known; arguments as for `load_dataset`."""
    name = os.fspath(name_or_path)
    forged = name in FORGED or (name.startswith("forge/") and (cache_dir(cache) / f"{name}.hdf5").is_file())
    known = _task(task) if task is not None else _KNOWN.get(name)
    if known is None and not forged:
        known = task_of_file(Path(name).name)
    suffix = Path(name).suffix.lower()
    if columns is not None and suffix not in _OWN:
        raise InputError(f"columns given, but {name!r} is no own log; they apply to {', '.join(_OWN)} files")
    if name.startswith("minari:"):
        log = read_minari(name.removeprefix("minari:"), progress=progress)
    elif name in TASKS:
        log = replace(read_d4rl(fetch(TASKS[name], cache=cache, mirrors=mirrors), progress), source=name)
    elif forged:
        # The forge is a room below this one: only a name that asks for it goes there.
        from bcol.forge.make import forge

        log = replace(read_d4rl(forge(name, cache=cache, progress=progress), progress), source=name)
    elif suffix in _HDF5:
        log = read_d4rl(name, progress)
    elif suffix in _OWN:
        log = _OWN[suffix](name, columns)
    else:
        raise InputError(f"unknown dataset {name!r}; {_suggestion(name)}")
    if known is None and isinstance(made := log.metadata.get("task"), str):
        known = FORGED.get(made)  # a forged file says what it is
    if action_bounds is not None:
        log = with_bounds(log, action_bounds)
    return log, known


def _task(name: str) -> Task:
    if name not in _KNOWN:
        raise InputError(f"unknown task {name!r}; {_suggestion(name)}")
    return _KNOWN[name]


def _suggestion(name: str) -> str:
    close = difflib.get_close_matches(name, _KNOWN, n=3)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"give a name from `bcol data list`, minari:NAME, or a file ending in {', '.join((*_HDF5, *_OWN))}"
