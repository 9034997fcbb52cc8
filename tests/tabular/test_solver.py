import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from worlds import behavior_values, budgeted_values, optimal_values, random_mdp

import bcol
from bcol.errors import InputError
from bcol.tabular.mdp import checked
from bcol.tabular.sweep import lay_out, sweep

solve = bcol.tabular.solve
seeds = st.integers(0, 2**32 - 1)
discounts = st.sampled_from([0.0, 0.5, 0.9])


def sparse(transition):
    return sp.csr_array(transition.reshape(-1, transition.shape[-1]))


@given(seeds, discounts)
def test_budget_zero_is_the_linear_solve_of_the_behaviour(seed, discount):
    p, r, mu = random_mdp(seed)
    sol = solve(p, r, mu, discount=discount, budget=0, tol=1e-9)
    np.testing.assert_allclose(sol.v[0], behavior_values(p, r, mu, discount), atol=1e-9)


@given(seeds)
def test_a_large_budget_is_plain_value_iteration(seed):
    p, r, mu = random_mdp(seed)
    sol = solve(p, r, mu, discount=0.8, budget=150, tol=1e-9)
    np.testing.assert_allclose(sol.v[-1], optimal_values(p, r, 0.8), atol=1e-8)


@given(seeds, discounts, st.booleans())
def test_equals_policy_iteration_over_state_and_budget(seed, discount, as_sparse):
    p, r, mu = random_mdp(seed)
    sol = solve(sparse(p) if as_sparse else p, r, mu, discount=discount, budget=3, tol=1e-9)
    exact = budgeted_values(p, r, mu, discount, budget=3)
    np.testing.assert_allclose(sol.v, exact, atol=1e-9)
    np.testing.assert_allclose(sol.q, r + discount * np.einsum("sat,bt->bsa", p, exact), atol=1e-9)


@given(seeds)
def test_the_decision_is_the_one_the_values_call_for(seed):
    p, r, mu = random_mdp(seed)
    sol = solve(p, r, mu, discount=0.9, budget=3, tol=1e-9)
    gain = sol.q[:-1].max(axis=2) - (mu * sol.q[1:]).sum(axis=2)
    np.testing.assert_array_equal(sol.deviate[1:], gain > 2 * sol.error)
    np.testing.assert_array_equal(sol.action[1:], sol.q[:-1].argmax(axis=2))
    assert not sol.deviate[0].any()
    assert (sol.action[0] == -1).all()


@given(seeds)
def test_the_operator_contracts_by_the_discount(seed):
    p, r, mu = random_mdp(seed)
    random = np.random.default_rng(seed)
    with jax.enable_x64(True):
        blocks = lay_out(*checked(p, r, mu, np.dtype(np.float64))).blocks
        gamma = jnp.asarray(0.9)
        v, w = random.normal(size=(2, 5, 4)) * 10 ** random.uniform(-3, 3)
        apart = np.abs(v - w).max()
        after = np.abs(sweep(jnp.asarray(v), blocks, gamma) - sweep(jnp.asarray(w), blocks, gamma)).max()
    assert after <= 0.9 * apart * (1 + 1e-12)


@given(seeds, discounts)
def test_values_grow_with_the_budget(seed, discount):
    p, r, mu = random_mdp(seed)
    sol = solve(p, r, mu, discount=discount, budget=4)
    slack = 2 * sol.error
    assert (np.diff(sol.q, axis=0) >= -slack).all()
    assert (np.diff(sol.v, axis=0) >= -slack).all()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("tol", [1e-1, 1e-3])
def test_the_reported_error_holds_and_is_not_idle(dtype, tol):
    p, r, mu = random_mdp(7)
    exact = budgeted_values(p, r, mu, 0.9, budget=3)
    sol = solve(p, r, mu, discount=0.9, budget=3, tol=tol, dtype=dtype)
    assert np.abs(sol.v - exact).max() <= sol.error <= tol
    assert sol.v.dtype == dtype
    assert sol.error > tol / 3  # it stopped as soon as it could


def test_an_error_that_float32_cannot_guarantee_is_refused():
    with pytest.raises(InputError, match="finer than float32 can guarantee.*dtype='float64'"):
        solve(*random_mdp(0), 0.99, 1, tol=1e-6, dtype="float32")


def test_states_with_very_different_numbers_of_successors():
    n = 40
    random = np.random.default_rng(3)
    p = np.zeros((n, 2, n))
    for s in range(n):
        for a in range(2):
            successors = random.choice(n, size=random.choice([1, 2, 3, 7, n]), replace=False)
            p[s, a, successors] = random.dirichlet(np.ones(len(successors)))
    r, mu = random.normal(size=(n, 2)), random.dirichlet([1, 1], n)
    dense, other = (solve(x, r, mu, discount=0.9, budget=2, tol=1e-10) for x in (p, sparse(p)))
    np.testing.assert_allclose(other.v, dense.v, atol=1e-9)
    np.testing.assert_allclose(other.q, dense.q, atol=1e-9)
    np.testing.assert_array_equal(other.action, dense.action)
    np.testing.assert_array_equal(other.deviate, dense.deviate)


def test_repeated_and_zero_entries_of_a_sparse_matrix_are_summed():
    p = sp.coo_array(([0.25, 0.75, 0.0, 1.0], ([0, 0, 0, 1], [1, 1, 0, 0])), shape=(2, 2))
    sol = solve(p, [[1.0], [0.0]], [[1.0], [1.0]], discount=0.5, budget=1, tol=1e-12)
    np.testing.assert_allclose(sol.v[0], [4 / 3, 2 / 3], atol=1e-12)


