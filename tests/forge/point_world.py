"""A world that is solved in seconds: a point on a line that should be brought to 0."""

import gymnasium
import numpy as np
from gymnasium.spaces import Box


class PointEnv(gymnasium.Env):
    """Position in [-2, 2], moved by up to 0.4 a step; the reward is minus its distance from 0, best return about -2."""

    observation_space = Box(-2, 2, (1,), np.float64)
    action_space = Box(-3, 3, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._x = float(self.np_random.uniform(-1, 1))
        return np.array([self._x]), {}

    def step(self, action):
        self._x = float(np.clip(self._x + 0.4 * action[0] / 3, -2, 2))
        return np.array([self._x]), -abs(self._x), False, False, {}


class BrokenEnv(PointEnv):
    """Fails at the first step."""

    def step(self, action):
        raise ValueError("the robot is broken\nin two lines")


for name in ("Point", "Broken"):
    if f"{name}-v0" not in gymnasium.registry:
        gymnasium.register(f"{name}-v0", entry_point=f"point_world:{name}Env", max_episode_steps=20)
