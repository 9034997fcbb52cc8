"""The budgeted policy of a tabular solution, one step at a time."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from bcol.budget import BudgetCounter
from bcol.errors import InputError


class TabularDecision(NamedTuple):
    """What was decided in each of n episodes.

    Attributes:
        action: the action to take.
        deviated: whether it is a deviation, rather than drawn from the behaviour.
        budget_left: deviations left after it.
        gain: value of deviating minus value of following; -inf where no budget was left.
    """

    action: Int[np.ndarray, " n"]
    deviated: Bool[np.ndarray, " n"]
    budget_left: Int[np.ndarray, " n"]
    gain: Float[np.ndarray, " n"]


class TabularPolicy:
    """Decides for n episodes at once; counts each episode's budget and never overspends.

    Call `reset` at the start of the episodes, then `act` at every step:

        policy = sol.policy(seed=0)
        policy.reset(n=1, budget=2)
        decision = policy.act(state)
    """

    def __init__(
        self,
        behavior: Float[np.ndarray, "S A"],
        keep: Float[np.ndarray, "budgets S"],
        spend: Float[np.ndarray, "budgets S"],
        action: Int[np.ndarray, "budgets S"],
        *,
        margin: float,
        seed: int,
    ):
        """Use `Solution.policy` instead of calling this."""
        self._cumulative = np.cumsum(behavior, axis=1)
        self._keep, self._spend, self._action, self._margin = keep, spend, action, margin
        self._random = np.random.default_rng(seed)
        self._counter = BudgetCounter(0, 0, self.max_budget)

    @property
    def max_budget(self) -> int:
        """B, the largest budget an episode can be given."""
        return len(self._keep) - 1

    def reset(self, n: int = 1, budget: Any = None) -> None:
        """Start `n` episodes with `budget` deviations each: one number or n of them, at most B; by default B."""
        self._counter = BudgetCounter(n, self.max_budget if budget is None else budget, self.max_budget)

    def act(self, state: Any) -> TabularDecision:
        """Decide in the given state of each episode (one index, or n of them)."""
        states = np.atleast_1d(np.asarray(state))
        n_states, n = len(self._cumulative), len(self._counter.left)
        if n == 0:
            raise InputError("no episode has been started: call policy.reset(n) before policy.act(state)")
        if states.shape != (n,) or states.dtype.kind not in "iu":
            raise InputError(f"state must be {n} whole numbers, one per episode: got shape {list(states.shape)}")
        if states.min() < 0 or states.max() >= n_states:
            raise InputError(
                f"state must lie in 0..{n_states - 1}: got {states[(states < 0) | (states >= n_states)][0]}"
            )
        left = self._counter.left
        keep, spend = self._keep[left, states], self._spend[left, states]
        deviated = self._counter.decide(keep, spend, self._margin)
        action = np.where(deviated, self._action[left, states], self._follow(states))
        return TabularDecision(action, deviated, self._counter.left.copy(), spend - keep)

    def _follow(self, states: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        """One behaviour action per state, by inverting its distribution; an action of probability 0 never comes."""
        cumulative = self._cumulative[states]
        uniform = self._random.random(len(states)) * cumulative[:, -1]
        return (cumulative <= uniform[:, None]).sum(axis=1)
