"""`bcol data list | info | check | convert | download`, one class each: its fields are the flags."""

import json
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.box import SIMPLE
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from bcol.data.check import check
from bcol.data.columns import Columns
from bcol.data.d4rl import Tree, write_d4rl
from bcol.data.describe import describe, draw
from bcol.data.download import cache_dir, cached_file, fetch
from bcol.data.load import read_log
from bcol.data.log import Log, with_timeouts
from bcol.data.minari import write_minari
from bcol.data.tasks import FORGED, TASKS, Task
from bcol.errors import InputError


@dataclass(frozen=True)
class List:
    """The datasets known by name, and which of them are on this machine.

    examples:
        bcol data list
        bcol data list --contains antmaze
    """

    contains: str = ""
    """Only names with this in them."""

    def run(self) -> None:
        """Print the table."""
        rows = []
        for task in (*TASKS.values(), *FORGED.values()):
            low, high = task.reference
            file = cache_dir() / task.file if task.name in FORGED else cached_file(task)
            rows.append((task.name, task.env_id, f"{low:.0f} .. {high:.0f}", "yes" if file.exists() else ""))
        for file in sorted((cache_dir() / "forge").glob("*.hdf5")):
            if f"forge/{file.stem}" not in FORGED:
                rows.append((f"forge/{file.stem}", _recorded_in(file), "", "yes"))
        table = Table(box=SIMPLE, padding=(0, 1, 0, 0))
        for title in ("name", "environment", "score 0 .. 100", "here"):
            table.add_column(title, no_wrap=True)
        for row in rows:
            if self.contains in row[0]:
                table.add_row(*row)
        if not table.row_count:
            raise InputError(f"no name contains {self.contains!r}; `bcol data list` shows them all")
        Console().print(table)


def _recorded_in(file: Path) -> str:
    try:
        return str(Tree(file, "metadata").get("env_id", ""))
    except InputError:
        return "damaged"


@dataclass(frozen=True)
class _Reads:
    data: tyro.conf.Positional[str]
    """A name (`bcol data list`), minari:NAME, or a file: .hdf5, .npz, .parquet, .csv."""
    task: str | None = None
    """The task a file belongs to, if its name does not say."""
    columns: Columns = field(default_factory=Columns)
    """What the columns of an own log mean, where they do not have the usual names."""
    action_bounds: tuple[float, float] | None = None
    """The lowest and the highest that an action may be, if the data does not say."""

    def read(self) -> tuple[Log, Task | None]:
        """The rows, with a progress bar while they are read."""
        columns = None if self.columns == Columns() else self.columns
        with _progress(f"Reading {self.data}") as progress:
            return read_log(
                self.data,
                task=self.task,
                columns=columns,
                action_bounds=self.action_bounds,
                progress=progress,
            )


@dataclass(frozen=True)
class Info(_Reads):
    """What is in a dataset: rows, episodes, returns, lengths, ends, actions, rewards.

    examples:
        bcol data info hopper-medium-v2
        bcol data info logs.hdf5 --task hopper-medium-v2 --histogram returns.png
        bcol data info logs.csv --observation "sensor_*" --action torque
    """

    histogram: Path | None = None
    """Also draw the spread of returns and lengths into this picture, and for AntMaze where the rows lie."""

    def run(self) -> None:
        """Print the table, and draw the picture if one is asked for."""
        log, task = self.read()
        about = describe(log, task)
        table = Table("", "min", "mean", "max")
        for name, values in (("return", about.returns), ("score", about.scores), ("length", about.lengths)):
            if values is not None:
                table.add_row(name, *(f"{value:.4g}" for value in (values.min(), values.mean(), values.max())))
        console = Console()
        console.print(self.data, style="bold", markup=False, highlight=False, soft_wrap=True)
        console.print(table)
        rest = [
            ("rows", f"{about.rows:,}"),
            ("episodes", f"{len(about.returns):,}"),
            ("terminals", f"{about.terminals:,}"),
            ("time-outs", f"{about.timeouts:,}"),
            ("rewarded steps", f"{about.rewarded:,}"),
            ("observations", f"{about.observation_dim}-d"),
            ("actions", about.actions),
            ("task", "unknown" if task is None else f"{task.name}, scored in {task.env_id}"),
            ("recorded in", log.env_id or ""),
            ("also inside", ", ".join([*(f"infos/{n}" for n in log.infos), *(f"metadata/{n}" for n in log.metadata)])),
        ]
        if "card" in log.metadata:
            from bcol.forge.cards import lines

            rest += lines(json.loads(log.metadata["card"]))
        if self.histogram is not None:
            draw(log, about, task, self.data, self.histogram)
            rest.append(("picture", str(self.histogram)))
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(justify="right", min_width=15)
        grid.add_column(overflow="fold")
        for name, value in rest:
            if value:
                grid.add_row(name, Text(value))
        console.print(grid, highlight=False)


