"""The geometry of the mazes and the shortest paths through them."""

import numpy as np
import pytest

from bcol.envs.maze import MAZES, get_maze, next_cells
from bcol.errors import InputError


def test_the_origin_is_the_middle_of_the_first_cell() -> None:
    for maze in MAZES.values():
        assert maze.middle((1, 1)).tolist() == [0, 0]
        assert maze.cell(np.array([1.9, -1.9])) == (1, 1)
        assert maze.cell(np.array([2.1, 1.9])) == (1, 2)


def test_walls_close_the_mazes() -> None:
    for maze in MAZES.values():
        walls = maze.walls
        assert walls[[0, -1]].all()
        assert walls[:, [0, -1]].all()
        assert not walls[maze.test_goal]


def test_goal_cells() -> None:
    assert MAZES["umaze"].goal_cells == [(3, 1)]
    assert MAZES["medium"].goal_cells == [(2, 6), (5, 1), (6, 5)]
    assert len(MAZES["large"].goal_cells) == 7


def test_floor_cell_counts_as_d4rl_does() -> None:
    maze = MAZES["medium"]
    assert maze.floor_cell(np.array([-1.5, -0.1])) == (1, 1)
    assert maze.floor_cell(np.array([3.9, 4.1])) == (2, 1)
    assert maze.floor_cell(np.array([20.5, 20.5])) == (6, 6)


def test_is_free() -> None:
    maze = MAZES["umaze"]
    assert maze.is_free(np.array([0.0, 0.0]))
    assert not maze.is_free(np.array([0.0, 4.0]))  # the wall between the arms
    assert not maze.is_free(np.array([1e6, 0.0]))


def test_next_cells_of_umaze_by_hand() -> None:
    towards = next_cells(MAZES["umaze"], (3, 1))
    path, cell = [], (1, 1)
    while cell != (3, 1):
        cell = towards[cell]
        path.append(cell)
    assert path == [(1, 2), (1, 3), (2, 3), (3, 3), (3, 2), (3, 1)]


@pytest.mark.parametrize("name", list(MAZES))
def test_every_point_an_ant_can_be_at_has_a_next_cell(name: str) -> None:
    maze = MAZES[name]
    for goal in maze.free_cells:
        towards = next_cells(maze, goal)
        assert towards[goal] == goal
        for cell in maze.free_cells:
            assert not maze.walls[towards[cell]]
            for corner in ((-1.99, -1.99), (-1.99, 1.99), (1.99, -1.99), (1.99, 1.99)):
                by_floor = maze.floor_cell(maze.middle(cell) + np.array(corner))
                assert not maze.walls[towards[by_floor]]


def test_unknown_maze() -> None:
    with pytest.raises(InputError, match="unknown maze 'tiny': choose one of umaze, medium, large"):
        get_maze("tiny")
