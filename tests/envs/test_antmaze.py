"""The AntMaze environments: layout, limits, noise, goals, and real rows replayed."""

import copy
import subprocess
import sys
from pathlib import Path

import gymnasium
import h5py
import numpy as np
import pytest

import bcol.envs
from bcol.envs.antmaze import AntMazeEnv
from bcol.envs.maze import MAZES
from bcol.errors import InputError

REAL_ROWS = Path(__file__).parents[2].parent / "shared" / "data" / "d4rl_rows"
REAL_NAMES = ("umaze", "umaze-diverse", "medium-play", "medium-diverse", "large-play", "large-diverse")


@pytest.fixture(scope="module")
def umaze() -> AntMazeEnv:
    return AntMazeEnv("umaze")


@pytest.mark.parametrize(("maze", "limit"), [("umaze", 700), ("medium", 1000), ("large", 1000)])
def test_registered_with_spaces_and_limit(maze: str, limit: int) -> None:
    env = gymnasium.make(f"bcol/AntMaze-{maze}-v0")
    assert env.spec is not None
    assert env.spec.max_episode_steps == limit
    assert env.observation_space.shape == (29,)
    assert isinstance(env.action_space, gymnasium.spaces.Box)
    assert env.action_space.shape == (8,)
    assert np.all(env.action_space.low == -1)
    assert np.all(env.action_space.high == 1)
    observation, info = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    _, reward, terminated, truncated, info = env.step(np.zeros(8, dtype=np.float32))
    assert (reward, terminated, truncated, info["success"]) == (0.0, False, False, False)


def test_registering_again_changes_nothing() -> None:
    before = gymnasium.spec("bcol/AntMaze-umaze-v0")
    bcol.envs.register()
    assert gymnasium.spec("bcol/AntMaze-umaze-v0") is before


def test_the_limit_cuts_an_episode() -> None:
    env = gymnasium.make("bcol/AntMaze-umaze-v0", max_episode_steps=3)
    env.reset(seed=0)
    ends = [env.step(np.zeros(8, dtype=np.float32))[2:4] for _ in range(3)]
    assert ends == [(False, False), (False, False), (False, True)]


def test_observation_is_qpos_and_qvel(umaze: AntMazeEnv) -> None:
    umaze.reset(seed=1)
    observation = umaze.step(np.full(8, 0.3, dtype=np.float32))[0]
    np.testing.assert_array_equal(observation[:15], umaze.data.qpos)
    np.testing.assert_array_equal(observation[15:], umaze.data.qvel)
    assert umaze.dt == pytest.approx(0.1)


def test_action_scale_is_a_torque_of_30(umaze: AntMazeEnv) -> None:
    umaze.reset(seed=1)
    umaze.step(np.full(8, -1.0, dtype=np.float32))
    np.testing.assert_allclose(umaze.data.qfrc_actuator[6:], -30)


def test_margins_are_on_the_robot_only(umaze: AntMazeEnv) -> None:
    margins = {umaze.model.geom(i).name: float(umaze.model.geom_margin[i]) for i in range(umaze.model.ngeom)}
    world = {name for name in margins if name == "floor" or name.startswith("wall")}
    assert len(world) == 1 + MAZES["umaze"].walls.sum()
    assert {margins[name] for name in world} == {0.0}
    assert {margins[name] for name in set(margins) - world} == {0.01}


def test_reset_noise(umaze: AntMazeEnv) -> None:
    umaze.reset(seed=0)
    states = np.array([umaze.reset()[0] for _ in range(500)])
    rest = np.array([0, 0, 0.75])
    assert np.abs(states[:, :3] - rest).max() <= 0.1
    assert np.abs(states[:, 7:15]).max() <= 0.1
    np.testing.assert_allclose(states[:, :3].std(axis=0), 0.1 / np.sqrt(3), rtol=0.1)
    np.testing.assert_allclose(np.linalg.norm(states[:, 3:7], axis=1), 1)
    np.testing.assert_allclose(states[:, 15:].std(axis=0), 0.1, rtol=0.15)


@pytest.mark.parametrize(("maze", "cell"), [("umaze", (0, 8)), ("medium", (20, 20)), ("large", (32, 24))])
def test_goal_is_redrawn_at_every_reset(maze: str, cell: tuple[float, float]) -> None:
    env = AntMazeEnv(maze)
    env.reset(seed=0)
    offsets = np.array([env.reset()[1]["goal"] for _ in range(300)]) - cell
    assert len(np.unique(offsets, axis=0)) == 300
    assert offsets.min() >= 0
    assert offsets.max() <= 1.5
    assert offsets.max() > 1.3
    np.testing.assert_allclose(offsets.mean(axis=0), 0.75, atol=0.08)


