import inspect

import numpy as np
import pytest

from bcol.errors import InputError
from bcol.tabular import Episode, estimate, solve

LOG = [
    Episode([0, 1, 2], [0, 1], [1.0, 5.0]),
    Episode([0, 0, 1, 2], [0, 1, 1], [3.0, -1.0, 5.0]),
]


def test_counts_by_hand():
    mdp = estimate(LOG)
    p = mdp.transition.toarray().reshape(4, 2, 4)  # three logged states and the unknown one
    np.testing.assert_array_equal(mdp.counts, [[2, 1], [0, 2], [0, 0], [0, 0]])
    np.testing.assert_allclose(p[0, 0], [0.5, 0.5, 0, 0])
    np.testing.assert_allclose(p[0, 1], [0, 1, 0, 0])
    np.testing.assert_allclose(p[1, 1], [0, 0, 1, 0])
    np.testing.assert_allclose(mdp.reward[:2], [[2.0, -1.0], [-1.0, 5.0]])
    np.testing.assert_allclose(mdp.behavior, [[2 / 3, 1 / 3], [0, 1], [0.5, 0.5], [0.5, 0.5]])
    np.testing.assert_allclose(mdp.initial, [1, 0, 0, 0])


def test_the_end_of_an_episode_pays_nothing_for_ever():
    mdp = estimate(LOG)
    sol = solve(mdp.transition, mdp.reward, mdp.behavior, budget=2)
    np.testing.assert_allclose(sol.v[:, 2], 0, atol=1e-6)


@pytest.mark.parametrize(("unvisited", "worth"), [("pessimistic", -1.0), ("optimistic", 5.0)])
def test_unvisited_decisions_lead_to_the_unknown(unvisited, worth):
    mdp = estimate(LOG, unvisited=unvisited)
    np.testing.assert_array_equal(np.argwhere(mdp.unvisited), [[1, 0]])
    assert mdp.unknown == 3
    sol = solve(mdp.transition, mdp.reward, mdp.behavior, discount=0.5, budget=1)
    np.testing.assert_allclose(sol.v[:, 3], worth / (1 - 0.5), atol=1e-6)
    np.testing.assert_allclose(sol.q[:, 1, 0], worth / (1 - 0.5), atol=1e-6)
    assert bool(sol.deviate[1, 1]) is (unvisited == "optimistic")


def test_unvisited_decisions_can_be_refused():
    with pytest.raises(InputError, match=r"state 1, action 0 was never logged \(1 such pairs\)"):
        estimate(LOG, unvisited="refuse")


def test_a_complete_log_adds_no_state():
    mdp = estimate([([0, 1], [0], [1.0]), ([0, 1], [1], [2.0])], unvisited="refuse")
    assert mdp.unknown is None
    assert mdp.reward.shape == (2, 2)


def test_a_log_cut_off_does_not_end_the_episode():
    mdp = estimate([Episode([0, 1], [0], [1.0], terminal=False)])
    np.testing.assert_array_equal(mdp.unvisited, [[False], [True], [False]])


def test_it_recovers_the_world_that_made_the_log():
    random = np.random.default_rng(0)
    p, mu = random.dirichlet(np.ones(3), (3, 2)), random.dirichlet(np.ones(2), 3)
    states, actions = [0], []
    for _ in range(40_000):
        actions.append(random.choice(2, p=mu[states[-1]]))
        states.append(random.choice(3, p=p[states[-1], actions[-1]]))
    mdp = estimate([Episode(np.array(states), np.array(actions), np.zeros(40_000), terminal=False)])
    np.testing.assert_allclose(mdp.transition.toarray().reshape(3, 2, 3), p, atol=0.02)
    np.testing.assert_allclose(mdp.behavior, mu, atol=0.02)


@pytest.mark.parametrize(
    ("episodes", "options", "message"),
    [
        ([], {}, "episodes is empty"),
        ([([0], [], [])], {}, r"episodes\[0\] must have T >= 1 actions"),
        ([([0, 1], [0, 1], [1.0, 1.0])], {}, r"T\+1 states: got 2, 2 and 2"),
        ([([0, 1], [0], [1.0, 1.0])], {}, "T rewards"),
        ([([0, -1], [0], [1.0])], {}, r"episodes\[0\]\.states must be whole numbers"),
        ([([0, 1], [0.5], [1.0])], {}, r"episodes\[0\]\.actions must be whole numbers"),
        ([LOG[0], ([0, 1, 2], [0, 0], [1.0, np.nan])], {}, r"episodes\[1\]\.rewards.*step 1 is"),
        ([([0, 1], [0], ["x"])], {}, r"episodes\[0\]\.rewards must be finite"),
        ([([0, 1], [0])], {}, r"episodes\[0\] must be an Episode or a tuple"),
        ([None], {}, r"episodes\[0\] must be an Episode or a tuple"),
        (
            [([0, 1], [0], [1.0]), ([1, 2], [0], [1.0])],
            {},
            "state 1 ends episode 0 but is acted in elsewhere",
        ),
        (LOG, {"n_states": 2}, "n_states must exceed every index in the log: got 2, but 2 was logged"),
        (LOG, {"n_actions": 1}, "n_actions must exceed"),
        (LOG, {"unvisited": "zeros"}, "unvisited must be"),
    ],
)
def test_bad_logs(episodes, options, message):
    with pytest.raises(InputError, match=message) as error:
        inspect.unwrap(estimate)(episodes, **options)
    assert "\n" not in str(error.value)
