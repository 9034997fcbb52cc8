"""Finite decision problems with a known behaviour: the arrays `solve` takes, and the checks they must pass."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float
from numpy.typing import ArrayLike

from bcol.errors import InputError

# Probabilities typed by hand or stored as float32 miss one by about this much; they are rescaled to it.
_SUM_TOLERANCE = 1e-5


@dataclass(frozen=True)
class MDP:
    """A finite MDP and the behaviour that was logged in it.

    Attributes:
        transition: P(s'|s, a), dense [S, A, S], or scipy.sparse [S*A, S] with row s*A + a.
        reward: r(s, a), [S, A].
        behavior: mu(a|s), [S, A].
        initial: P_0(s), [S].
    """

    transition: Any
    reward: Float[np.ndarray, "S A"]
    behavior: Float[np.ndarray, "S A"]
    initial: Float[np.ndarray, " S"]


def checked(
    transition: Any, reward: ArrayLike, behavior: ArrayLike, dtype: np.dtype
) -> tuple[Any, np.ndarray, np.ndarray]:
    """The same arrays, of one dtype and with rows that sum to one; InputError if they describe no MDP."""
    rewards = _real_array(reward, "reward", dtype)
    if rewards.ndim != 2 or 0 in rewards.shape:
        raise InputError(f"reward must have shape [states, actions], both at least 1: got {list(rewards.shape)}")
    n_states, n_actions = rewards.shape
    mu = _real_array(behavior, "behavior", dtype)
    _require_shape(mu, (n_states, n_actions), "behavior")
    if sp.issparse(transition):
        p = sp.csr_array(transition, dtype=dtype, copy=True)
        _require_shape(p, (n_states * n_actions, n_states), "transition (sparse)")
        # The same successor stored twice is one successor; a zero is none.
        p.sum_duplicates()
        p.eliminate_zeros()
    else:
        p = _real_array(transition, "transition", dtype)
        _require_shape(p, (n_states, n_actions, n_states), "transition")
    return _distribution(p, "transition", n_actions), rewards, _distribution(mu, "behavior", n_actions)


def check_discount(discount: Any) -> float:
    """The discount as a float in [0, 1), or InputError."""
    if not isinstance(discount, int | float | np.number) or not 0 <= discount < 1:
        raise InputError(f"discount must lie in [0, 1): got {discount!r}")
    return float(discount)


def check_budget(budget: Any) -> int:
    """The budget as a whole number that is not negative, or InputError."""
    if isinstance(budget, bool) or not isinstance(budget, int | np.integer) or budget < 0:
        raise InputError(f"budget must be a whole number, 0 or more: got {budget!r}")
    return int(budget)


def _real_array(values: ArrayLike, name: str, dtype: np.dtype) -> np.ndarray:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InputError(f"{name} must be a rectangular array of numbers: {error}") from None
    if array.dtype.kind not in "biuf":
        raise InputError(f"{name} must hold real numbers: its dtype is {array.dtype}")
    array = array.astype(dtype)
    if not np.isfinite(array).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise InputError(f"{name} must be finite: {name}{list(where)} is {array[where]}")
    return array


def _require_shape(array: Any, shape: tuple[int, ...], name: str) -> None:
    if array.shape != shape:
        raise InputError(
            f"{name} must have shape {list(shape)} to match reward [states, actions]: got {list(array.shape)}"
        )


def _distribution(p: Any, name: str, n_actions: int) -> Any:
    """Rows along the last axis, checked to be probabilities and rescaled to sum to exactly one."""
    values = p.data if sp.issparse(p) else p
    if not np.isfinite(values).all() or (values < 0).any():
        at = np.argwhere(~np.isfinite(values) | (values < 0))[0]
        index = _sparse_index(p, int(at[0]), n_actions) if sp.issparse(p) else [int(i) for i in at]
        raise InputError(
            f"{name} must hold probabilities, finite and not negative: {name}{index} is {values[tuple(at)]}"
        )
    sums = np.asarray(p.sum(axis=-1, dtype=np.float64))
    wrong = np.argwhere(np.abs(sums - 1) > _SUM_TOLERANCE)
    if len(wrong):
        row = [int(i) for i in wrong[0]]
        index = [row[0] // n_actions, row[0] % n_actions] if sp.issparse(p) else row
        raise InputError(f"{name} must sum to one in every row: {name}{index} sums to {sums[tuple(row)]:.6g}")
    if sp.issparse(p):
        p.data /= np.repeat(sums, np.diff(p.indptr)).astype(p.dtype)
        return p
    return p / sums[..., None].astype(p.dtype)


def _sparse_index(p: sp.csr_array, position: int, n_actions: int) -> list[int]:
    row = int(np.searchsorted(p.indptr, position, side="right")) - 1
    return [row // n_actions, row % n_actions, int(p.indices[position])]
