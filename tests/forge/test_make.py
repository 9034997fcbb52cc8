"""Forged datasets: the same for any number of workers, resumable, true to the simulator, in D4RL's layout."""

import json
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from test_goal_policy import random_arrays

import bcol
from bcol.data import check, read_d4rl
from bcol.data.load import read_log
from bcol.data.tasks import FORGED, TASKS
from bcol.envs.antmaze import AntMazeEnv
from bcol.errors import InputError
from bcol.evaluate import make_environment
from bcol.forge import make
from bcol.forge.antmaze import RECIPES
from bcol.forge.behaviour import Behaviour, log_probability, read_behaviour
from bcol.forge.cards import read_card, table
from bcol.forge.make import forge, forged_file
from bcol.forge.recipes import plan
from bcol.forge.rungs import Rung, halved, read_rung, write_ladder, write_rung
from bcol.forge.space import Space
from bcol.nets import make_actor

REAL = Path(__file__).parents[2].parent / "shared" / "data" / "d4rl_rows"
ROBOTS = {"hopper": ("Hopper-v4", 11, 3), "walker2d": ("Walker2d-v4", 17, 6), "halfcheetah": ("HalfCheetah-v4", 17, 6)}


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, Path]:
    """A random policy per robot, and a random ant."""
    folder = tmp_path_factory.mktemp("policies")
    paths = {}
    for robot, (env, s, a) in ROBOTS.items():
        actor = make_actor(np.random.default_rng(len(robot)), s, a, (16, 16))
        space = Space(s, -np.ones(a, np.float32), np.ones(a, np.float32))
        paths[robot] = folder / f"{robot}.safetensors"
        write_rung(paths[robot], Rung(env, 0, 1000, space, halved(actor)))
    paths["antmaze"] = folder / "ant.npz"
    np.savez(paths["antmaze"], **random_arrays())  # type: ignore[arg-type]
    return paths


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("BCOL_DATA", str(tmp_path / "cache"))


def contents(path: Path) -> dict[str, bytes]:
    found = {}
    with h5py.File(path) as file:
        file.visititems(lambda name, item: found.update({name: item[()].tobytes()} if hasattr(item, "dtype") else {}))
    return found


@pytest.mark.parametrize("name", ["hopper-medium", "antmaze-umaze"])
def test_same_bytes_for_any_workers_and_after_a_kill(name, files, tmp_path, monkeypatch) -> None:
    policy = [files[name.split("-")[0]]]
    rows = 9000 if name == "hopper-medium" else 2000
    alone = forge(name, policy=policy, rows=rows, workers=1, out=tmp_path / "1.hdf5")
    written: list[Path] = []

    def killed(path: Path, content: bytes) -> None:
        if len(written) == 1:
            raise KeyboardInterrupt
        written.append(path)
        path.write_bytes(content)

    with monkeypatch.context() as patch:
        patch.setattr(make, "write_atomically", killed)
        with pytest.raises(KeyboardInterrupt):
            forge(name, policy=policy, rows=rows, workers=2, out=tmp_path / "2.hdf5")
    assert written[0].exists()
    stamp = written[0].stat().st_mtime_ns
    assert not (tmp_path / "2.hdf5").exists()
    stamps = []
    monkeypatch.setattr(make, "shutil", type("Kept", (), {"rmtree": lambda path: stamps.append(written[0].stat())}))
    pair = forge(name, policy=policy, rows=rows, workers=2, out=tmp_path / "2.hdf5")
    assert contents(alone) == contents(pair)
    assert stamps[0].st_mtime_ns == stamp  # what was there was not made again
    problems = [p.what for p in check(*read_log(alone)) if p.level != "note"]
    # An ant that only twitches finds no goal, and the check is right to say so.
    assert problems == ([] if name == "hopper-medium" else ["all rewards are 0"])


