"""Blocks of whole episodes, each a function of its number alone: what workers make, in any order.

A block of locomotion has a fixed number of slots, each an environment that plays whole episodes until it has enough
rows. All slots decide in one batch of fixed size, so no bit depends on which worker plays a block, or when.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any
from zlib import crc32

import numpy as np
from jaxtyping import Shaped

from bcol.errors import InputError
from bcol.evaluate import make_environment
from bcol.forge.antmaze import get_recipe, make_episode
from bcol.forge.behaviour import Behaviour, log_probability
from bcol.forge.goal_policy import GoalPolicy

SLOTS = 8
"""Environments in a block; fixed, because the size of a batch changes rounding."""

SLOT_ROWS = 1000
"""A slot plays episodes until it has this many rows, or a few more."""

MAZE_EPISODES = 2
"""Episodes in a block of AntMaze."""

Block = dict[str, Shaped[np.ndarray, "rows *shape"]]
"""The arrays of some whole episodes, one after the other, under D4RL's names."""


@dataclass(frozen=True, eq=False)
class Locomotion:
    """Episodes of a sampled policy; `infos/qpos` and `infos/qvel` are the simulator's state *before* the step."""

    env: str
    behaviour: Behaviour
    seed: int
    name: str
    """In the seed, so that parts of datasets are different draws."""

    least_rows = SLOTS * SLOT_ROWS

    @property
    def checksum(self) -> str:
        """Of the policy."""
        return self.behaviour.checksum

    def block(self, number: int) -> Block:
        """Play block `number`."""
        worlds, limit = _worlds(self.env)
        slots = [
            _Slot(world, limit, (self.seed, crc32(self.name.encode()), number, i)) for i, world in enumerate(worlds)
        ]
        a, s = self.behaviour.action_dim, self.behaviour.observation_dim
        if slots[0].seen.shape != (s,) or worlds[0].action_space.shape != (a,):
            raise InputError(f"the policy is for {s} observations and {a} actions, which {self.env} has not")
        most = SLOT_ROWS + limit
        seen = np.zeros((SLOTS, s), np.float32)
        inside, means, log_stds = (np.empty((SLOTS, most, a), np.float32) for _ in range(3))
        running = list(range(SLOTS))
        while running:
            for i in running:
                seen[i] = slots[i].seen
            mean, log_std = self.behaviour.distribution(seen)
            noise = np.array([slot.noise for slot in slots])
            drawn = mean + np.exp(log_std) * noise
            action = np.tanh(drawn)
            for i in running:
                row = slots[i].rows
                inside[i, row], means[i, row], log_stds[i, row] = drawn[i], mean[i], log_std[i]
                slots[i].step(action[i])
            running = [i for i in running if not slots[i].done]
        block = [slot.arrays() for slot in slots]
        arrays = {name: np.concatenate([part[name] for part in block]) for name in block[0]}
        rows = [(i, slice(slot.rows)) for i, slot in enumerate(slots)]
        parts = [log_probability(means[at], log_stds[at], inside[at]) for at in rows]
        return arrays | {"infos/action_log_probs": np.concatenate(parts).astype(np.float32)}


class _Slot:
    """An environment of a block, and the rows it has recorded."""

    def __init__(self, world: Any, limit: int, key: tuple[int, ...]):
        self._world, self._limit, self._key = world, limit, key
        self._simulated = hasattr(world, "data") and hasattr(world.data, "qpos")
        self._episodes, self.rows, self.done = 0, 0, False
        self._before: list[np.ndarray] = []
        self._after: list[np.ndarray] = []
        self._columns: list[tuple] = []
        self._states: list[tuple] = []
        self._begin()

    def _begin(self) -> None:
        random = np.random.default_rng((*self._key, self._episodes))
        self.seen = self._world.reset(seed=int(random.integers(2**31)))[0]
        self._noises = random.standard_normal((self._limit, self._world.action_space.shape[0]), np.float32)
        self._episodes += 1
        self._length = 0
        self.noise = self._noises[0]

    def step(self, action: np.ndarray) -> None:
        """Take an action, record it, and begin the next episode if this one is over."""
        if self._simulated:
            data = self._world.data
            self._states.append((data.qpos.copy(), data.qvel.copy()))
        after, reward, terminated, _, _ = self._world.step(action)
        self._length += 1
        self.rows += 1
        over = self._length == self._limit and not terminated
        self._before.append(self.seen)
        self._after.append(after)
        self._columns.append((action, reward, terminated, over))
        self.seen = after
        if terminated or over:
            self.done = self.rows >= SLOT_ROWS
            if not self.done:
                self._begin()
        else:
            self.noise = self._noises[self._length]

    def arrays(self) -> Block:
        """Everything recorded."""
        actions, rewards, terminals, timeouts = zip(*self._columns, strict=True)
        arrays: Block = {
            "observations": np.array(self._before, np.float32),
            "actions": np.array(actions, np.float32),
            "rewards": np.array(rewards, np.float32),
            "terminals": np.array(terminals, bool),
            "timeouts": np.array(timeouts, bool),
            "next_observations": np.array(self._after, np.float32),
        }
        if self._simulated:
            qpos, qvel = zip(*self._states, strict=True)
            arrays |= {"infos/qpos": np.array(qpos), "infos/qvel": np.array(qvel)}
        return arrays


@dataclass(frozen=True, eq=False)
class AntMaze:
    """Episodes of a noisy controller in a maze (see `antmaze`)."""

    name: str
    policy: GoalPolicy
    seed: int

    @property
    def least_rows(self) -> int:
        """Rows in every block."""
        return MAZE_EPISODES * get_recipe(self.name).rows

    @property
    def checksum(self) -> str:
        """Of the policy."""
        return self.policy.checksum

    def block(self, number: int) -> Block:
        """Play block `number`."""
        numbers = range(MAZE_EPISODES * number, MAZE_EPISODES * (number + 1))
        parts = [make_episode(self.name, self.policy, self.seed, episode) for episode in numbers]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


@cache
def _worlds(env: str) -> tuple[list[Any], int]:
    """The environments of this process, without wrappers (they cost time at every step), and the limit on steps."""
    made = [make_environment(env, disable_env_checker=True) for _ in range(SLOTS)]
    limit = made[0].spec.max_episode_steps
    if limit is None:
        raise InputError(f"{env} has no limit on steps: register it with max_episode_steps")
    return [world.unwrapped for world in made], int(limit)
