"""D4RL files: the genuine ones, and ours."""

from dataclasses import replace

import h5py
import numpy as np
import pytest

import bcol
from bcol.data import TASKS, check, pair, read_d4rl, read_log, with_timeouts, write_d4rl
from conftest import assert_same, genuine, rows


def test_kitchen():
    data = bcol.load_dataset(genuine("mini_kitchen_microwave_kettle_light_slider-v0.hdf5"))
    assert data.observation.shape == (3680, 60)
    assert data.action.shape == (3680, 9)
    assert (data.mask == 0).sum() == 19
    assert len(data.episode_return) == 19


@pytest.mark.parametrize("robot", ["hopper", "halfcheetah", "walker2d"])
@pytest.mark.parametrize("kind", ["medium-v2", "medium_replay-v1"])
def test_mujoco_rows(robot, kind):
    path = genuine(f"d4rl_rows/{robot}_{kind}.hdf5")
    data = bcol.load_dataset(path)
    with h5py.File(path) as file:
        raw = {name: file[name][()] for name in file if isinstance(file[name], h5py.Dataset)}
    terminal, timeout = raw["terminals"].astype(bool), raw["timeouts"].astype(bool)
    keep = np.flatnonzero(terminal | ~timeout)
    np.testing.assert_array_equal(data.observation, raw["observations"][keep].astype(np.float32))
    np.testing.assert_array_equal(data.next_observation, raw["next_observations"][keep].astype(np.float32))
    np.testing.assert_array_equal(data.reward, raw["rewards"].reshape(-1)[keep].astype(np.float32))
    np.testing.assert_array_equal(data.mask, 1 - terminal[keep])
    goes_on = data.mask == 1
    np.testing.assert_array_equal(data.next_action[goes_on], raw["actions"][keep[goes_on] + 1].astype(np.float32))
    assert data.spec.task == f"{robot}-{kind.replace('_', '-')}"
    assert len(data.episode_return) == 2


def test_infos_and_metadata_stay_available():
    path = genuine("d4rl_rows/hopper_medium-v2.hdf5")
    log = read_d4rl(path)
    assert log.metadata["algorithm"] == "SAC"
    assert log.metadata["policy/fc0/weight"].shape == (256, 11)
    assert log.infos["qpos"].shape == (911, 6)
    assert "nothing" not in log.infos
    # The behaviour policy inside explains the logged probabilities, so the arrays are the right ones.
    hidden = log.observations
    for layer in ("fc0", "fc1"):
        weight, bias = (log.metadata[f"policy/{layer}/{part}"] for part in ("weight", "bias"))
        hidden = np.maximum(hidden @ weight.T + bias, 0)
    mean, log_std = (
        hidden @ log.metadata[f"policy/{head}/weight"].T + log.metadata[f"policy/{head}/bias"]
        for head in ("last_fc", "last_fc_log_std")
    )
    before = np.arctanh(log.actions.astype(np.float64))
    log_std = np.clip(log_std, -20, 2)
    gaussian = -0.5 * ((before - mean) / np.exp(log_std)) ** 2 - log_std - 0.5 * np.log(2 * np.pi)
    probability = (gaussian - np.log(1 - log.actions.astype(np.float64) ** 2)).sum(axis=1)
    assert np.median(np.abs(probability - log.infos["action_log_probs"])) < 1e-2


