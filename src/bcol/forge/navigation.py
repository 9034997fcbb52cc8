"""The high level of AntMaze's data: from cell to cell along the shortest path, a waypoint at a time."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from bcol.envs.maze import CELL_SIZE, Maze, next_cells
from bcol.errors import InputError
from bcol.forge.goal_policy import GoalReaching, goal_features

WAYPOINT_NOISE = 1.0
LOOKAHEAD = 1.0


@dataclass(frozen=True)
class Navigator:
    """D4RL's controller: points the policy at the next cell of the shortest path, in the end at the goal.

    Cells are counted by `Maze.floor_cell`, so the waypoint changes where the ant crosses a line through the
    middles of cells. The waypoint is the middle of the next cell + U(0, 1) per axis, drawn anew every step:
    the noise carries the ant over the line, and makes the data as erratic as it is.
    """

    maze: Maze
    policy: GoalReaching
    goal: Float[np.ndarray, "2"]

    def waypoint(self, xy: Float[np.ndarray, "2"], rng: np.random.Generator) -> Float[np.ndarray, "2"]:
        """Where to head for from `xy`."""
        goal_cell = self.maze.floor_cell(self.goal)
        cell = next_cells(self.maze, goal_cell)[self.maze.floor_cell(xy)]
        if cell == goal_cell:
            return self.goal
        return self.maze.middle(cell) + rng.uniform(0, WAYPOINT_NOISE, 2)

    def act(self, observation: Float[np.ndarray, "29"], rng: np.random.Generator) -> Float[np.ndarray, "8"]:
        """Draw the next action."""
        offset = self.waypoint(observation[:2], rng) - observation[:2]
        return self.policy(goal_features(observation, offset), rng)


@dataclass(frozen=True)
class CleanNavigator(Navigator):
    """A controller without noise, to judge a goal-reaching policy by: it keeps to the middle of corridors.

    It follows the line from the middle of the ant's cell to the middle of the next one, always heading for
    the point of that line a unit ahead, which takes the ant round corners with room for its legs.
    """

    def __post_init__(self) -> None:
        """Refuse goals that cannot be walked to."""
        if not self.maze.is_free(self.goal):
            raise InputError(f"goal {self.goal.tolist()} is in no free cell of maze {self.maze.name}")

    def waypoint(self, xy: Float[np.ndarray, "2"], rng: np.random.Generator) -> Float[np.ndarray, "2"]:
        """Where to head for from `xy`; nothing is drawn."""
        cell, goal_cell = self.maze.cell(xy), self.maze.cell(self.goal)
        if cell == goal_cell:
            return self.goal
        middle = self.maze.middle(cell)
        along = (self.maze.middle(next_cells(self.maze, goal_cell)[cell]) - middle) / CELL_SIZE
        done = max(float((xy - middle) @ along), 0.0)
        return middle + (done + LOOKAHEAD) * along
