"""The two controllers: where they head for."""

import numpy as np
import pytest

from bcol.envs.maze import MAZES
from bcol.errors import InputError
from bcol.forge.navigation import CleanNavigator, Navigator

MAZE = MAZES["umaze"]
GOAL = np.array([0.75, 8.75])


def east(features: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.append(features[27:] / 10, np.zeros(6))


def test_waypoint_is_the_next_cell_with_fresh_noise() -> None:
    rng, navigator = np.random.default_rng(0), Navigator(MAZE, east, GOAL)
    waypoints = np.array([navigator.waypoint(np.array([0.5, 0.5]), rng) for _ in range(200)])
    noise = waypoints - [4, 0]  # the middle of (1, 2)
    assert len(np.unique(noise, axis=0)) == 200
    assert noise.min() >= 0
    assert noise.max() <= 1
    assert noise.max() > 0.95


def test_waypoint_changes_on_the_line_through_the_middles() -> None:
    rng, navigator = np.random.default_rng(0), Navigator(MAZE, east, GOAL)
    assert navigator.waypoint(np.array([3.99, 0.0]), rng)[0] < 6
    assert navigator.waypoint(np.array([4.01, 0.0]), rng)[0] >= 8


def test_waypoint_at_the_end_is_the_goal_itself() -> None:
    rng = np.random.default_rng(0)
    for navigator in (Navigator(MAZE, east, GOAL), CleanNavigator(MAZE, east, GOAL)):
        np.testing.assert_array_equal(navigator.waypoint(np.array([1.0, 8.1]), rng), GOAL)


def test_action_is_the_policys_for_the_direction() -> None:
    observation = np.zeros(29)
    action = CleanNavigator(MAZE, east, GOAL).act(observation, np.random.default_rng(0))
    np.testing.assert_allclose(action[:2], [1, 0])


def test_clean_controller_keeps_to_the_middle() -> None:
    rng, navigator = np.random.default_rng(0), CleanNavigator(MAZE, east, GOAL)
    np.testing.assert_allclose(navigator.waypoint(np.array([0.5, 1.0]), rng), [1.5, 0])
    np.testing.assert_allclose(navigator.waypoint(np.array([6.5, 0.0]), rng), [8, 1])  # round the corner


def test_clean_controller_refuses_a_goal_in_a_wall() -> None:
    with pytest.raises(InputError, match="no free cell"):
        CleanNavigator(MAZE, east, np.array([0.0, 4.0]))
