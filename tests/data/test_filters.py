"""Filters do what they say, and say it in the spec."""

import numpy as np
import pytest

import bcol
from bcol.data import TASKS, normalize_states, normalized_score, pair, top_fraction, transform_reward
from bcol.data.tasks import task_of_file
from conftest import rows


def test_top_fraction_keeps_the_best_episodes_whole():
    # returns: 3, 12, 13, 17, 0+... the best half of four episodes
    data = pair(rows("ssTssTsTsT"))
    assert data.episode_return.tolist() == [3, 12, 13, 17]
    best = top_fraction(data, 0.5)
    assert best.reward.tolist() == [6, 7, 8, 9]
    assert best.episode.tolist() == [0, 0, 1, 1]
    assert best.episode_return.tolist() == [13, 17]
    assert best.spec.transformations == ({"name": "top_fraction", "fraction": 0.5},)
    assert len(top_fraction(data, 0.01).episode_return) == 1
    assert len(top_fraction(data, 1.0)) == len(data)


def test_top_fraction_ranks_by_the_whole_return():
    # The dropped last row (reward 2) counts: 0+1+2 beats nothing, but 3 beats it.
    data = pair(rows("ssOT"))
    assert top_fraction(data, 0.5).reward.tolist() == [0, 1]


def test_top_fraction_ignores_episodes_without_rows():
    assert top_fraction(pair(rows("sTO")), 0.5).reward.tolist() == [0, 1]


@pytest.mark.parametrize("fraction", [0, -1, 1.5, float("nan")])
def test_bad_fractions(fraction):
    with pytest.raises(bcol.InputError, match="fraction is"):
        top_fraction(pair(rows("ssT")), fraction)


def test_states_are_normalised_with_the_statistics_in_the_spec():
    data = pair(rows("sssTssT"))
    normal = normalize_states(data)
    mean, std = data.observation.mean(axis=0), data.observation.std(axis=0) + 1e-3
    np.testing.assert_allclose(normal.observation, (data.observation - mean) / std, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(normal.next_observation, (data.next_observation - mean) / std, rtol=1e-5, atol=1e-6)
    stats = normal.spec.normalization
    assert stats is not None
    # A policy that normalises with the spec sees exactly what training saw.
    np.testing.assert_array_equal(
        (data.observation - np.array(stats.mean, np.float32)) / np.array(stats.std, np.float32),
        normal.observation,
    )
    assert normal.spec.transformations == ({"name": "normalize_states", "eps": 1e-3},)
    with pytest.raises(bcol.InputError, match="normalised already"):
        normalize_states(normal)


def test_constant_columns_need_an_epsilon():
    data = pair(rows("ssT", observations=np.ones((3, 1))))
    assert np.isfinite(normalize_states(data).observation).all()
    with pytest.raises(bcol.InputError, match="column 0 is constant"):
        normalize_states(data, eps=0)
    with pytest.raises(bcol.InputError, match="eps is"):
        normalize_states(data, eps=-1)


def test_rewards_and_returns_change_together():
    data = transform_reward(pair(rows("ssOsT")), scale=2, shift=-1)
    assert data.reward.tolist() == [-1, 1, 5, 7]
    assert data.episode_return.tolist() == [2 * 3 - 3, 2 * 7 - 2]
    assert data.spec.transformations == ({"name": "transform_reward", "scale": 2, "shift": -1},)
    for bad in ({"scale": 0.0}, {"shift": float("inf")}):
        with pytest.raises(bcol.InputError, match="must be finite"):
            transform_reward(pair(rows("ssT")), **bad)


def test_filters_are_recorded_in_order():
    data = normalize_states(top_fraction(transform_reward(pair(rows("ssTsT")), shift=-1), 0.5))
    assert [entry["name"] for entry in data.spec.transformations] == [
        "transform_reward",
        "top_fraction",
        "normalize_states",
    ]


def test_scores():
    assert normalized_score("hopper-medium-v2", -20.272305) == 0
    assert normalized_score("Hopper-v4", 3234.3) == 100
    assert normalized_score("halfcheetah-medium-expert-v2", 12135.0) == 100
    assert normalized_score("Walker2d-v4", 1.629008) == 0
    assert normalized_score("bcol/AntMaze-large-v0", 1) == 100
    with pytest.raises(bcol.InputError, match="no reference returns for 'Hopper-v5'"):
        normalized_score("Hopper-v5", 0)


def test_tasks():
    mujoco = [task for task in TASKS.values() if "mujoco_v2" in task.file]
    assert len(mujoco) == 9
    assert all(task.env_id.endswith("-v4") and task.episode_limit == 1000 for task in mujoco)
    assert TASKS["walker2d-medium-replay-v0"].file == "gym_mujoco/walker_mixed.hdf5"
    maze = TASKS["antmaze-medium-play-v2"]
    assert maze.file == "ant_maze_v2/Ant_maze_big-maze_noisy_multistart_True_multigoal_False_sparse_fixed.hdf5"
    assert (maze.reward_shift, maze.episode_limit) == (-1, 1000)
    assert TASKS["antmaze-umaze-diverse-v2"].episode_limit == 700
    assert task_of_file("hopper_medium_replay-v2.hdf5") is TASKS["hopper-medium-replay-v2"]
    assert task_of_file("antmaze-umaze-v2.hdf5") is TASKS["antmaze-umaze-v2"]
    assert task_of_file("logs.hdf5") is None
