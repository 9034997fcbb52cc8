"""An ant that is told where to walk: the world in which the low level of AntMaze's data is trained."""

from typing import Any

import numpy as np
from gymnasium.spaces import Box
from gymnasium.utils import EzPickle
from jaxtyping import Float

from bcol.envs.ant import Ant, upside_down
from bcol.errors import InputError
from bcol.forge.goal_policy import FEATURES, goal_features

TURN_EVERY = 100
"""Mean number of steps between new directions; a turn can come at any step, so none can be prepared for."""

ACTION_NOISE = 0.2
"""Standard deviation of the noise on actions in half of the episodes: the data's recipe adds it too."""

KICK_EVERY, KICK = 100, 0.5
"""About every so many steps the torso's six velocities change by this times N(0, 1): walls do that to the ant."""


class AntDirectionsEnv(Ant):
    """Walk along the commanded direction, which changes without warning, and do not fall over.

    Observation: what a goal-reaching policy sees (`goal_features`): `qpos[2:15]`, `qvel` and the direction, of
    length 10. Action: 8 torques in [-1, 1]. The reward is the speed along the direction, in units per second. An
    episode ends when the ant lies on its back.

    Directions are uniform on the circle. In half of the episodes the actions are disturbed as in the data's recipe, and
    in all of them the torso is kicked now and then: an ant that has only known undisturbed ground falls in mazes.
    """

    def __init__(self, render_mode: str | None = None, **kwargs: Any) -> None:
        """Build the world; arguments as for `Ant`."""
        super().__init__(render_mode=render_mode, **kwargs)
        self.observation_space = Box(-np.inf, np.inf, (FEATURES,), np.float64)
        self._direction, self._noise = np.array([1.0, 0.0]), 0.0
        EzPickle.__init__(self, render_mode, **kwargs)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float[np.ndarray, "29"], dict[str, Any]]:
        """Start an episode, with a direction of its own."""
        super().reset(seed=seed)
        self._noise = ACTION_NOISE * self.np_random.integers(2)
        self._turn()
        return self._features(), {}

    def step(self, action: Float[np.ndarray, "8"]) -> tuple[Float[np.ndarray, "29"], float, bool, bool, dict[str, Any]]:
        """One decision, 0.1 s. `info` holds the direction that was walked in."""
        if np.shape(action) != (8,) or not np.isfinite(action).all():
            raise InputError(f"an action of the ant is 8 finite numbers in [-1, 1], not {np.shape(action)}")
        before, direction = self.data.qpos[:2].copy(), self._direction
        disturbed = action + self._noise * self.np_random.standard_normal(8)
        self.do_simulation(np.clip(disturbed, -1, 1), self.frame_skip)
        speed = float((self.data.qpos[:2] - before) @ direction) / self.dt
        fallen = bool(upside_down(self.data.qpos))
        turn, kick = self.np_random.random(2)
        if turn < 1 / TURN_EVERY:
            self._turn()
        if kick < 1 / KICK_EVERY:
            self.data.qvel[:6] += KICK * self.np_random.standard_normal(6)
        if self.render_mode == "human":
            self.render()
        return self._features(), speed, fallen, False, {"direction": direction.copy()}

    def _turn(self) -> None:
        angle = self.np_random.uniform(0, 2 * np.pi)
        self._direction = np.array([np.cos(angle), np.sin(angle)])

    def _features(self) -> Float[np.ndarray, "29"]:
        return goal_features(self.get_ob(), self._direction)