@pytest.mark.parametrize("robot", list(ROBOTS))
def test_locomotion_is_true_to_the_simulator(robot, files, tmp_path) -> None:
    """From every recorded state, the recorded action leads to the recorded observation, reward and end."""
    env, s, a = ROBOTS[robot]
    path = forge(f"{robot}-medium", policy=[files[robot]], rows=600, workers=1, out=tmp_path / "data.hdf5")
    log, task = read_log(path)
    assert task is not None
    assert task.name == f"forge/{robot}-medium"
    assert log.observations.shape[1] == s
    assert log.actions.shape[1] == a
    assert len(log) <= 600 or log.timeouts[-1] or log.terminals[-1]
    world = make_environment(env).unwrapped
    world.reset(seed=0)
    qpos, qvel = log.infos["qpos"], log.infos["qvel"]
    length = 0
    for row in range(min(len(log), 300)):
        world.set_state(qpos[row], qvel[row])
        np.testing.assert_allclose(world._get_obs(), log.observations[row], atol=1e-5)
        after, reward, terminated, _, _ = world.step(log.actions[row])
        # The solver's warm start is not part of the recorded state.
        np.testing.assert_allclose(after, log.next_observations[row], atol=2e-2, rtol=1e-2)
        assert reward == pytest.approx(log.rewards[row], abs=2e-2)
        length += 1
        if log.terminals[row] != terminated:  # only where the state is at the very edge of being healthy
            assert np.abs(after - log.next_observations[row]).max() > 0
        assert log.timeouts[row] == (length == 1000 and not log.terminals[row])
        length = 0 if log.timeouts[row] or log.terminals[row] else length
    behaviour = read_behaviour(files[robot])
    inside = np.arctanh(np.clip(log.actions.astype(np.float64), -1 + 1e-7, 1 - 1e-7))
    expected = log_probability(*behaviour.distribution(log.observations), inside)
    clear = np.abs(log.actions).max(axis=1) < 0.99
    np.testing.assert_allclose(log.infos["action_log_probs"][clear], expected[clear], atol=2e-3)


def test_antmaze_labels_follow_from_the_states(files, tmp_path) -> None:
    path = forge("antmaze-umaze", policy=[files["antmaze"]], rows=1500, workers=1, out=tmp_path / "data.hdf5")
    log, task = read_log(path)
    assert task is FORGED["forge/antmaze-umaze"]
    assert len(log) == 1402
    assert np.flatnonzero(log.timeouts).tolist() == [700, 1401]
    goal = RECIPES["antmaze-umaze"].label_goal
    near = np.linalg.norm(log.infos["qpos"][:, :2] - goal, axis=1) <= 0.5
    np.testing.assert_array_equal(log.terminals, near)
    np.testing.assert_array_equal(log.rewards, near)
    assert json.loads(log.metadata["card"])["label_goal"] == goal.tolist()
    assert AntMazeEnv("umaze").maze.max_steps == 700


def test_medium_expert_and_replay_have_a_part_for_each_policy(files) -> None:
    both = plan("hopper-medium-expert", policy=[files["hopper"], files["hopper"]], rows=100)
    assert [segment.rows for segment in both.segments] == [50, 50]
    assert len({segment.source.name for segment in both.segments}) == 2  # type: ignore[union-attr]
    replay = plan("hopper-medium-replay", policy=[files["hopper"]] * 3, rows=100)
    assert [segment.rows for segment in replay.segments] == [33, 34, 33]
    assert plan("hopper-medium-replay", policy=[files["hopper"]]).rows == 400_000


def test_shipped_policies(files, tmp_path, monkeypatch) -> None:
    """What the card calls medium, expert and replay is what the datasets are made with."""
    rungs = [replace(read_rung(files["hopper"]), step=step) for step in (0, 2, 4, 5, 9)]
    (tmp_path / "behaviours").mkdir()
    write_ladder(tmp_path / "behaviours" / "hopper.safetensors", rungs)
    returns = [{"step": step, "sampled": mean} for step, mean in ((0, 10.0), (2, 9.5), (4, 11.0), (5, 50.0), (9, 99.0))]
    card = {"medium": 5, "expert": 9, "replay": [0, 2, 4, 5], "returns": returns}
    (tmp_path / "behaviours" / "hopper.json").write_text(json.dumps(card))
    monkeypatch.setattr("bcol.forge.behaviour.resources.files", lambda package: tmp_path)
    sources = {kind: plan(f"hopper-{kind}").policies for kind in ("medium", "medium-expert", "medium-replay")}
    assert sources == {
        "medium": ("shipped hopper, 5 steps",),
        "medium-expert": ("shipped hopper, 5 steps", "shipped hopper, 9 steps"),
        "medium-replay": ("shipped hopper, 4 steps", "shipped hopper, 5 steps"),  # those that beat the untrained one
    }
    assert [segment.rows for segment in plan("hopper-medium-replay").segments] == [200_000, 200_000]
    assert plan("hopper-medium").segments[0].source.checksum == read_behaviour(files["hopper"]).checksum
    with pytest.raises(InputError, match="no behaviour policies for walker2d are installed: give --policy FILE"):
        plan("walker2d-medium")


