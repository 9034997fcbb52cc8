"""The exact world: finite MDPs, the solver for every budget, the empirical MDP of a log, the grid world."""

from typing import TYPE_CHECKING

from bcol._lazy import export

if TYPE_CHECKING:
    from bcol.tabular.estimate import Episode as Episode
    from bcol.tabular.estimate import Estimate as Estimate
    from bcol.tabular.estimate import estimate as estimate
    from bcol.tabular.mdp import MDP as MDP
    from bcol.tabular.policy import TabularDecision as TabularDecision
    from bcol.tabular.policy import TabularPolicy as TabularPolicy
    from bcol.tabular.solver import Solution as Solution
    from bcol.tabular.solver import solve as solve

__all__ = ["MDP", "Episode", "Estimate", "Solution", "TabularDecision", "TabularPolicy", "estimate", "solve"]

export(
    __name__,
    {
        "MDP": "bcol.tabular.mdp",
        "Episode": "bcol.tabular.estimate",
        "Estimate": "bcol.tabular.estimate",
        "Solution": "bcol.tabular.solver",
        "TabularDecision": "bcol.tabular.policy",
        "TabularPolicy": "bcol.tabular.policy",
        "estimate": "bcol.tabular.estimate",
        "solve": "bcol.tabular.solver",
    },
)