def test_same_seed_same_episode(umaze: AntMazeEnv) -> None:
    runs = []
    for _ in range(2):
        observation, info = umaze.reset(seed=7)
        after = umaze.step(np.full(8, 0.5, dtype=np.float32))[0]
        runs.append(np.concatenate([observation, info["goal"], after]))
    np.testing.assert_array_equal(runs[0], runs[1])


@pytest.mark.parametrize(("distance", "reached"), [(0.49, True), (0.51, False)])
def test_goal_radius(umaze: AntMazeEnv, distance: float, reached: bool) -> None:
    umaze.reset(seed=0)
    observation = umaze.step(np.zeros(8, dtype=np.float32))[0]
    umaze.reset(seed=0, options={"goal": observation[:2] + np.array([distance, 0])})
    _, reward, terminated, _, info = umaze.step(np.zeros(8, dtype=np.float32))
    assert (reward, terminated, info["success"]) == (float(reached), reached, reached)


def test_given_start_is_exact_and_changes_no_other_draw(umaze: AntMazeEnv) -> None:
    free, info = umaze.reset(seed=3)
    given, given_info = umaze.reset(seed=3, options={"start": (8.5, 0.5)})
    assert given[:2].tolist() == [8.5, 0.5]
    np.testing.assert_array_equal(given[2:], free[2:])
    np.testing.assert_array_equal(info["goal"], given_info["goal"])


def test_a_copy_is_of_the_same_maze() -> None:
    assert copy.deepcopy(AntMazeEnv("large")).maze.name == "large"


def test_bad_input(umaze: AntMazeEnv) -> None:
    umaze.reset(seed=0)
    with pytest.raises(InputError, match="unknown maze"):
        AntMazeEnv("tiny")
    with pytest.raises(InputError, match="unknown reset option 'task'"):
        umaze.reset(options={"task": 1})
    with pytest.raises(InputError, match="goal must be two finite numbers"):
        umaze.reset(options={"goal": (1.0, np.nan)})
    with pytest.raises(InputError, match="start must be two finite numbers"):
        umaze.reset(options={"start": "here"})
    with pytest.raises(InputError, match="no free cell"):
        umaze.reset(options={"start": (0.0, 4.0)})
    with pytest.raises(InputError, match="8 finite numbers"):
        umaze.step(np.full(8, np.nan))


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_import_is_light() -> None:
    loaded = run_python("import sys, bcol.envs; print([m for m in ('mujoco', 'ogbench', 'jax') if m in sys.modules])")
    assert loaded.strip() == "[]"


def test_missing_ogbench_is_one_line() -> None:
    message = run_python(
        "import sys; sys.modules['ogbench'] = None\n"
        "import gymnasium, bcol.envs\n"
        "from bcol.errors import InputError\n"
        "try: gymnasium.make('bcol/AntMaze-umaze-v0')\n"
        "except InputError as error: print(error)"
    )
    assert message == "AntMaze needs the ogbench package: run pip install 'bcol[antmaze]'\n"


@pytest.mark.parametrize("name", REAL_NAMES)
def test_real_rows_replay(name: str) -> None:
    path = REAL_ROWS / f"antmaze-{name}-v0.hdf5"
    if not path.exists():
        pytest.skip("the real rows are not here")
    with h5py.File(path) as file:
        states = file["observations"][:].astype(np.float64)
        actions, after = file["actions"][:], file["infos/qpos"][:]
    env = AntMazeEnv(name.split("-")[0])
    env.reset(seed=0)
    errors, touching = [], []
    for state, action, qpos in zip(states, actions, after, strict=True):
        assert env.maze.is_free(state[:2])
        env.set_state(state[:15], state[15:])
        observation = env.step(action)[0]
        errors.append(np.abs(observation[:15] - qpos).max())
        geoms = {env.model.geom(i).name for i in set(env.data.contact.geom.ravel().tolist())}
        touching.append(any(geom.startswith("wall") for geom in geoms))
    assert np.median(errors) < 5e-4
    # Without the walls these rows are off by 3e-2: the walls are where the data felt them.
    assert np.any(touching)
    assert np.median(np.array(errors)[touching]) < 2e-3