@dataclass(frozen=True)
class Check(_Reads):
    """Every problem of a dataset, with rows, and what it would do to training. Exit code 1 if there is any.

    examples:
        bcol data check antmaze-umaze-v0
        bcol data check logs.npz --rows 50
    """

    rows: int = 10
    """How many row numbers to print for each problem."""

    def run(self) -> None:
        """Print the problems."""
        problems = check(*self.read())
        console = Console()
        colors = {"error": "red", "warning": "yellow", "note": "dim"}
        for problem in problems:
            console.print(f"[{colors[problem.level]}]{problem.level}[/]: {problem.what}", highlight=False)
            console.print(f"    {problem.effect}", highlight=False)
            if problem.rows:
                shown = ", ".join(str(row) for row in problem.rows[: self.rows])
                more = len(problem.rows) - self.rows
                console.print(f"    rows {shown}{f' and {more:,} more' if more > 0 else ''}", highlight=False)
        serious = sum(problem.level != "note" for problem in problems)
        console.print(
            "no problems" if not serious else f"{serious} problem{'s' if serious > 1 else ''}",
            highlight=False,
        )
        if serious:
            raise SystemExit(1)


@dataclass(frozen=True)
class Convert(_Reads):
    """Write a dataset as D4RL HDF5 or as a Minari dataset; every time-out is marked in what is written.

    examples:
        bcol data convert logs.parquet logs.hdf5
        bcol data convert hopper-medium-v2 minari:hopper/d4rl-medium-v2
    """

    out: Annotated[str, tyro.conf.Positional] = tyro.MISSING
    """Where to: a file ending in .hdf5, or minari:NAME."""

    def run(self) -> None:
        """Read, write, and say what was written."""
        to_minari = self.out.startswith("minari:")
        if not to_minari and Path(self.out).suffix != ".hdf5":
            raise InputError(f"cannot write {self.out!r}; give a path ending in .hdf5, or minari:NAME")
        if not to_minari and Path(self.out).exists():
            raise InputError(f"{self.out} exists already; delete it or choose another name")
        log, task = self.read()
        with _progress(f"Writing {self.out}"):
            if to_minari:
                write_minari(self.out.removeprefix("minari:"), log, task=task)
            else:
                write_d4rl(self.out, with_timeouts(log, task))
        Console().print(f"wrote {len(log):,} rows to {self.out}", highlight=False, markup=False)


@dataclass(frozen=True)
class Download:
    """Fetch D4RL files into the cache: resumed if interrupted, checksums recorded and verified.

    examples:
        bcol data download hopper-medium-v2 walker2d-medium-v2
        bcol data download antmaze-umaze-v2 --mirror http://localhost:8000/offline_rl
    """

    names: tyro.conf.Positional[tuple[str, ...]]
    """Names from `bcol data list`."""
    mirror: tuple[str, ...] = ()
    """Base addresses to try before D4RL's own; `BCOL_MIRRORS` may hold more."""
    cache: Path | None = None
    """Where to keep the files, instead of `BCOL_DATA` or the user's cache folder."""

    def run(self) -> None:
        """Fetch them one after the other."""
        for name in self.names:
            if name not in TASKS:
                raise InputError(f"unknown task {name!r}; `bcol data list` shows the names")
        if not self.names:
            raise InputError("nothing to download; give names from `bcol data list`")
        for name in self.names:
            path = fetch(TASKS[name], cache=self.cache, mirrors=self.mirror)
            Console().print(f"{name}  {path}", highlight=False, markup=False, soft_wrap=True)


@contextmanager
def _progress(what: str) -> Any:
    """A bar with the time left, gone when done."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task(what, total=None)
        advance: Callable[[float], None] = lambda part: progress.update(bar, completed=part, total=1.0)  # noqa: E731
        yield advance
