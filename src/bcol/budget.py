"""The idea, as pure functions of arrays: what a budget of deviations does to values and decisions.

A *deviation* is a decision not drawn from the behaviour policy mu. With b deviations left,

    V(s, b) = max( max_a Q(s, b-1, a),  E_{a~mu} Q(s, b, a) )   for b > 0
    V(s, 0) = E_{a~mu} Q(s, 0, a)

where Q(s, b, a) is the value of doing a in s when b deviations are left *after* a. The tabular solver, the
agents and the deployed policy all take their budget arithmetic from here.

Arrays over all budgets have the budget as the leading axis: row b belongs to b deviations left. The functions
use only the array API, so NumPy and JAX arrays, jit and vmap all work.
"""

from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from bcol.errors import InputError

Heads = Literal["remaining", "literal"]
"""How actor heads are numbered: by the deviations that remain after acting, or by those left before it."""


def after_deviating(best: Float[Any, "B *state"]) -> Float[Any, "B+1 *state"]:
    """The value of deviating with b = 0..B deviations left, from the values of what is left afterwards.

    Args:
        best: row j is max_a Q(s, j, a), the value of the best action that leaves j = 0..B-1 deviations.

    Returns:
        Row b is max_a Q(s, b-1, a); row 0 is -inf, since nothing is left to spend.
    """
    xp = best.__array_namespace__()
    return xp.concat([xp.full((1, *best.shape[1:]), -xp.inf, dtype=best.dtype), best])


def backup(follow: Float[Any, "*shape"], deviate: Float[Any, "*shape"]) -> Float[Any, "*shape"]:
    """The value of deciding well, V(s, b): the better of following mu and deviating.

    Args:
        follow: E_{a~mu} Q(s, b, a), which keeps the budget.
        deviate: max_a Q(s, b-1, a), which spends one; -inf where b = 0 (see `after_deviating`).
    """
    return follow.__array_namespace__().maximum(deviate, follow)


def select(
    follow: Float[Any, "*shape"],
    deviate: Float[Any, "*shape"],
    budget_left: Int[Any, "*shape"],
    margin: float = 0.0,
) -> Bool[Any, "*shape"]:
    """Whether to deviate: only if budget is left and deviating is worth more than following plus `margin`.

    Args:
        follow: the value of following mu with b deviations left.
        deviate: the value of deviating, after which b-1 are left.
        budget_left: b, before this decision.
        margin: the least gain worth a unit of budget; a tie follows.
    """
    return (deviate > follow + margin) & (budget_left > 0)


def spend(budget_left: Int[Any, "*shape"], deviated: Bool[Any, "*shape"]) -> Int[Any, "*shape"]:
    """The deviations left after a decision: b' = b - 1{deviated}."""
    return budget_left - deviated.astype(budget_left.dtype)


def critic_head(budget_left: Any) -> Any:
    """The critic head that judges a deviation made with `budget_left` deviations left: b - 1."""
    return budget_left - 1


def actor_head(budget_left: Any, heads: Heads = "remaining") -> Any:
    """The actor head that proposes a deviation when `budget_left` >= 1 deviations are left.

    Actor head j is trained to maximise Q(s, j, .). A deviation made with b left is judged by Q(s, b-1, .), so
    the head that fits is b-1 ("remaining"). The paper's Select asks head b instead ("literal").
    """
    return critic_head(budget_left) if heads == "remaining" else budget_left


def richer_head(head: Int[Any, " k"], budget: int) -> Int[Any, " k"]:
    """The critic head with one deviation more, which must not value an action less; head B has only itself."""
    return head.__array_namespace__().minimum(head + 1, budget)


class BudgetCounter:
    """Counts the deviations left in each of n episodes, and never lets one spend more than it was given.

    Attributes:
        left: deviations left, one entry per episode.
    """

    left: Int[np.ndarray, " n"]

    def __init__(self, n: int, budget: Any, limit: int):
        """Give each of `n` episodes a budget (one number, or one each) of 0..limit deviations, or InputError."""
        given = np.asarray(budget)
        if given.dtype.kind not in "iu" or given.ndim > 1 or (given.ndim == 1 and given.shape != (n,)):
            raise InputError(f"budget must be a whole number, or {n} of them (one per episode): got {budget!r}")
        if given.size and (given.min() < 0 or given.max() > limit):
            raise InputError(f"budget must lie in 0..{limit}, the budget this was made for: got {budget!r}")
        self.left = np.broadcast_to(given, (n,)).astype(np.int64)

    def decide(
        self, follow: Float[np.ndarray, " n"], deviate: Float[np.ndarray, " n"], margin: float = 0.0
    ) -> Bool[np.ndarray, " n"]:
        """Select for each episode (see `select`), book what is spent, and return who deviates."""
        deviated = select(follow, deviate, self.left, margin)
        self.left = spend(self.left, deviated)
        return deviated
