"""D4RL's AntMaze as a Gymnasium environment: the robot of the `ogbench` package in D4RL's mazes."""

from typing import Any

import mujoco
import numpy as np
from gymnasium.utils import EzPickle
from jaxtyping import Float

from bcol.envs.ant import Ant
from bcol.envs.maze import CELL_SIZE, GOAL_RADIUS, get_maze
from bcol.errors import InputError

WALL_HEIGHT = 2.0


class AntMazeEnv(Ant):
    """An ant that starts at the origin of a maze and has to find the goal at its other end.

    Observation: `qpos` (15: x, y, z, quaternion, 8 joint angles) and `qvel` (14); the goal is not in it.
    Action: 8 torques in [-1, 1]. The reward is 1 at the goal, which ends the episode, and 0 elsewhere. The
    limit on steps comes with the registered ids (`bcol/AntMaze-umaze-v0`), not with this class.

    `reset` draws a new goal each time. Its `options` may fix it: `goal` is the (x, y) of the goal and `start`
    the (x, y) of the ant, which is then exact (without it, the start is the origin with the reset noise).
    """

    def __init__(self, maze: str = "umaze", render_mode: str | None = None, **kwargs: Any) -> None:
        """Build the maze.

        Args:
            maze: "umaze", "medium" or "large".
            render_mode: one of Gymnasium's modes for MuJoCo, or None.
            kwargs: what else Gymnasium's `MujocoEnv` takes, such as `width` and `height`.
        """
        self.maze = get_maze(maze)
        self.goal = np.zeros(2)
        height, width = self.maze.walls.shape
        from_above = {
            "lookat": np.array([CELL_SIZE / 2 * (width - 3), CELL_SIZE / 2 * (height - 3), 0.0]),
            "distance": 1.25 * CELL_SIZE * width,
            "elevation": -90.0,
            "azimuth": 90.0,
        }
        super().__init__(render_mode=render_mode, default_camera_config=from_above, **kwargs)
        # The parent remembers its own arguments for copies; a copy of this class needs these.
        EzPickle.__init__(self, maze, render_mode, **kwargs)

    def furnish(self, spec: mujoco.MjSpec) -> None:
        """Add the walls and a mark at the goal."""
        for row, column in np.argwhere(self.maze.walls).tolist():
            x, y = self.maze.middle((row, column))
            spec.worldbody.add_geom(
                name=f"wall_{row}_{column}",
                type=mujoco.mjtGeom.mjGEOM_BOX,
                pos=[x, y, WALL_HEIGHT / 2],
                size=[CELL_SIZE / 2, CELL_SIZE / 2, WALL_HEIGHT / 2],
                contype=1,
                conaffinity=1,
                material="wall",
            )
        spec.worldbody.add_site(
            name="goal", type=mujoco.mjtGeom.mjGEOM_CYLINDER, size=[GOAL_RADIUS, 0.05, 0.0], material="target"
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float[np.ndarray, "29"], dict[str, Any]]:
        """Start an episode; `options` may hold `goal` and `start`, both (x, y)."""
        options = options or {}
        if unknown := set(options) - {"goal", "start"}:
            raise InputError(f"unknown reset option {sorted(unknown)[0]!r}: AntMaze knows goal and start")
        places = {name: self._place(name, options[name]) for name in options}
        super().reset(seed=seed)
        # The goal is drawn even when it is given, so that giving it does not change the draws that follow.
        drawn = self.maze.sample_goal(self.np_random, self.maze.test_goal)
        self.goal = places.get("goal", drawn)
        self.model.site("goal").pos[:2] = self.goal
        self.set_xy(places.get("start", self.get_xy()))
        return self.get_ob(), {"goal": self.goal.copy()}

    def step(self, action: Float[np.ndarray, "8"]) -> tuple[Float[np.ndarray, "29"], float, bool, bool, dict[str, Any]]:
        """One decision: 5 simulator steps of 0.02 s. `info` holds the goal and whether it is reached."""
        if np.shape(action) != (8,) or not np.isfinite(action).all():
            raise InputError(f"an AntMaze action is 8 finite numbers in [-1, 1], not {np.shape(action)}")
        self.do_simulation(action, self.frame_skip)
        success = bool(np.linalg.norm(self.data.qpos[:2] - self.goal) <= GOAL_RADIUS)
        if self.render_mode == "human":
            self.render()
        return self.get_ob(), float(success), success, False, {"goal": self.goal.copy(), "success": success}

    def _place(self, name: str, xy: Any) -> Float[np.ndarray, "2"]:
        """A point given by the caller, checked."""
        try:
            place = np.array(xy, dtype=np.float64)
        except (TypeError, ValueError):
            place = np.empty(0)
        if place.shape != (2,) or not np.isfinite(place).all():
            raise InputError(f"{name} must be two finite numbers (x, y), not {xy!r}")
        if name == "start" and not self.maze.is_free(place):
            raise InputError(f"start ({place[0]:g}, {place[1]:g}) is in no free cell of maze {self.maze.name}")
        return place
