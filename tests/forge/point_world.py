"""A world that is solved in seconds: a point on a line that should be brought to 0."""

from typing import ClassVar

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


class PlaneEnv(gymnasium.Env):
    """A point in a square: terminal at its left edge, truncated at its lower one; actions are a column of two."""

    metadata: ClassVar[dict] = {"render_modes": ["rgb_array"], "render_fps": 10}
    observation_space = Box(-1, 1, (2,), np.float32)
    action_space = Box(np.array([[-3], [-2]], np.float32), np.array([[1], [0.5]], np.float32))

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def render(self):
        return np.zeros((8, 8, 3), np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._x = self.np_random.uniform(-0.5, 0.5, 2).astype(np.float32)
        return self._x.copy(), {}

    def step(self, action):
        self._x = np.clip(self._x + 0.05 * action[:, 0], -1, 1).astype(np.float32)
        left, low = (self._x <= -1).tolist()
        return self._x.copy(), float(self._x[0]), left, low, {}


class Tenfold(gymnasium.RewardWrapper):
    """A wrapper that belongs to the environment: without it, rewards are wrong."""

    def __init__(self, env):
        super().__init__(env)

    def reward(self, reward):
        return 10 * reward


class BlindEnv(PlaneEnv):
    """Sees nothing after a while."""

    def step(self, action):
        seen, *rest = super().step(action)
        return seen if seen[1] > -0.5 else np.full(2, np.nan, np.float32), *rest


def plane(render_mode=None):
    return Tenfold(PlaneEnv(render_mode))


def short_plane():
    return gymnasium.wrappers.TimeLimit(PlaneEnv(), 5)


WORLDS = {"Point": "PointEnv", "Broken": "BrokenEnv", "Plane": "plane", "Short": "short_plane", "Blind": "BlindEnv"}
for name, made_by in WORLDS.items():
    if f"{name}-v0" not in gymnasium.registry:
        gymnasium.register(f"{name}-v0", entry_point=f"point_world:{made_by}", max_episode_steps=20)