def test_a_thousand_budgets():
    p, r, mu = random_mdp(0)
    sol = solve(p, r, mu, discount=0.9, budget=1000)
    assert sol.v.shape == (1001, 5)
    np.testing.assert_allclose(sol.v[-1], optimal_values(p, r, 0.9), atol=1e-5)


@given(seeds)
def test_a_rollout_never_spends_more_than_it_was_given(seed):
    p, r, mu = random_mdp(seed)
    random = np.random.default_rng(seed)
    sol = solve(p, r, mu, discount=0.9, budget=3)
    policy = sol.policy(seed=seed)
    given_budget = random.integers(0, 4, size=20)
    policy.reset(20, given_budget)
    spent = np.zeros(20, int)
    for _ in range(30):
        decision = policy.act(random.integers(0, 5, size=20))
        spent += decision.deviated
        np.testing.assert_array_equal(decision.budget_left, given_budget - spent)
        assert (decision.budget_left >= 0).all()
        assert ((decision.action >= 0) & (decision.action < 3)).all()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_rolled_out_policy_is_worth_what_was_promised(seed):
    p, r, mu = random_mdp(seed)
    n, discount = 20_000, 0.8
    sol = solve(p, r, mu, discount=discount, budget=3)
    random = np.random.default_rng(seed)
    for budget in range(4):
        policy = sol.policy(seed=seed + 100)  # a stream of its own
        policy.reset(n, budget)
        state, total = np.zeros(n, int), np.zeros(n)
        for t in range(60):
            action = policy.act(state).action
            total += discount**t * r[state, action]
            state = (random.random((n, 1)) > p[state, action].cumsum(axis=1)).sum(axis=1).clip(0, 4)
        standard_error = total.std() / np.sqrt(n)
        assert abs(total.mean() - sol.v[budget, 0]) < 4.5 * standard_error


def test_following_never_does_what_the_behaviour_never_does():
    behavior = np.array([[0.0, 0.5, 0.0, 0.5]])
    sol = solve(np.ones((1, 4, 1)), np.zeros((1, 4)), behavior, budget=1)
    policy = sol.policy()
    policy.reset(5000)
    assert set(policy.act(np.zeros(5000, int)).action) == {1, 3}


class TestBadInput:
    def bad(self, match, **changes):
        p, r, mu = random_mdp(0)
        arguments = {"transition": p, "reward": r, "behavior": mu, "discount": 0.9, "budget": 1} | changes
        with pytest.raises(InputError, match=match) as error:
            inspect.unwrap(solve)(**arguments)  # without the type checks of the test run: users have none
        assert "\n" not in str(error.value)

    def test_rows_that_do_not_sum_to_one(self):
        p, _, mu = random_mdp(0)
        p[2, 1] *= 0.9
        self.bad(r"transition.*\[2, 1\] sums to 0\.9", transition=p)
        self.bad(r"transition.*\[2, 1\] sums to 0\.9", transition=sparse(p))
        mu[3] *= 1.1
        self.bad(r"behavior.*\[3\] sums to 1\.1", behavior=mu)

    def test_negative_probabilities(self):
        p, _, mu = random_mdp(0)
        p[1, 2, 0] = -0.5
        self.bad(r"transition.*\[1, 2, 0\] is -0\.5", transition=p)
        self.bad(r"transition.*\[1, 2, 0\] is -0\.5", transition=sparse(p))
        mu[0, 1] = -0.5
        self.bad(r"behavior.*\[0, 1\] is -0\.5", behavior=mu)

    def test_not_finite(self):
        p, r, mu = random_mdp(0)
        p[1, 2, 0], r[4, 1], mu[2, 2] = np.nan, np.inf, np.nan
        self.bad(r"transition\[1, 2, 0\] is nan", transition=p)
        self.bad(r"transition\[1, 2, 0\] is nan", transition=sparse(p))
        self.bad(r"reward\[4, 1\] is inf", reward=r)
        self.bad(r"behavior\[2, 2\] is nan", behavior=mu)

    def test_shapes(self):
        p, r, mu = random_mdp(0)
        self.bad("transition must have shape", transition=p[:4])
        self.bad(r"transition \(sparse\) must have shape", transition=sparse(p).T)
        self.bad("behavior must have shape", behavior=mu[:, :2])
        self.bad("reward must have shape", reward=r[0])
        self.bad("reward must have shape", reward=np.zeros((0, 3)))
        self.bad("reward must be a rectangular array", reward=[[1.0], [1.0, 2.0]])
        self.bad("reward must hold real numbers", reward=[["a"]])

    @pytest.mark.parametrize("discount", [1.0, -0.1, np.nan, 2, "0.9", None])
    def test_discount(self, discount):
        self.bad(r"discount must lie in \[0, 1\)", discount=discount)

    @pytest.mark.parametrize("budget", [-1, 1.5, 2.0, "3", None, True])
    def test_budget(self, budget):
        self.bad("budget must be a whole number", budget=budget)

    def test_tol_and_dtype(self):
        self.bad("tol must be positive", tol=0.0)
        self.bad("tol must be positive", tol=float("nan"))
        self.bad("dtype must be", dtype="float16")

    def test_policy(self):
        policy = solve(*random_mdp(0), 0.9, 2).policy()
        with pytest.raises(InputError, match="call policy.reset"):
            policy.act(0)
        with pytest.raises(InputError, match=r"budget must lie in 0\.\.2"):
            policy.reset(1, budget=3)
        policy.reset(2)
        with pytest.raises(InputError, match="one per episode"):
            policy.act([0, 1, 2])
        with pytest.raises(InputError, match=r"state must lie in 0\.\.4: got 5"):
            policy.act([0, 5])
