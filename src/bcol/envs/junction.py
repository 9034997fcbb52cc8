"""The junction: the grid world's story in the plane, small enough to learn in a minute.

A point moves by up to `STEP` per step. The logged behaviour has two habits: the common one goes up from the start, far
around, and down to the goal; the rare one comes from the left, crosses it, passes above the pit and is there soon.
From the start, one deviation where the two cross is worth most.
"""

from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Float

from bcol.data.log import make_log
from bcol.data.transitions import Transitions, pair

STEP = 0.25
NOISE = 0.02
LIMIT = 100
LOW, HIGH = np.array([-2.0, -1.0]), np.array([5.0, 4.0])
GOAL, GOAL_RADIUS = np.array([3.0, 0.0]), 0.3
PIT, PIT_RADIUS = np.array([1.5, -0.1]), 0.5
PIT_COST = 5.0
STEP_COST = 0.1

HABITS = {
    "common": np.array([[0.0, -0.75], [0.0, 2.75], [4.2, 2.75], [4.2, 0.0], [3.0, 0.0]]),
    "rare": np.array([[-1.5, -0.5], [1.5, 1.3], [3.0, 0.0]]),
}
"""Waypoints of each habit, from its start to the goal."""


class Junction(gymnasium.Env):
    """Observation: position [2]. Action: displacement [2] in [-1, 1], in units of STEP. Every step costs 0.1."""

    observation_space = gymnasium.spaces.Box(LOW.astype(np.float32), HIGH.astype(np.float32))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))

    def __init__(self, habit: str = "common"):
        """Start where `habit` starts."""
        self._start = HABITS[habit][0]
        self._position = self._start

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Place the point near the start."""
        super().reset(seed=seed, options=options)
        self._position = self._start + self.np_random.uniform(-0.05, 0.05, 2)
        return self._position.astype(np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Move; the goal and the pit end the episode."""
        move = STEP * np.clip(action, -1, 1) + self.np_random.normal(0, NOISE, 2)
        self._position = np.clip(self._position + move, LOW, HIGH)
        fell = bool(np.linalg.norm(self._position - PIT) < PIT_RADIUS)
        reached = bool(np.linalg.norm(self._position - GOAL) < GOAL_RADIUS)
        reward = -STEP_COST - PIT_COST * fell
        return self._position.astype(np.float32), reward, fell or reached, False, {}


def log(
    episodes: int = 300, rare: float = 0.15, noise: float = 0.15, random_share: float = 0.1, seed: int = 0
) -> Transitions:
    """Logged episodes of both habits, `rare` of them of the rare one, with Gaussian `noise` on every action."""
    random = np.random.default_rng(seed)
    rows: dict[str, list[Any]] = {name: [] for name in ("observations", "actions", "rewards", "terminals", "timeouts")}
    for i in range(episodes):
        habit = "rare" if i < rare * episodes else "common"
        world = Junction(habit)
        observation, _ = world.reset(seed=int(random.integers(2**31)))
        towards, ended, t = 1, False, 0
        while not ended and t < LIMIT:
            action, towards = _towards(HABITS[habit], towards, observation)
            action = np.clip(action + random.normal(0, noise, 2), -1, 1)
            if random.random() < random_share:
                action = random.uniform(-1, 1, 2)
            action = action.astype(np.float32)
            after, reward, ended, _, _ = world.step(action)
            t += 1
            for name, value in zip(rows, (observation, action, reward, ended, t == LIMIT and not ended), strict=True):
                rows[name].append(value)
            observation = after
    arrays = {name: np.array(values) for name, values in rows.items()}
    return pair(make_log(**arrays, source="junction", action_bounds=(-1.0, 1.0), env_id="bcol/Junction-v0"))


def _towards(way: Float[np.ndarray, "k 2"], k: int, position: np.ndarray) -> tuple[np.ndarray, int]:
    """The action towards waypoint k, or the next one if that is reached."""
    if k < len(way) - 1 and np.linalg.norm(way[k] - position) < STEP:
        k += 1
    gap = way[k] - position
    return gap / max(float(np.linalg.norm(gap)), STEP), k
