"""bcol: offline reinforcement learning with a hard budget on deviation."""

from typing import TYPE_CHECKING

from bcol._lazy import export

if TYPE_CHECKING:
    from bcol import agents as agents
    from bcol import budget as budget
    from bcol import data as data
    from bcol import tabular as tabular
    from bcol.agents import BC as BC
    from bcol.agents import BCOLSAC as BCOLSAC
    from bcol.agents import BCOLTD3 as BCOLTD3
    from bcol.agents import CDC as CDC
    from bcol.agents import TD3BC as TD3BC
    from bcol.agents import OfflineSAC as OfflineSAC
    from bcol.agents import OfflineTD3 as OfflineTD3
    from bcol.data.load import load_dataset as load_dataset
    from bcol.data.transitions import Transitions as Transitions
    from bcol.errors import InputError as InputError
    from bcol.evaluate import Scores as Scores
    from bcol.evaluate import evaluate as evaluate
    from bcol.policy import Decision as Decision
    from bcol.policy import Policy as Policy
    from bcol.policy import load_policy as load_policy
    from bcol.runs import Run as Run
    from bcol.train import train as train

__version__ = "0.1.0"

_PUBLIC = {
    "BC": "bcol.agents",
    "BCOLSAC": "bcol.agents",
    "BCOLTD3": "bcol.agents",
    "CDC": "bcol.agents",
    "Decision": "bcol.policy",
    "InputError": "bcol.errors",
    "OfflineSAC": "bcol.agents",
    "OfflineTD3": "bcol.agents",
    "Policy": "bcol.policy",
    "Run": "bcol.runs",
    "Scores": "bcol.evaluate",
    "TD3BC": "bcol.agents",
    "Transitions": "bcol.data.transitions",
    "agents": "bcol.agents",
    "budget": "bcol.budget",
    "data": "bcol.data",
    "evaluate": "bcol.evaluate",
    "load_dataset": "bcol.data.load",
    "load_policy": "bcol.policy",
    "tabular": "bcol.tabular",
    "train": "bcol.train",
}
__all__ = ["__version__", *_PUBLIC]

export(__name__, _PUBLIC)