@pytest.mark.parametrize(("robot", "rungs"), [("hopper", 9), ("walker2d", 9), ("halfcheetah", 7)])
def test_the_shipped_replay_leads_from_the_first_that_learned_to_medium(robot, rungs) -> None:
    replay = plan(f"{robot}-medium-replay")
    assert len(replay.segments) == rungs
    assert np.ptp([segment.rows for segment in replay.segments]) <= 1
    assert replay.policies[0] != f"shipped {robot}, 0 steps"
    assert replay.policies[-1] == plan(f"{robot}-medium").policies[0]


def test_load_dataset_forges_once(files, tmp_path, monkeypatch) -> None:
    def tiny(name, **options):
        return plan(name, policy=[files["halfcheetah"]], rows=1000)

    monkeypatch.setattr(make, "plan", tiny)
    data = bcol.load_dataset("forge/halfcheetah-medium")
    assert data.spec.task == "forge/halfcheetah-medium"
    assert data.spec.env_id == "HalfCheetah-v4"
    assert data.spec.reference == TASKS["halfcheetah-medium-v2"].reference
    monkeypatch.setattr(make, "plan", None)  # the second time nothing is made
    again = bcol.load_dataset("forge/halfcheetah-medium")
    assert again.spec == data.spec
    card = read_card(forged_file("halfcheetah-medium").with_suffix(".json"))
    row = table([card]).splitlines()[2]
    assert row.startswith("| `forge/halfcheetah-medium` | 1,000 | 1 | 1000 |")
    assert "halfcheetah.safetensors" in row


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "hopper-wide"}, "unknown dataset 'forge/hopper-wide'"),
        ({"rows": 0}, "rows must be at least 1"),
        ({"seed": -1}, "seed must not be negative"),
        ({"workers": 0}, "workers must be at least 1"),
        ({"out": "data.csv"}, "ending in .hdf5"),
        ({"policy": ["none.hdf5"]}, "none.hdf5: no such file"),
        ({"policy": ["none.safetensors"]}, "there is no checkpoint"),
        ({"name": "hopper-medium-expert", "policy": ["a.hdf5"]}, "needs 2 policy files: got 1"),
        ({"name": "d4rl-hopper-medium"}, "run bcol data forge d4rl-hopper-medium --policy hopper_medium-v2.hdf5"),
        ({"name": "antmaze-umaze", "policy": ["a.npz", "b.npz"]}, "one goal-reaching policy: got 2"),
        ({"name": "antmaze-umaze", "policy": ["none.npz"]}, "no goal-reaching policy at none.npz"),
    ],
)
def test_bad_input(options, message) -> None:
    with pytest.raises(InputError, match=message):
        forge(**({"name": "hopper-medium"} | options))


def test_a_policy_of_another_robot_is_refused(files, tmp_path) -> None:
    with pytest.raises(InputError, match="11 observations and 3 actions, which Walker2d-v4 has not"):
        forge("walker2d-medium", policy=[files["hopper"]], rows=10, workers=1, out=tmp_path / "x.hdf5")


def test_another_dataset_is_not_overwritten(files, tmp_path) -> None:
    out = tmp_path / "x.hdf5"
    forge("halfcheetah-medium", policy=[files["halfcheetah"]], rows=10, workers=1, out=out)
    before = out.stat().st_mtime_ns
    forge("halfcheetah-medium", policy=[files["halfcheetah"]], rows=10, workers=1, out=out)
    assert out.stat().st_mtime_ns == before
    with pytest.raises(InputError, match="exists already and is another dataset"):
        forge("halfcheetah-medium", policy=[files["halfcheetah"]], rows=10, seed=1, out=out)


def test_files_without_a_policy_say_so(tmp_path) -> None:
    with h5py.File(tmp_path / "bare.hdf5", "w") as file:
        file["observations"] = np.zeros((2, 3))
    with pytest.raises(InputError, match="carries no policy"):
        read_behaviour(tmp_path / "bare.hdf5")


@pytest.mark.parametrize("robot", list(ROBOTS))
def test_genuine_policies_give_the_logged_probabilities(robot) -> None:
    path = REAL / f"{robot}_medium-v2.hdf5"
    if not path.exists():
        pytest.skip("the genuine rows are not here")
    log, behaviour = read_d4rl(path), read_behaviour(path)
    assert isinstance(behaviour, Behaviour)
    inside = np.arctanh(np.clip(log.actions.astype(np.float64), -1 + 1e-7, 1 - 1e-7))
    found = log_probability(*behaviour.distribution(log.observations), inside)
    np.testing.assert_allclose(found, log.infos["action_log_probs"], atol=1e-4)
