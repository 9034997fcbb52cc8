"""Minari datasets: what Minari's own collector records, and what we write."""

from typing import Any

import gymnasium
import minari
import numpy as np
import pytest

import bcol
from bcol.data import TASKS, pair, read_minari, write_minari
from conftest import assert_same, rows

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))


def collect(env_id, name, episodes, **options):
    """Record with Minari's DataCollector, and the same episodes by hand."""
    env = minari.DataCollector(gymnasium.make(env_id, **options))
    env.action_space.seed(1)
    recorded = []
    for seed in range(episodes):
        observation, _ = env.reset(seed=seed)
        episode, done = [], False
        while not done:
            action = env.action_space.sample()
            after, reward, terminated, truncated, _ = env.step(action)
            episode.append((observation, action, reward, after, terminated, truncated))
            observation, done = after, terminated or truncated
        recorded.append(episode)
    env.create_dataset(name, algorithm_name="random", author="test", author_email="x", code_permalink="x")
    env.close()
    return recorded


@pytest.mark.parametrize(("env_id", "limit"), [("Hopper-v4", 16), ("InvertedPendulum-v4", 7)])
def test_recorded_episodes_load_as_recorded(env_id, limit):
    recorded = collect(env_id, "test/random-v0", 8, max_episode_steps=limit)
    data = bcol.load_dataset("minari:test/random-v0")
    row = 0
    ends = set()
    for number, episode in enumerate(recorded):
        for step, (observation, action, reward, after, terminated, truncated) in enumerate(episode):
            ends |= {name for name, flag in (("terminated", terminated), ("truncated", truncated)) if flag}
            if truncated and not terminated:
                continue
            np.testing.assert_array_equal(data.observation[row], observation.astype(np.float32))
            np.testing.assert_array_equal(data.action[row], action)
            np.testing.assert_array_equal(data.next_observation[row], after.astype(np.float32))
            assert data.reward[row] == np.float32(reward)
            assert data.mask[row] == 1 - terminated
            assert data.episode[row] == number
            if not terminated:
                np.testing.assert_array_equal(data.next_action[row], episode[step + 1][1])
            row += 1
    assert row == len(data)
    assert ends == {"terminated", "truncated"}
    assert data.spec.env_id == env_id
    space: Any = gymnasium.make(env_id).action_space
    assert data.spec.action_high == tuple(space.high.tolist())


def test_discrete_actions():
    collect("CartPole-v1", "test/cart-v0", 3)
    data = bcol.load_dataset("minari:test/cart-v0")
    assert data.spec.num_actions == 2
    assert data.action.dtype == np.int32
    assert (data.mask == 0).sum() == 3


@pytest.mark.parametrize("text", ["ssTssOssT", "ssGssGsT", "ssss", "sBsO", "OsT"])
@pytest.mark.parametrize("stored_next", [False, True])
def test_round_trip_is_exact(text, stored_next):
    log = rows(text, stored_next=stored_next, action_bounds=(-1, 1), env_id="Hopper-v4")
    write_minari("test/own-v0", log)
    back = read_minari("test/own-v0", download=False)
    # Time-outs that were not marked are marked now; all else is the same.
    for name in (
        "observations",
        "actions",
        "rewards",
        "terminals",
        "next_observations",
        "action_low",
        "action_high",
    ):
        np.testing.assert_array_equal(getattr(back, name), getattr(log, name), err_msg=name)
    assert back.env_id == "Hopper-v4"
    assert_same(pair(log), pair(back))
    assert pair(log).spec.checksum == pair(back).spec.checksum


def test_discrete_round_trip():
    log = rows("ssTsT", actions=np.array([0, 2, 1, 1, 0]), num_actions=4)
    write_minari("test/own-v0", log)
    back = read_minari("test/own-v0")
    assert back.num_actions == 4
    assert_same(pair(log), pair(back))


def test_antmaze_round_trip():
    task = TASKS["antmaze-umaze-v2"]
    log = rows("sTTsOsO", observations=np.arange(7.0)[:, None])
    write_minari("test/maze-v0", log, task=task)
    assert_same(pair(log, task), pair(read_minari("test/maze-v0"), task))


def test_names_are_not_overwritten():
    write_minari("test/own-v0", rows("ssT"))
    with pytest.raises(bcol.InputError, match="exists already"):
        write_minari("test/own-v0", rows("ssT"))


def test_no_such_dataset():
    with pytest.raises(bcol.InputError, match="cannot be loaded"):
        read_minari("test/nothing-v0", download=False)


def test_zero_length_episodes_are_refused(tmp_path):
    import h5py

    write_minari("test/own-v0", rows("ssTsT"))
    with h5py.File(tmp_path / "test" / "own-v0" / "data" / "main_data.hdf5", "a") as file:
        episode = file["episode_1"]
        for name in ("actions", "rewards", "terminations", "truncations", "observations"):
            kept = episode[name][:0]
            del episode[name]
            episode[name] = kept
    with pytest.raises(bcol.InputError, match="episode 1 has no steps"):
        read_minari("test/own-v0")


def test_observations_must_outnumber_steps(tmp_path):
    import h5py

    write_minari("test/own-v0", rows("ssTsT"))
    with h5py.File(tmp_path / "test" / "own-v0" / "data" / "main_data.hdf5", "a") as file:
        kept = file["episode_0/observations"][:2]
        del file["episode_0/observations"]
        file["episode_0/observations"] = kept
    with pytest.raises(bcol.InputError, match="2 observations for 3 steps"):
        read_minari("test/own-v0")


def test_no_minari(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "minari", None)
    with pytest.raises(bcol.InputError, match=r"pip install 'bcol\[minari\]'"):
        read_minari("test/own-v0")
