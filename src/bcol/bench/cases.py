"""What is measured: agents with the paper's budgets on a GPU, and on a CPU what one would train there."""

from collections.abc import Sequence
from dataclasses import dataclass

from bcol.agents import BCOLSAC, BCOLTD3, TD3BC, Agent
from bcol.agents.budgeted import Budgeted
from bcol.errors import InputError


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    name: str
    agent: Agent
    runs: int = 1
    """trained side by side"""
    compile: bool = False
    """whether its PyTorch peer is compiled unasked, which takes half a minute"""

    @property
    def settings(self) -> str:
        """What its name does not say."""
        parts = []
        if isinstance(self.agent, Budgeted):
            parts.append(f"omega={self.agent.omega:g}")
            if self.agent.budget_samples is not None:
                parts.append(f"{self.agent.budget_samples} budgets")
        if self.runs > 1:
            parts.append(f"{self.runs} runs")
        return ", ".join(parts)

    @property
    def has_peer(self) -> bool:
        """The PyTorch updates are of one run and of all budgets."""
        return self.runs == 1 and getattr(self.agent, "budget_samples", None) is None


GPU = (
    Case("bcol-sac-10", BCOLSAC(budget=10), compile=True),
    Case("bcol-sac-10-x12", BCOLSAC(budget=10), runs=12),
    Case("bcol-sac-50", BCOLSAC(budget=50, omega=0.0)),
    Case("bcol-sac-100", BCOLSAC(budget=100)),
    Case("bcol-td3-50", BCOLTD3(budget=50)),
    Case("td3-bc", TD3BC(), compile=True),
)
CPU = (
    Case("bcol-sac-1", BCOLSAC(budget=1)),
    Case("bcol-sac-10-k4", BCOLSAC(budget=10, budget_samples=4)),
    Case("td3-bc", TD3BC()),
)


def chosen(cases: Sequence[Case], names: Sequence[str]) -> list[Case]:
    """The cases of these names, all if there are none; InputError if one is unknown."""
    known = {case.name: case for case in cases}
    for name in names:
        if name not in known:
            raise InputError(f"cases here are {', '.join(known)}: got {name!r}")
    return [case for case in cases if case.name in names or not names]
