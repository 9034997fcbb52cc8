"""Measure case after case, and keep what was found; what fails becomes a note and loses nothing else."""

import importlib.util
import os
import platform as host
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any

import jax
import jaxlib
import numpy as np

import bcol
from bcol.bench import cases as suite
from bcol.bench.cases import Case
from bcol.bench.measure import (
    ACTION_DIM,
    OBSERVATION_DIM,
    Peer,
    matrix_peak,
    our_step,
    random_data,
    torch_step,
)
from bcol.bench.work import operations
from bcol.fused import platform, resolved
from bcol.train import Device, _on


@dataclass
class Row:
    """What was measured of a case; None where nothing was. Times are per step of one run, rates of all runs."""

    name: str
    settings: str
    runs: int
    agent: dict[str, Any]
    precision: str
    flop_per_step: float
    microseconds: float | None = None
    minutes_per_million: float | None = None
    flop_per_second: float | None = None
    share_of_peak: float | None = None
    torch_eager_microseconds: float | None = None
    torch_compiled_microseconds: float | None = None

    def timed(self, seconds: float, peak: float | None) -> None:
        """Fill in what follows from the seconds that a step of one run takes."""
        self.microseconds = seconds * 1e6
        self.minutes_per_million = seconds * 1e6 / 60
        self.flop_per_second = self.flop_per_step / seconds
        self.share_of_peak = self.flop_per_second / peak if peak else None


@dataclass
class Report:
    """All that was measured, on what, and what went wrong."""

    device: str
    machine: dict[str, Any]
    versions: dict[str, str]
    rows: list[Row] = field(default_factory=list)
    peak_flop_per_second: float | None = None
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and text."""
        return asdict(self)


def bench(
    names: Sequence[str] = (),
    *,
    device: Device | None = None,
    peers: bool = True,
    compile_all: bool = False,
    cases: Sequence[Case] | None = None,
    rows: int | None = None,
    peak_size: int | None = None,
    seconds: float = 0.5,
    rounds: int = 5,
    say: Callable[[str], None] = lambda what: None,
) -> Report:
    """Measure this machine.

    Args:
        names: which cases; by default all.
        device: where; by default a GPU if there is one.
        peers: also time the same updates in PyTorch, if it is installed.
        compile_all: also time compiled PyTorch wherever it is not by default.
        cases: what names are names of; by default what suits the device.
        rows: of random data; by default a million on a GPU.
        peak_size: of the matrices whose product is the peak; by default a large one.
        seconds: each round of a measurement takes about so many.
        rounds: measurements of which the median counts.
        say: hears what is being measured.

    Raises:
        InputError: there is no such case, or no such device.
    """
    with _on(device):
        gpu = platform() == "gpu"
        todo = suite.chosen(cases if cases is not None else suite.GPU if gpu else suite.CPU, names)
        report = Report("gpu" if gpu else "cpu", _machine(), _versions())
        say("the largest matrix product")
        report.peak_flop_per_second = _attempt(report, "peak", matrix_peak, seconds, rounds, peak_size)
        data = random_data(rows or (1_000_000 if gpu else 20_000))
        for case in todo:
            say(f"{case.name}: compiling and timing")
            needs = operations(case.agent, OBSERVATION_DIM, ACTION_DIM)
            precision = resolved(case.agent.precision)
            row = Row(case.name, case.settings, case.runs, case.agent.to_json(), precision, needs)
            report.rows.append(row)
            took = _attempt(report, case.name, our_step, case.agent, case.runs, data, seconds, rounds)
            if took is not None:
                row.timed(took / case.runs, report.peak_flop_per_second)
        # After ours, all of it: a peer that breaks the device breaks no measurement.
        if peers:

            def time(case: Case, how: Peer) -> float:
                return torch_step(case.agent, data, how, seconds, rounds)

            _time_peers(report, todo, compile_all, time, say)
    return report


def _time_peers(
    report: Report,
    cases: Sequence[Case],
    compile_all: bool,
    time: Callable[[Case, Peer], float],
    say: Callable[[str], None],
) -> None:
    if not _has_torch():
        report.notes.append("PyTorch is not installed, so there is nothing to compare with: pip install torch")
        return
    ways: tuple[Peer, ...] = ("eager", "compiled")
    for how in ways:
        for case, row in zip(cases, report.rows, strict=True):
            unasked = how == "eager" or (case.compile and report.device == "gpu")
            if case.has_peer and (unasked or compile_all):
                say(f"{case.name} in PyTorch, {how}")
                took = _attempt(report, f"{case.name}, PyTorch {how}", time, case, how)
                setattr(row, f"torch_{how}_microseconds", took and took * 1e6)


def _attempt(report: Report, what: str, measure: Callable[..., float], *arguments: Any) -> float | None:
    """The measurement; or None, and a note that says in one line why not."""
    try:
        return measure(*arguments)
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        report.notes.append(f"{what}: {type(error).__name__}: {lines[0][:160]}")
        return None


def _has_torch() -> bool:
    return importlib.util.find_spec("torch") is not None


def _machine() -> dict[str, Any]:
    device = jax.devices(platform())[0].device_kind
    return {"device": device, "cores": os.cpu_count(), "system": f"{host.system()} {host.machine()}"}


def _versions() -> dict[str, str]:
    found = {"python": host.python_version(), "bcol": bcol.__version__}
    found |= {"jax": jax.__version__, "jaxlib": jaxlib.__version__, "numpy": np.__version__}
    # By its metadata: importing it takes seconds, and is not needed without peers.
    return found | ({"torch": version("torch")} if _has_torch() else {})
