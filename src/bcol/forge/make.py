"""Forging: blocks made by all cores, kept one file each until the dataset is whole, then one HDF5 file.

A forge that was killed is continued by the same call: what counts is which blocks are there. The same name, policy,
rows and seed give the same arrays for any number of workers; fewer rows are the first rows of more, segment by segment.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import rich.progress
from rich.console import Console
from safetensors.numpy import load_file, save

import bcol
from bcol.data.d4rl import write_d4rl
from bcol.data.download import cache_dir
from bcol.data.log import make_log
from bcol.data.tasks import FORGED
from bcol.errors import InputError
from bcol.evaluate import make_environment, worker_pool
from bcol.forge.cards import make_card
from bcol.forge.recipes import Plan, Segment, plan
from bcol.forge.rollouts import Block
from bcol.forge.space import Space, space_of
from bcol.runs import RunError, write_atomically, write_json

Progress = Callable[[float], None]
_TOP = ("observations", "actions", "rewards", "terminals", "timeouts", "next_observations")


def forge(
    name: str,
    *,
    env: str | None = None,
    policy: Sequence[str | Path] = (),
    rows: int | None = None,
    seed: int = 0,
    workers: int | None = None,
    out: str | Path | None = None,
    cache: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Path:
    """Make a dataset, unless it has been made.

    Args:
        name: such as `hopper-medium`, with or without `forge/` before it; or any other, for a dataset of your own.
        env: Gymnasium id of the environment, for a dataset of your own.
        policy: files to take policies from, instead of the shipped ones.
        rows: about how many, instead of D4RL's number: only whole episodes are kept, as many as fit.
        seed: of all draws.
        workers: processes; by default one per core. It does not change the data.
        out: the file to write, ending in .hdf5; by default one in the cache.
        cache: where data is kept, instead of `BCOL_DATA`.
        progress: told what part of the rows is there; by default a bar on the terminal.

    Returns:
        The file, in D4RL's layout, with its card inside and beside it (.json).
    """
    path = Path(out) if out is not None else forged_file(name, rows if env is None else None, seed, cache)
    if path.suffix != ".hdf5":
        raise InputError(f"cannot write {path}: give a path ending in .hdf5")
    if path.exists() and out is None and not policy and env is None:
        return path
    workers = os.cpu_count() or 1 if workers is None else workers
    if workers < 1:
        raise InputError(f"workers must be at least 1: got {workers}")
    todo = plan(name, env=env, policy=policy, rows=rows, seed=seed)
    world = make_environment(todo.env, disable_env_checker=True)
    space = space_of(world, todo.env)
    world.close()
    for segment in todo.segments:
        segment.source.check(space)
    about: dict[str, Any] = {"name": f"forge/{todo.name}", "rows": todo.rows, "seed": seed, "bcol": bcol.__version__}
    about |= {} if env is None else {"env": env}
    about |= {"policies": [segment.source.checksum for segment in todo.segments]}
    if path.exists():
        if _about(path.with_suffix(".json")) == about:
            return path
        raise InputError(f"{path} exists already and is another dataset: delete it or choose another --out")
    parts = path.with_name(path.name + ".parts")
    _open_parts(parts, about)
    with ExitStack() as stack:
        _fill(parts, todo, workers, progress or stack.enter_context(_bar(about["name"])))
    _assemble(path, parts, todo, about, space)
    shutil.rmtree(parts)
    return path


def forged_file(name: str, rows: int | None = None, seed: int = 0, cache: Any = None) -> Path:
    """Where a forged dataset is kept."""
    name = name.removeprefix("forge/")
    options = ("" if rows is None else f"-rows{rows}") + ("" if seed == 0 else f"-seed{seed}")
    return cache_dir(cache) / "forge" / f"{name}{options}.hdf5"


@dataclass
class _Stretch:
    """A segment being filled: rows of the blocks that are there, and the blocks that are being made."""

    segment: Segment
    done: dict[int, int] = field(default_factory=dict)
    issued: int = 0

    @property
    def expected(self) -> int:
        """Rows there will be at least, when all blocks that are being made are done."""
        return sum(self.done.values()) + (self.issued - len(self.done)) * self.segment.source.least_rows


def _fill(parts: Path, todo: Plan, workers: int, progress: Progress) -> None:
    """Make every block that is not there yet."""
    stretches = [_Stretch(segment) for segment in todo.segments]
    for s, stretch in enumerate(stretches):
        while _part(parts, s, stretch.issued).exists():
            stretch.done[stretch.issued] = len(load_file(_part(parts, s, stretch.issued))["rewards"])
            stretch.issued += 1

    def tick() -> None:
        progress(sum(min(sum(x.done.values()), x.segment.rows) for x in stretches) / todo.rows)

    tick()
    if all(stretch.expected >= stretch.segment.rows for stretch in stretches):
        return
    pending: dict[Future[Block], tuple[int, int]] = {}
    with worker_pool(workers) as pool:
        while True:
            for s, stretch in enumerate(stretches):
                # A few more than there are workers, so that none waits while this process writes.
                while stretch.expected < stretch.segment.rows and len(pending) < 2 * workers:
                    number, stretch.issued = stretch.issued, stretch.issued + 1
                    if _part(parts, s, number).exists():  # made before an interruption, out of turn
                        stretch.done[number] = len(load_file(_part(parts, s, number))["rewards"])
                    else:
                        pending[pool.submit(stretch.segment.source.block, number)] = s, number
            if not pending:
                return
            for future in wait(pending, return_when=FIRST_COMPLETED).done:
                s, number = pending.pop(future)
                try:
                    block = future.result()
                except (InputError, RunError):
                    raise
                except BrokenProcessPool:
                    raise RunError("a process that played episodes died: it crashed, or memory ran out") from None
                except Exception as error:
                    first = (str(error).splitlines() or [""])[0]
                    raise RunError(f"the environment {todo.env} failed: {type(error).__name__}: {first}") from error
                write_atomically(_part(parts, s, number), save(block))
                stretches[s].done[number] = len(block["rewards"])
            tick()


def _assemble(path: Path, parts: Path, todo: Plan, about: dict[str, Any], space: Space) -> None:
    """One file of all blocks, in their order, cut after the last episode that fits into the number of rows."""
    task = FORGED.get(about["name"])
    ends_at_terminal = task is None or task.ends_at_terminal
    columns: dict[str, list[np.ndarray]] = {}
    for s, segment in enumerate(todo.segments):
        have, number = 0, 0
        while have < segment.rows:
            block = load_file(_part(parts, s, number))
            ends = np.flatnonzero(block["timeouts"] | (block["terminals"] & ends_at_terminal)) + 1
            fit = ends[ends <= segment.rows - have]
            take = int(fit[-1]) if len(fit) else int(ends[0]) if have == 0 else 0
            for name, array in block.items():
                columns.setdefault(name, []).append(array[:take])
            have, number = have + take, number + 1
            if take < len(block["rewards"]):
                break
    whole = {name: np.concatenate(arrays) for name, arrays in columns.items()}
    infos = {name.removeprefix("infos/"): array for name, array in whole.items() if name.startswith("infos/")}
    top: dict[str, Any] = {name: whole[name] for name in _TOP if name in whole}
    bounds = space.low, space.high
    log = make_log(**top, source=about["name"], infos=infos, action_bounds=bounds, env_id=todo.env)
    card = make_card(log, todo, about)
    metadata = {"task": about["name"], "recipe": todo.recipe, "seed": about["seed"], "card": json.dumps(card)}
    metadata |= {"policy_checksum": " ".join(about["policies"])}
    write_json(path.with_suffix(".json"), card)
    write_d4rl(path, replace(log, metadata=metadata))


@contextmanager
def _bar(name: str) -> Iterator[Progress]:
    """A progress bar with the time left, gone when done."""
    console = Console(stderr=True)
    with rich.progress.Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(f"Forging {name}", total=1.0)
        yield lambda part: bar.update(task, completed=part)


def _open_parts(parts: Path, about: dict[str, Any]) -> None:
    """The folder of blocks, emptied first if it is another dataset's."""
    try:
        parts.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write to {parts} ({error.strerror}): set BCOL_DATA to a folder you own") from None
    # Blocks do not depend on how many rows are asked for.
    kept = {name: value for name, value in about.items() if name != "rows"}
    if _about(parts / "about.json") != kept:
        for old in parts.iterdir():
            old.unlink()
        write_json(parts / "about.json", kept)


def _about(path: Path) -> dict[str, Any] | None:
    try:
        held = json.loads(path.read_text())
        return held.get("about", held)
    except (OSError, ValueError, AttributeError):
        return None


def _part(parts: Path, segment: int, number: int) -> Path:
    return parts / f"{segment:03d}_{number:06d}.safetensors"
