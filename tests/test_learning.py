"""Learning itself: the critics approach the exact solution, and the junction is learned.

Checked by breaking each once: with the budget shift left out, the sign of the penalty turned or the select rule
inverted, at least one of these fails.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bcol
from bcol.data.log import make_log
from bcol.data.transitions import pair
from bcol.demo import BUDGETED, walk
from bcol.envs.junction import log
from bcol.nets import all_heads, features, mix
from bcol.program import Programs

BUDGET, DISCOUNT = 3, 0.8
# Four states in a row. "Right" leads on and "left" back; only the last one pays. The behaviour nearly always goes left.
N_STATES, RIGHT = 4, 0.05
NEXT = np.array([[max(s - 1, 0), min(s + 1, N_STATES - 1)] for s in range(N_STATES)])
REWARD = (np.arange(N_STATES) == N_STATES - 1).astype(float)


def exact():
    transition = np.zeros((N_STATES, 2, N_STATES))
    np.put_along_axis(transition, NEXT[..., None], 1, axis=2)
    behavior = np.tile([1 - RIGHT, RIGHT], (N_STATES, 1))
    return bcol.tabular.solve(transition, np.tile(REWARD[:, None], 2), behavior, DISCOUNT, BUDGET)


def sampled_fixed_point():
    """Q of the backup that agents sample: the maximum is taken after mu's action is drawn, not before.

    V(s, b) = E_{a'~mu} max(max_a Q(s, b-1, a), Q(s, b, a')): a little more than the exact V, by Jensen.
    """
    q = np.zeros((BUDGET + 1, N_STATES, 2))
    for _ in range(200):
        best = np.concatenate([np.full((1, N_STATES), -np.inf), q[:-1].max(axis=2)])
        v = (np.maximum(q, best[..., None]) * [1 - RIGHT, RIGHT]).sum(axis=2)
        q = REWARD[:, None] + DISCOUNT * v[:, NEXT]
    return q


def logged(episodes=2000, length=4):
    """The same MDP with one-hot observations and a continuous action whose sign decides, from random starts."""
    random = np.random.default_rng(0)
    states, signs = [], []
    for _ in range(episodes):
        state = random.integers(N_STATES)
        for _ in range(length):
            states.append(state)
            signs.append(int(random.random() < RIGHT))
            state = NEXT[state, signs[-1]]
    states, signs = np.array(states), np.array(signs)
    actions = (np.where(signs, 1, -1) * random.uniform(0.1, 1, len(signs)))[:, None]
    timeouts = np.arange(len(states)) % length == length - 1
    return pair(
        make_log(np.eye(N_STATES)[states], actions, REWARD[states], 0 * signs, timeouts, action_bounds=(-1.0, 1.0))
    )


@pytest.mark.parametrize("agent_class", [bcol.BCOLSAC, bcol.BCOLTD3])
def test_the_learned_critic_approaches_the_exact_solution(agent_class):
    agent = agent_class(
        budget=BUDGET,
        discount=DISCOUNT,
        omega=1.0,
        hidden=(32, 32),
        batch_size=256,
        critic_lr=2e-3,
        actor_lr=1e-3,
        tau=0.02,
        normalize_states=False,
    )
    program = Programs([agent], [0], logged(), 4000)
    program.advance(4000, lambda step: None)
    critic = jax.tree.map(jnp.asarray, program.networks(0)["critic"])
    actions = jnp.tile(jnp.array([-0.5, 0.5])[None, :, None], (N_STATES, 1, 1))
    learned = mix(all_heads(critic, features(critic, jnp.eye(N_STATES), actions)), 0.5)  # [s, action, b]
    learned = np.moveaxis(np.asarray(learned), 2, 0)
    solution, sampled = exact(), sampled_fixed_point()
    scale = solution.q.max() - solution.q.min()
    assert np.abs(learned - solution.q).max() < 0.10 * scale
    assert np.abs(learned - sampled).max() < 0.08 * scale
    # A budget more or less, or its shift left out, would show: neighbouring rows differ by more than the tolerance.
    assert (np.abs(np.diff(solution.q, axis=0)).max(axis=(1, 2)) > 0.11 * scale).all()


@pytest.fixture(scope="module")
def junction(tmp_path_factory):
    run = bcol.train(log(), BUDGETED, steps=5000, out=tmp_path_factory.mktemp("junction") / "run", eval_every=0)
    return bcol.load_policy(run.path)


def test_one_deviation_at_the_junction_halves_the_way(junction):
    cloned, budgeted = walk("cloned", junction, 0), walk("budgeted", junction, 1)
    assert cloned.reached.mean() >= 0.9
    assert cloned.steps > 35
    assert budgeted.reached.mean() >= 0.8
    assert budgeted.steps < 0.75 * cloned.steps
    where = np.concatenate([path[:-1][spent] for path, spent in zip(budgeted.paths, budgeted.deviated, strict=True)])
    # Where the habits cross, not as soon as there is budget (the start is at y = -0.75).
    assert np.abs(np.median(where[:, 0])) < 0.3
    assert 0 < np.median(where[:, 1]) < 1
    assert max(spent.sum() for spent in budgeted.deviated) <= 1


def test_what_is_promised_at_the_junction_is_delivered(junction):
    """V(start, 1) beside the discounted return: a budget that is not spent in the backup promises far too much."""
    walks = walk("budgeted", junction, 1)
    delivered = np.mean([-0.1 * (1 - 0.97 ** len(spent)) / (1 - 0.97) for spent in walks.deviated])
    junction.reset()
    first = junction.act(walks.paths[0][0])
    assert max(first.follow_value, first.deviate_value) == pytest.approx(delivered, abs=0.35)
