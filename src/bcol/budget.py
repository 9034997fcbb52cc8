"""The idea, as pure functions of arrays: what a budget of deviations does to values and decisions.

A *deviation* is a decision not drawn from the behaviour policy mu. With b deviations left,

    V(s, b) = max( max_a Q(s, b-1, a),  E_{a~mu} Q(s, b, a) )   for b > 0
    V(s, 0) = E_{a~mu} Q(s, 0, a)

where Q(s, b, a) is the value of doing a in s when b deviations are left *after* a. The tabular solver, the
agents and the deployed policy all take their budget arithmetic from here.

Functions that see every budget at once have it as the leading axis: row b belongs to budget b. They use only
the array API, so NumPy and JAX arrays, jit and vmap all work.
"""

from typing import Any, Literal

from jaxtyping import Bool, Float, Int

Heads = Literal["remaining", "literal"]
"""How actor heads are numbered: by the deviations that remain after acting, or by those left before."""


def deviation_gain(
    follow: Float[Any, "budgets *state"], deviate: Float[Any, "budgets *state"]
) -> Float[Any, "budgets-1 *state"]:
    """What deviating is worth more than following, for b = 1..B: `deviate[b-1] - follow[b]`.

    Args:
        follow: `follow[b]` is E_{a~mu} Q(s, b, a), the value of following mu with b deviations left.
        deviate: `deviate[j]` is max_a Q(s, j, a), the value of the best action that leaves j deviations.

    Returns:
        Row b-1 is the gain of deviating with b deviations left.
    """
    return deviate[:-1] - follow[1:]


def backup(
    follow: Float[Any, "budgets *state"], deviate: Float[Any, "budgets *state"]
) -> Float[Any, "budgets *state"]:
    """The value of deciding well: V(s, b) = max(deviate[b-1], follow[b]) for b > 0, and follow[0] for b = 0.

    Args:
        follow: `follow[b]` is E_{a~mu} Q(s, b, a).
        deviate: `deviate[j]` is max_a Q(s, j, a); the last row is never used.
    """
    xp = follow.__array_namespace__()
    return xp.concat([follow[:1], xp.maximum(deviate[:-1], follow[1:])])


def select(
    follow: Float[Any, "*batch"], deviate: Float[Any, "*batch"], budget_left: Int[Any, "*batch"]
) -> Bool[Any, "*batch"]:
    """Whether to deviate now: only if it is worth strictly more than following and budget is left.

    Args:
        follow: the value of following mu, which keeps the budget.
        deviate: the value of deviating, which leaves one deviation fewer.
        budget_left: deviations left before this decision.
    """
    return (deviate > follow) & (budget_left > 0)


def spend(budget_left: Int[Any, "*batch"], deviated: Bool[Any, "*batch"]) -> Int[Any, "*batch"]:
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