@pytest.mark.parametrize(
    "maze", ["umaze", "umaze-diverse", "medium-play", "medium-diverse", "large-play", "large-diverse"]
)
def test_antmaze_v0_rows(maze):
    path = genuine(f"d4rl_rows/antmaze-{maze}-v0.hdf5")
    log, task = read_log(path)
    found = {problem.what.split(":")[0]: problem for problem in check(log, task)}
    assert any("time-out flags" in what for what in found)
    data = bcol.load_dataset(path)
    assert data.spec.env_id == f"bcol/AntMaze-{maze.split('-')[0]}-v0"
    np.testing.assert_array_equal(np.unique(data.reward), np.unique(log.rewards) - 1)
    assert data.spec.transformations == ({"name": "transform_reward", "scale": 1.0, "shift": -1.0},)
    raw = bcol.load_dataset(path, reward_transform=False)
    assert raw.spec.transformations == ()
    assert raw.spec.checksum != data.spec.checksum
    if maze in ("medium-play", "large-play", "large-diverse", "umaze-diverse"):
        # Trajectories have 1001 rows; the flags come after 999.
        assert found["wrong time-out flags"].rows == (998,)
        assert found["unmarked time-outs"].rows == (1000,)
        assert 1000 not in np.flatnonzero(np.isin(log.observations, data.observation).all(axis=1))


def test_antmaze_goes_on_at_the_goal():
    data = bcol.load_dataset(genuine("d4rl_rows/antmaze-medium-diverse-v0.hdf5"))
    assert (data.mask == 0).sum() == 3
    assert data.episode.max() == 0


@pytest.mark.parametrize("text", ["ssTssOssT", "ssGssGsT", "ssss", "sBsO"])
@pytest.mark.parametrize("stored_next", [False, True])
def test_round_trip_is_exact(tmp_path, text, stored_next):
    log = rows(
        text,
        stored_next=stored_next,
        infos={"qpos": np.arange(len(text)) + 0.1},
        metadata={"algorithm": "SAC", "iteration": 3, "policy/fc0/weight": np.eye(3)},
    )
    write_d4rl(tmp_path / "x.hdf5", log)
    back = read_d4rl(tmp_path / "x.hdf5")
    assert_same(log, back)
    assert_same(pair(log), pair(back))
    assert pair(log).spec.checksum == pair(back).spec.checksum
    assert dict(back.infos).keys() == {"qpos"}
    np.testing.assert_array_equal(back.infos["qpos"], log.infos["qpos"])
    assert back.metadata["algorithm"] == "SAC"
    assert back.metadata["iteration"] == 3
    np.testing.assert_array_equal(back.metadata["policy/fc0/weight"], np.eye(3))
    # Marking what was unmarked changes nothing for us, and helps those who only read flags.
    write_d4rl(tmp_path / "y.hdf5", with_timeouts(log))
    assert_same(pair(log), pair(read_d4rl(tmp_path / "y.hdf5")))


def test_genuine_round_trip(tmp_path):
    for name in ("hopper_medium-v2", "antmaze-medium-diverse-v0"):
        log, task = read_log(genuine(f"d4rl_rows/{name}.hdf5"))
        write_d4rl(tmp_path / f"{name}.hdf5", log)
        back, again = read_log(tmp_path / f"{name}.hdf5")
        assert task == again
        assert_same(log, back)
        assert set(log.infos) == set(back.infos)
        assert set(log.metadata) == set(back.metadata)


def test_discrete_round_trip(tmp_path):
    log = rows("ssTsT", actions=np.array([0, 2, 1, 1, 0]))
    write_d4rl(tmp_path / "x.hdf5", log)
    assert_same(log, read_d4rl(tmp_path / "x.hdf5"))


def test_what_a_log_declares_survives(tmp_path):
    log = rows(
        "ssTsT", action_bounds=([-2.0], [3.0]), env_id="Robot-v0", metadata={"action_low": 9, "algorithm": "PID"}
    )
    write_d4rl(tmp_path / "x.hdf5", log)
    back = read_d4rl(tmp_path / "x.hdf5")
    assert (back.action_low, back.action_high, back.env_id) == ([-2], [3], "Robot-v0")
    assert back.metadata["algorithm"] == "PID"
    assert pair(back).spec == replace(pair(log).spec, source=back.source)
    write_d4rl(tmp_path / "y.hdf5", rows("ssT", actions=np.array([0, 2, 1]), num_actions=7))
    assert read_d4rl(tmp_path / "y.hdf5").num_actions == 7


