import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bcol.budget import BudgetCounter, actor_head, after_deviating, backup, critic_head, select, spend
from bcol.errors import InputError

FOLLOW = np.array([[1.0, 5.0], [2.0, 6.0], [3.0, 7.0]])  # rows: b = 0, 1, 2
BEST = np.array([[4.0, 5.5], [2.5, 6.5], [9.0, 9.0]])
VALUE = np.array([[1.0, 5.0], [4.0, 6.0], [3.0, 7.0]])  # by hand: max(BEST[b-1], FOLLOW[b])


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit, lambda f: jax.vmap(f, in_axes=1, out_axes=1)])
def test_backup_against_hand_computed_values(transform):
    value = transform(lambda f, b: backup(f, after_deviating(b[:-1])))(jnp.asarray(FOLLOW), jnp.asarray(BEST))
    np.testing.assert_array_equal(value, VALUE)


def test_backup_of_numpy_stays_numpy():
    value = backup(FOLLOW, after_deviating(BEST[:-1]))
    assert isinstance(value, np.ndarray)
    np.testing.assert_array_equal(value, VALUE)


def test_nothing_is_left_to_spend_at_budget_zero():
    assert np.all(after_deviating(BEST[:-1])[0] == -np.inf)
    np.testing.assert_array_equal(backup(FOLLOW[:1], after_deviating(BEST[:0])), FOLLOW[:1])


def test_select_follows_on_ties_at_zero_budget_and_within_the_margin():
    follow, deviate = np.array([1.0, 1.0, 1.0, 1.0]), np.array([2.0, 1.0, 2.0, 1.2])
    left = np.array([1, 1, 0, 5])
    np.testing.assert_array_equal(select(follow, deviate, left), [True, False, False, True])
    np.testing.assert_array_equal(select(follow, deviate, left, margin=0.5), [True, False, False, False])


def test_spend_counts_down():
    np.testing.assert_array_equal(spend(np.array([3, 3]), np.array([True, False])), [2, 3])


def test_heads():
    left = np.array([1, 2, 3])
    np.testing.assert_array_equal(critic_head(left), [0, 1, 2])
    np.testing.assert_array_equal(actor_head(left, "remaining"), [0, 1, 2])
    np.testing.assert_array_equal(actor_head(left, "literal"), [1, 2, 3])


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=5),
    st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=12, max_size=12),
)
def test_counter_never_overspends_whatever_the_values(budgets, gains):
    counter = BudgetCounter(len(budgets), budgets, limit=4)
    spent = np.zeros(len(budgets), int)
    for gain in gains:
        spent += counter.decide(np.zeros(len(budgets)), np.full(len(budgets), gain))
        assert np.all(counter.left >= 0)
    np.testing.assert_array_equal(counter.left, budgets - spent)


@pytest.mark.parametrize("budget", [-1, 5, 1.0, [1, 2, 3], [1, -1], "two", True])
def test_counter_refuses_a_bad_budget(budget):
    with pytest.raises(InputError, match="budget must"):
        BudgetCounter(2, budget, limit=4)
