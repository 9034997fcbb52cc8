"""AntMaze episodes: the same for any number of workers, true to the simulator, labelled as said."""

from pathlib import Path

import numpy as np
import pytest
from test_goal_policy import random_arrays

from bcol.envs.antmaze import AntMazeEnv
from bcol.errors import InputError
from bcol.forge.antmaze import RECIPES, Episode, Recipe, at_goal, episodes, get_recipe, make_episode
from bcol.forge.goal_policy import GoalPolicy, load_goal_policy

REAL_POLICY = Path(__file__).parents[2].parent / "shared" / "data" / "antmaze_goal_policy.npz"
POLICY = GoalPolicy.from_arrays(random_arrays())
SHAPES = {
    "observations": (29,),
    "actions": (8,),
    "rewards": (),
    "terminals": (),
    "timeouts": (),
    "infos/qpos": (15,),
    "infos/qvel": (14,),
    "infos/goal": (2,),
}


def equal(one: Episode, other: Episode) -> bool:
    return one.keys() == other.keys() and all(one[name].tobytes() == other[name].tobytes() for name in one)


def test_episodes_do_not_depend_on_the_workers() -> None:
    seen: list[int] = []
    alone = list(episodes("antmaze-umaze", POLICY, count=3, seed=5, workers=1, progress=seen.append))
    assert seen == [701] * 3
    shared = list(episodes("antmaze-umaze", POLICY, count=3, seed=5, workers=2))
    assert all(equal(one, other) for one, other in zip(alone, shared, strict=True))
    continued = list(episodes("antmaze-umaze", POLICY, count=1, seed=5, first=2, workers=1))
    assert equal(continued[0], alone[2])
    assert not equal(alone[0], alone[1])
    assert not equal(alone[0], make_episode("antmaze-umaze", POLICY, seed=6, number=0))


@pytest.mark.parametrize("name", list(RECIPES))
def test_layout_and_replay(name: str) -> None:
    recipe = get_recipe(name)
    episode = make_episode(name, POLICY, seed=0, number=0)
    rows = 701 if name == "antmaze-umaze" else 1001
    assert {key: array.shape for key, array in episode.items()} == {k: (rows, *s) for k, s in SHAPES.items()}
    kinds = {key: array.dtype.name for key, array in episode.items()}
    assert {key for key, kind in kinds.items() if kind == "bool"} == {"terminals", "timeouts"}
    assert {kind for kind in kinds.values() if kind != "bool"} == {"float32"}
    after = np.concatenate([episode["infos/qpos"], episode["infos/qvel"]], axis=1)
    np.testing.assert_array_equal(after[:-1], episode["observations"][1:])
    np.testing.assert_array_equal(np.flatnonzero(episode["timeouts"]), [rows - 1])
    assert np.abs(episode["actions"]).max() <= 1

    env = AntMazeEnv(recipe.maze_name)
    env.reset(seed=0, options={"goal": recipe.label_goal})
    for row in range(0, rows, 25):
        state = episode["observations"][row].astype(np.float64)
        env.set_state(state[:15], state[15:])
        observation, reward, terminated, _, _ = env.step(episode["actions"][row])
        np.testing.assert_allclose(observation, after[row], atol=2e-3)
        assert (reward, terminated) == (episode["rewards"][row], episode["terminals"][row])


def test_labels_are_of_the_state_after_the_step() -> None:
    """An ant dropped beside the label goal: its labels are evaluation's, but they do not end the episode."""
    recipe = RECIPES["antmaze-umaze"]
    env, rng = AntMazeEnv("umaze"), np.random.default_rng(0)
    observation, _ = env.reset(seed=0, options={"goal": recipe.label_goal, "start": recipe.label_goal + 0.34})
    reached, places = [], []
    for _ in range(40):
        observation, _, terminated, _, _ = env.step(rng.uniform(-1, 1, 8))
        reached.append(terminated)
        places.append(observation[:2])
    assert at_goal(np.array(places), recipe.label_goal).tolist() == reached
    assert 0 < sum(reached) < 40


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=list(RECIPES))
def test_starts_and_goals(recipe: Recipe) -> None:
    rng = np.random.default_rng(0)
    goals = np.array([recipe.sample_goal(rng) for _ in range(300)])
    cells = {recipe.maze.floor_cell(goal) for goal in goals}
    assert cells == set(recipe.maze.goal_cells)
    starts = [recipe.sample_start(rng) for _ in range(300)]
    if recipe.name == "antmaze-umaze":
        assert starts == [None] * 300
    else:
        places = {recipe.maze.floor_cell(start) for start in starts if start is not None}
        assert places == set(recipe.maze.free_cells) - set(recipe.maze.goal_cells)


def test_play_and_diverse_are_different_draws() -> None:
    play = make_episode("antmaze-medium-play", POLICY, seed=0, number=0)
    diverse = make_episode("antmaze-medium-diverse", POLICY, seed=0, number=0)
    assert not np.array_equal(play["observations"][0], diverse["observations"][0])


def test_a_real_policy_gets_somewhere() -> None:
    if not REAL_POLICY.exists():
        pytest.skip("the goal-reaching policy is not here")
    policy = load_goal_policy(REAL_POLICY)
    far = [
        np.linalg.norm(episode["infos/qpos"][:, :2], axis=1).max()
        for episode in episodes("antmaze-umaze", policy, count=2, workers=1)
    ]
    assert max(far) > 8  # round the first corner


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "antmaze-tiny"}, "unknown AntMaze dataset 'antmaze-tiny'"),
        ({"count": -1}, "count must be at least 0, not -1"),
        ({"seed": -1}, "seed must be at least 0, not -1"),
        ({"first": -2}, "first must be at least 0, not -2"),
        ({"workers": 0}, "workers must be at least 1, not 0"),
    ],
)
def test_bad_input_is_refused_at_the_call(arguments: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        episodes(**({"name": "antmaze-umaze", "policy": POLICY, "count": 1} | arguments))


def test_no_episodes() -> None:
    assert list(episodes("antmaze-umaze", POLICY, count=0)) == []