@pytest.mark.parametrize("dtype", ["f4", ">f8", "i2", "?", "S3"])
@pytest.mark.parametrize("shape", [(1000,), (1000, 3), (7, 2, 3), (64, 4)])
def test_chunks_are_those_of_the_hdf5_library(tmp_path, monkeypatch, dtype, shape):
    monkeypatch.setattr("bcol.data.d4rl._CHUNK_BYTES", 256)  # many of them, the last one not full
    array = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)[::-1]
    write_d4rl(tmp_path / "x.hdf5", rows("ssT", infos={"x": array}))
    with h5py.File(tmp_path / "x.hdf5") as file:
        ours = file["infos/x"]
        with h5py.File(tmp_path / "y.hdf5", "w") as other:
            theirs = other.create_dataset("x", data=array, chunks=ours.chunks, compression="gzip", compression_opts=1)
            assert ours.dtype == theirs.dtype
            assert ours.id.get_num_chunks() == theirs.id.get_num_chunks()
            for i in range(ours.id.get_num_chunks()):
                at = theirs.id.get_chunk_info(i).chunk_offset
                assert ours.id.read_direct_chunk(at) == theirs.id.read_direct_chunk(at)
        np.testing.assert_array_equal(ours[()], array)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("num_actions", 7.5, "metadata/num_actions must be a whole number"),
        ("env_id", np.array([b"Hopper-v4"]), "metadata/env_id must be text"),
        ("action_high", np.inf, "must be finite"),
        ("num_actions", b"many", "metadata/num_actions must be a whole number"),
        ("action_high", np.array([-5.0]), "low < high"),
        ("action_high", np.array([1.0, 1.0]), "each one number or 1 of them"),
        ("action_high", b"high", "each one number or 1 of them"),
    ],
)
def test_nonsense_declared_is_refused(tmp_path, name, value, message):
    write_d4rl(tmp_path / "x.hdf5", rows("ssT", metadata={"action_low": -1.0, name: value}))
    with pytest.raises(bcol.InputError, match=message):
        read_d4rl(tmp_path / "x.hdf5")


def test_infos_that_are_an_array(tmp_path):
    with h5py.File(tmp_path / "x.hdf5", "w") as file:
        for name in ("observations", "actions", "rewards", "terminals"):
            file[name] = np.zeros(4) + (name == "terminals")
        file["infos"] = np.arange(4)
    log = read_d4rl(tmp_path / "x.hdf5")
    assert list(log.infos) == ["infos"]
    assert log.infos["infos"].tolist() == [0, 1, 2, 3]
    declared = replace(log, metadata={"metadata": np.arange(3)}, env_id="Robot-v0")
    write_d4rl(tmp_path / "y.hdf5", declared)
    back = read_d4rl(tmp_path / "y.hdf5")
    assert back.infos["infos"].tolist() == [0, 1, 2, 3]
    assert back.metadata["metadata"].tolist() == [0, 1, 2]
    assert back.env_id == "Robot-v0"


def test_strings_of_variable_length_are_left_alone(tmp_path):
    write_d4rl(tmp_path / "x.hdf5", rows("ssT"))
    with h5py.File(tmp_path / "x.hdf5", "a") as file:
        file["metadata/name"] = "of variable length"
    assert list(read_d4rl(tmp_path / "x.hdf5").metadata) == []


def test_progress_reaches_the_end(tmp_path):
    write_d4rl(tmp_path / "x.hdf5", rows("ssT" * 100))
    seen: list[float] = []
    read_d4rl(tmp_path / "x.hdf5", seen.append)
    assert seen == sorted(seen)
    assert 0 < seen[-1] <= 1


def test_every_task_declares_a_file():
    assert len(TASKS) == 39
    assert len({task.file for task in TASKS.values()}) == 39
