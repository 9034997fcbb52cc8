"""The exact solution of a finite MDP for every budget at once, with a guaranteed error."""

import math
import sys
import time
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpy.typing import ArrayLike
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from bcol.budget import after_deviating, select
from bcol.errors import InputError
from bcol.tabular.mdp import check_budget, check_discount, checked
from bcol.tabular.policy import TabularPolicy
from bcol.tabular.sweep import Layout, follow_and_best, lay_out, over_states, sweep

_SECONDS_PER_DISPATCH = 0.25
_SECONDS_BEFORE_PROGRESS = 2.0


@dataclass(frozen=True)
class Solution:
    """The fixed point of the counterfactual-budgeting Bellman operator.

    `q`, `deviate` and `action` are computed from `v` when first asked for: with a large budget `q` can be many
    times larger than `v`.

    Attributes:
        v: V(s, b), the value of state s with b deviations left.
        behavior: mu(a|s).
        discount: gamma.
        budget: B.
        error: no entry of `v` or `q` is further than this from the exact value; rounding is counted in.
        sweeps: applications of the operator that were needed.
    """

    v: Float[np.ndarray, "budgets S"]
    behavior: Float[np.ndarray, "S A"]
    discount: float
    budget: int
    error: float
    sweeps: int
    _layout: Layout

    @cached_property
    def q(self) -> Float[np.ndarray, "budgets S A"]:
        """Q(s, b, a) = r(s, a) + gamma E_{s'} V(s', b): do a now, with b deviations left afterwards."""
        return np.moveaxis(self._per_state(lambda q, behavior: q), 2, 0)

    @property
    def deviate(self) -> Bool[np.ndarray, "budgets S"]:
        """Whether to deviate in s with b left; False in row 0.

        True only if the gain exceeds twice `error`: a smaller one may be rounding, and budget is not spent on it.
        """
        keep, spend = self._decision[:2]
        budget_left = np.broadcast_to(np.arange(self.budget + 1)[:, None], keep.shape)
        return select(keep, spend, budget_left, margin=self.margin)

    @property
    def action(self) -> Int[np.ndarray, "budgets S"]:
        """The best counterfactual action in s with b left, argmax_a Q(s, b-1, a); -1 in row 0, where none is left."""
        return self._decision[2]

    @property
    def margin(self) -> float:
        """The smallest gain of deviating over following that `error` cannot explain."""
        return 2 * self.error

    def policy(self, seed: int = 0) -> TabularPolicy:
        """The budgeted policy, ready to step: see `TabularPolicy`. `seed` draws its behaviour actions."""
        keep, spend, action = self._decision
        return TabularPolicy(self.behavior, keep, spend, action, margin=self.margin, seed=seed)

    @cached_property
    def _decision(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The value of following, the value of deviating and the action that deviates, each [budget+1, S]."""

        def options(q: Float[Array, "A budgets"], behavior: Float[Array, " A"]) -> tuple[Array, ...]:
            follow, best = follow_and_best(q, behavior)
            greedy = jnp.argmax(q, axis=0).astype(jnp.int32)
            return follow, after_deviating(best[:-1]), jnp.concatenate([-jnp.ones_like(greedy[:1]), greedy[:-1]])

        keep, spend, action = self._per_state(options)
        return keep.T, spend.T, action.T

    def _per_state(self, function: Any) -> Any:
        """`function(q, behavior)` of every state, with the states in the user's order."""
        with jax.enable_x64(self.v.dtype == np.float64):
            order = self._layout.order
            v = jnp.asarray(self.v.T[order])
            mapped = jax.jit(partial(over_states, function))(
                v, self._layout.blocks, jnp.asarray(self.discount, v.dtype)
            )
            return jax.tree.map(lambda x: _in_users_order(x, order), mapped)


def solve(
    transition: Any,
    reward: ArrayLike,
    behavior: ArrayLike,
    discount: float = 0.9,
    budget: int = 3,
    *,
    tol: float = 1e-6,
    dtype: Literal["float64", "float32"] = "float64",
    progress: bool = True,
) -> Solution:
    """Solve a finite MDP for every budget 0..B of deviations from its behaviour.

    Iterates the operator (see `bcol.budget`) on all budgets at once. It contracts by gamma, so after a sweep that
    changed no value by more than d the exact solution is within (gamma d + rho) / (1 - gamma), where rho bounds
    the rounding of one sweep. The iteration stops when that bound is below `tol`.

    Args:
        transition: P(s'|s, a), dense [S, A, S], or scipy.sparse [S*A, S] with row s*A + a.
        reward: r(s, a), [S, A].
        behavior: mu(a|s), [S, A].
        discount: gamma, in [0, 1).
        budget: B, the most deviations per episode.
        tol: the largest error allowed in any value, in units of reward.
        dtype: float32 halves time and memory where its rounding leaves room for `tol`.
        progress: show a progress bar on a terminal once a solve takes longer than two seconds.

    Raises:
        InputError: the arrays describe no MDP, or `tol` is finer than `dtype` can guarantee.
    """
    discount, budget = check_discount(discount), check_budget(budget)
    if dtype not in ("float64", "float32"):
        raise InputError(f"dtype must be 'float64' or 'float32': got {dtype!r}")
    if not tol > 0:
        raise InputError(f"tol must be positive: got {tol!r}")
    real = np.dtype(dtype)
    p, r, mu = checked(transition, reward, behavior, real)
    with jax.enable_x64(real == np.float64):
        layout = lay_out(p, r, mu)
        rounding = _rounding(layout, float(np.abs(r).max()), discount, real)
        if rounding >= tol * (1 - discount):
            raise InputError(
                f"tol={tol:g} is finer than {dtype} can guarantee here: use tol > {rounding / (1 - discount):.2g}"
                + (" or dtype='float64'" if dtype == "float32" else "")
            )
        # residual <= target makes (gamma * residual + rounding) / (1 - gamma) <= tol
        target = (tol * (1 - discount) - rounding) / max(discount, 1e-300)
        v = jnp.zeros((len(r), budget + 1), real)
        v, residual, sweeps = _iterate(v, layout, discount, target, progress)
        error = (discount * residual + rounding) / (1 - discount)
        values = _in_users_order(v, layout.order).T
    return Solution(values, mu, discount, budget, error, sweeps, layout)


def _rounding(layout: Layout, largest_reward: float, discount: float, real: np.dtype) -> float:
    """The most that rounding can change one value in one sweep.

    A sum of n products is off by at most about n units of roundoff times the sum of their sizes; the operator is
    one such sum over successors inside one over actions, with a handful of roundings (stored probabilities, the
    discount, the reward) around them. Values never exceed the largest reward over 1 - gamma.
    """
    terms = max(b.probability.shape[2] for b in layout.blocks) + layout.blocks[0].reward.shape[1] + 8
    unit_roundoff = float(np.finfo(real).eps) / 2
    return terms * unit_roundoff * largest_reward / (1 - discount)


@partial(jax.jit, donate_argnums=0)
def _advance(v: Array, blocks: Any, discount: Array, target: Array, limit: Array) -> tuple[Array, Array, Array]:
    """Sweep until nothing changes by more than `target`, at most `limit` times."""

    def unfinished(state: Any) -> Array:
        _, residual, done = state
        return (residual > target) & (done < limit)

    def step(state: Any) -> Any:
        v, _, done = state
        new = sweep(v, blocks, discount)
        return new, jnp.abs(new - v).max(), done + 1

    return jax.lax.while_loop(unfinished, step, (v, jnp.asarray(jnp.inf, v.dtype), jnp.asarray(0)))


def _iterate(v: Array, layout: Layout, discount: float, target: float, progress: bool) -> tuple[Array, float, int]:
    """Dispatch sweeps in pieces of about a quarter of a second, so that progress can be shown."""
    gamma, threshold = jnp.asarray(discount, v.dtype), jnp.asarray(target, v.dtype)
    residual, sweeps, limit, first_residual = math.inf, 0, 1, math.inf
    start = time.monotonic()
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:.0f}%"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not (progress and sys.stderr.isatty())) as bar:
        task = bar.add_task("solving", total=1.0, visible=False)
        while residual > target:
            began = time.monotonic()
            v, changed, done = _advance(v, layout.blocks, gamma, threshold, limit)
            residual, sweeps = float(changed), sweeps + int(done)
            first_residual = min(first_residual, residual)
            took = time.monotonic() - began
            if took < _SECONDS_PER_DISPATCH / 2:
                limit *= 2
            if residual > 0 and first_residual > target:
                fraction = math.log(first_residual / residual) / math.log(first_residual / target)
                visible = time.monotonic() - start > _SECONDS_BEFORE_PROGRESS
                bar.update(task, completed=fraction, visible=visible, description=f"solving, sweep {sweeps}")
    return v, residual, sweeps


def _in_users_order(x: Array, order: Int[np.ndarray, " S"]) -> np.ndarray:
    values = np.asarray(x)
    if np.array_equal(order, np.arange(len(order))):
        return values
    placed = np.empty_like(values)
    placed[order] = values
    return placed
