"""The ant that is told where to walk: what it sees, what it is paid for, when it ends."""

import numpy as np
import pytest

from bcol.envs.ant import upside_down
from bcol.envs.directions import AntDirectionsEnv
from bcol.errors import InputError
from bcol.evaluate import make_environment


def test_it_sees_what_goal_reaching_policies_see() -> None:
    env = AntDirectionsEnv()
    seen, _ = env.reset(seed=0)
    assert seen.shape == env.observation_space.shape == (29,)
    np.testing.assert_array_equal(seen[:13], env.data.qpos[2:])
    np.testing.assert_array_equal(seen[13:27], env.data.qvel)
    assert np.hypot(*seen[27:]) == pytest.approx(10)


def test_the_reward_is_the_speed_along_the_direction_it_saw() -> None:
    env, random = AntDirectionsEnv(), np.random.default_rng(0)
    seen, _ = env.reset(seed=1)
    directions = set()
    for _ in range(600):
        before, commanded = env.data.qpos[:2].copy(), seen[27:] / 10
        seen, reward, fallen, cut, info = env.step(random.uniform(-1, 1, 8))
        np.testing.assert_allclose(info["direction"], commanded)
        assert reward == pytest.approx(float((env.data.qpos[:2] - before) @ commanded) / 0.1)
        assert not cut
        assert fallen == upside_down(env.data.qpos)
        directions.add(tuple(commanded))
        if fallen:
            seen, _ = env.reset()
    assert 3 < len(directions) < 25


def test_lying_on_the_back_ends_the_episode() -> None:
    env = AntDirectionsEnv()
    env.reset(seed=0)
    qpos = env.data.qpos.copy()
    qpos[3:7] = [0, 1, 0, 0]
    env.set_state(qpos, env.data.qvel)
    assert env.step(np.zeros(8))[2]


def test_episodes_depend_on_the_seed_alone() -> None:
    seen = []
    for _ in range(2):
        env = make_environment("bcol/AntDirections-v0")
        env.reset(seed=3)
        seen.append(np.stack([env.step(np.full(8, 0.3))[0] for _ in range(50)]))
    np.testing.assert_array_equal(*seen)
    assert env.spec.max_episode_steps == 1000


def test_bad_actions() -> None:
    env = AntDirectionsEnv()
    env.reset(seed=0)
    with pytest.raises(InputError, match="8 finite numbers"):
        env.step(np.full(8, np.nan))
