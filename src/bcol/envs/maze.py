"""The mazes of D4RL's AntMaze: maps, coordinates, goals and shortest paths. NumPy only, no simulator.

A cell is (row, column); rows run along y, columns along x. The middle of cell (1, 1) is the origin and cells
are 4 wide, so the middle of (row, column) is (4 column - 4, 4 row - 4) and its walls lie 2 away from it.

There are two ways to ask which cell a point is in. The walls know the cell whose middle is nearest
(`Maze.cell`). D4RL's controller rounds down instead (`Maze.floor_cell`), which puts its cell lines through
the middles of the cells; the data was made that way, so the controller that makes ours does the same.
"""

import math
from collections import deque
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from jaxtyping import Bool, Float

from bcol.errors import InputError

Cell = tuple[int, int]
"""A cell of a maze: (row, column)."""

CELL_SIZE = 4.0
"""Width of a cell."""

GOAL_RADIUS = 0.5
"""A goal is reached at this distance of the torso from it, in the plane."""


@dataclass(frozen=True)
class Maze:
    """One maze: where the walls are, where goals lie and how long an episode may last."""

    name: str
    rows: tuple[str, ...]
    """The map, a string a row: `#` wall, `.` free, `g` free and a goal cell when data is collected."""
    test_goal: Cell
    """The cell whose goals are evaluated."""
    max_steps: int
    """Steps after which an episode is cut."""

    @cached_property
    def walls(self) -> Bool[np.ndarray, "rows columns"]:
        """True where a cell is a wall."""
        return np.array([[mark == "#" for mark in row] for row in self.rows])

    @cached_property
    def free_cells(self) -> list[Cell]:
        """Every cell that is no wall, row by row."""
        return [(int(row), int(column)) for row, column in np.argwhere(~self.walls)]

    @cached_property
    def goal_cells(self) -> list[Cell]:
        """The cells that data collection draws its goals from, row by row."""
        return [cell for cell in self.free_cells if self.rows[cell[0]][cell[1]] == "g"]

    def middle(self, cell: Cell) -> Float[np.ndarray, "2"]:
        """The middle of a cell as (x, y)."""
        row, column = cell
        return np.array([CELL_SIZE * column - CELL_SIZE, CELL_SIZE * row - CELL_SIZE])

    def cell(self, xy: Float[np.ndarray, "2"]) -> Cell:
        """The cell a point is in, by the walls; off the map if the point is."""
        return math.floor(xy[1] / CELL_SIZE + 1.5), math.floor(xy[0] / CELL_SIZE + 1.5)

    def is_free(self, xy: Float[np.ndarray, "2"]) -> bool:
        """Whether a point is inside the maze and not inside a wall."""
        row, column = self.cell(xy)
        inside = 0 <= row < len(self.rows) and 0 <= column < len(self.rows[0])
        return inside and self.rows[row][column] != "#"

    def floor_cell(self, xy: Float[np.ndarray, "2"]) -> Cell:
        """The cell by D4RL's count: 1 + floor(x / 4), nothing below the first. It can be a wall."""
        x, y = max(float(xy[0]), 0.0), max(float(xy[1]), 0.0)
        last_row, last_column = len(self.rows) - 1, len(self.rows[0]) - 1
        return min(int(1 + y / CELL_SIZE), last_row), min(int(1 + x / CELL_SIZE), last_column)

    def sample_goal(self, rng: np.random.Generator, cell: Cell, spread: float = 0.5) -> Float[np.ndarray, "2"]:
        """A goal in a cell: its middle + U(0, 1) + U(0, spread) per axis."""
        return self.middle(cell) + rng.uniform(0, 1, 2) + rng.uniform(0, spread, 2)


MAZES = {
    maze.name: maze
    for maze in (
        Maze(
            "umaze",
            (
                "#####",
                "#...#",
                "###.#",
                "#g..#",
                "#####",
            ),
            test_goal=(3, 1),
            max_steps=700,
        ),
        Maze(
            "medium",
            (
                "########",
                "#..##..#",
                "#..#..g#",
                "##...###",
                "#..#...#",
                "#g#..#.#",
                "#...#g.#",
                "########",
            ),
            test_goal=(6, 6),
            max_steps=1000,
        ),
        Maze(
            "large",
            (
                "############",
                "#....#g....#",
                "#.##.#.#.#.#",
                "#....g.#..g#",
                "#.####.###.#",
                "#.g#.#.....#",
                "##.#.#.#.###",
                "#..#g.g#.g.#",
                "############",
            ),
            test_goal=(7, 9),
            max_steps=1000,
        ),
    )
}
"""The mazes by name."""


def get_maze(name: str) -> Maze:
    """The maze of that name, or an `InputError` that lists the names there are."""
    if name not in MAZES:
        raise InputError(f"unknown maze {name!r}: choose one of {', '.join(MAZES)}")
    return MAZES[name]


@cache
def next_cells(maze: Maze, goal: Cell) -> dict[Cell, Cell]:
    """For every cell, the next one on a shortest path to `goal`; the goal follows itself.

    Walls beside a free cell are in the table too: by D4RL's count an ant near a wall can be "in" it. Between
    paths of equal length the first in the order left, right, down, up, seen from the goal, wins, as in D4RL.
    """
    walls = maze.walls
    towards = {goal: goal}
    queue = deque([goal])
    while queue:
        row, column = cell = queue.popleft()
        for neighbour in ((row, column - 1), (row, column + 1), (row + 1, column), (row - 1, column)):
            if neighbour not in towards:
                towards[neighbour] = cell
                if not walls[neighbour]:
                    queue.append(neighbour)
    return towards
