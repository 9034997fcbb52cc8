"""`bcol bench`: its fields are the flags."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console

from bcol.errors import InputError
from bcol.runs import RunError


@dataclass(frozen=True)
class Bench:
    """How fast training is on this machine: time per gradient step, share of the matrix peak, PyTorch beside it.

    About two minutes. On a GPU the cases are bcol-sac-10, bcol-sac-10-x12 (12 runs side by side), bcol-sac-50,
    bcol-sac-100, bcol-td3-50 and td3-bc; on a CPU bcol-sac-1, bcol-sac-10-k4 (4 budgets a step) and td3-bc. The
    number is the budget.

    examples:
      bcol bench
      bcol bench --cases bcol-sac-10 td3-bc --no-peers
      bcol bench --device gpu --compile-all --output bench.json
    """

    cases: tuple[str, ...] = ()
    """which cases; by default all"""
    device: Literal["cpu", "gpu"] | None = None
    """where; by default a GPU if there is one"""
    peers: bool = True
    """also time the same updates in PyTorch, where it is installed"""
    compile_all: bool = False
    """also time torch.compile in all cases: half a minute each"""
    output: Path | None = None
    """also write machine, versions and all numbers to this JSON file"""

    def run(self) -> None:
        """Measure, print the table, and save the numbers."""
        from bcol.bench.report import bench
        from bcol.bench.table import show

        if self.output is not None and self.output.suffix != ".json":
            raise InputError(f"output must end in .json: got {str(self.output)!r}")
        with Console(stderr=True).status("starting") as status:
            report = bench(
                self.cases,
                device=self.device,
                peers=self.peers,
                compile_all=self.compile_all,
                say=lambda what: status.update(f"measuring {what}"),
            )
        show(report, Console())
        if self.output is not None:
            self.output.parent.mkdir(parents=True, exist_ok=True)
            self.output.write_text(json.dumps(report.to_json(), indent=1) + "\n")
            Console().print(f"Numbers: {self.output}", soft_wrap=True, highlight=False, markup=False)
        if all(row.microseconds is None for row in report.rows):
            raise RunError("nothing could be measured: the lines above say why")
