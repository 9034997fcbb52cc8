"""Blocks of whole episodes, each a function of its number alone: what workers make, in any order.

A block of a sampled policy has a fixed number of slots, each an environment that plays whole episodes until it has
enough rows. All slots decide in one batch of fixed size, so no bit depends on which worker plays a block, or when.
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
from bcol.forge.space import Space, space_of
from bcol.runs import RunError

SLOTS = 8
"""Environments in a block; fixed, because the size of a batch changes rounding."""

SLOT_ROWS = 1000
"""A slot plays episodes until it has this many rows, or a few more."""

MAZE_EPISODES = 2
"""Episodes in a block of AntMaze."""

Block = dict[str, Shaped[np.ndarray, "rows *shape"]]
"""The arrays of some whole episodes, one after the other, under D4RL's names."""


@dataclass(frozen=True, eq=False)
class Sampled:
    """Episodes of a sampled policy; in MuJoCo, `infos/qpos` and `infos/qvel` are the state *before* the step."""

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

    def check(self, space: Space) -> None:
        """InputError unless the policy is one for this environment."""
        s, a, bounds = self.behaviour.observation_dim, self.behaviour.action_dim, self.behaviour.bounds
        if (space.observation_dim, space.action_dim) != (s, a):
            raise InputError(f"the policy is for {s} observations and {a} actions, which {self.env} has not")
        if bounds is not None and not np.allclose(bounds, (space.low, space.high)):
            raise InputError(f"{self.behaviour.source} acts within other bounds than those of {self.env}")

    def block(self, number: int) -> Block:
        """Play block `number`."""
        worlds, space, limit = _worlds(self.env)
        tape = _Tape(worlds, space, limit, (self.seed, crc32(self.name.encode()), number))
        running = np.arange(SLOTS)
        while len(running):
            mean, log_std = self.behaviour.distribution(tape.seen)
            noise = tape.noise[running, tape.length[running]]
            mean, log_std = mean[running], log_std[running]
            running = tape.step(running, mean + np.exp(log_std) * noise, mean, log_std)
        return tape.arrays()


class _Tape:
    """The environments of a block and what they have recorded: arrays by slot and row, filled as time goes on."""

    def __init__(self, worlds: list[Any], space: Space, limit: int, key: tuple[int, ...]):
        self._worlds, self._space, self._limit, self._key = worlds, space, limit, key
        s, a = space.observation_dim, space.action_dim
        simulators = [getattr(world.unwrapped, "data", None) for world in worlds]
        self._simulators: list[Any] | None = simulators if hasattr(simulators[0], "qpos") else None

        def empty(*shape: int, dtype: Any = np.float32) -> np.ndarray:
            # The last episode of a slot begins before its row SLOT_ROWS.
            return np.empty((SLOTS, SLOT_ROWS + limit, *shape), dtype)

        self._before, self._after, self._action = empty(s), empty(s), empty(a)
        self._inside, self._mean, self._log_std = empty(a), empty(a), empty(a)
        self._reward, self._terminal, self._timeout = empty(), empty(dtype=bool), empty(dtype=bool)
        if self._simulators is not None:
            self._qpos, self._qvel = (
                empty(len(getattr(self._simulators[0], name)), dtype=np.float64) for name in ("qpos", "qvel")
            )
        self._episodes, self._rows = [0] * SLOTS, np.zeros(SLOTS, int)
        self.seen, self.noise = np.zeros((SLOTS, s), np.float32), np.zeros((SLOTS, limit, a), np.float32)
        self._shaped = self.seen.reshape(SLOTS, *worlds[0].observation_space.shape)
        self.length = np.zeros(SLOTS, int)
        for i in range(SLOTS):
            self._begin(i)

    def _begin(self, i: int) -> None:
        random = np.random.default_rng((*self._key, i, self._episodes[i]))
        self._shaped[i] = self._worlds[i].reset(seed=int(random.integers(2**31)))[0]
        self.noise[i] = random.standard_normal(self.noise.shape[1:], np.float32)
        self._episodes[i] += 1
        self.length[i] = 0

    def step(self, running: np.ndarray, inside: np.ndarray, mean: np.ndarray, log_std: np.ndarray) -> np.ndarray:
        """One step of the running slots, with the actions tanh(inside); the slots that go on."""
        action = self._space.scaled(np.tanh(inside))
        commands = action.reshape(len(action), *self._worlds[0].action_space.shape)
        at = running, self._rows[running]
        self._before[at], self._action[at] = self.seen[running], action
        self._inside[at], self._mean[at], self._log_std[at] = inside, mean, log_std
        ended = []
        for i, row, command in zip(running.tolist(), at[1].tolist(), commands, strict=True):
            if self._simulators is not None:
                data = self._simulators[i]
                self._qpos[i, row], self._qvel[i, row] = data.qpos, data.qvel
            self._shaped[i], self._reward[i, row], terminal, truncated, _ = self._worlds[i].step(command)
            self._terminal[i, row] = terminal
            if terminal or truncated:
                ended.append(i)
        self._after[at] = self.seen[running]
        self._rows[running] += 1
        self.length[running] += 1
        ended = sorted({*ended, *running[self.length[running] == self._limit].tolist()})
        self._timeout[at] = np.isin(running, ended) & ~self._terminal[at]
        if not ended:
            return running
        done = {i for i in ended if self._rows[i] >= SLOT_ROWS}
        for i in ended:
            if i not in done:
                self._begin(i)
        return np.array([i for i in running.tolist() if i not in done], int)

    def arrays(self) -> Block:
        """Everything recorded, slot after slot."""

        def joined(array: np.ndarray) -> np.ndarray:
            return np.concatenate([array[i, : self._rows[i]] for i in range(SLOTS)])

        arrays: Block = {
            "observations": joined(self._before),
            "actions": joined(self._action),
            "rewards": joined(self._reward),
            "terminals": joined(self._terminal),
            "timeouts": joined(self._timeout),
            "next_observations": joined(self._after),
        }
        if self._simulators is not None:
            arrays |= {"infos/qpos": joined(self._qpos), "infos/qvel": joined(self._qvel)}
        logged = log_probability(*(joined(x) for x in (self._mean, self._log_std, self._inside)))
        logged -= np.log(self._space.half_range).sum()  # a density is per unit of the action
        if not all(np.isfinite(arrays[name]).all() for name in ("next_observations", "rewards")):
            raise RunError("the environment gave NaN or infinite observations or rewards")
        return arrays | {"infos/action_log_probs": logged.astype(np.float32)}


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

    def check(self, space: Space) -> None:
        """Nothing to add: sizes were looked at when the policy was read."""

    def block(self, number: int) -> Block:
        """Play block `number`."""
        numbers = range(MAZE_EPISODES * number, MAZE_EPISODES * (number + 1))
        parts = [make_episode(self.name, self.policy, self.seed, episode) for episode in numbers]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


@cache
def _worlds(env: str) -> tuple[list[Any], Space, int]:
    """The environments of this process, their space, and the limit on steps."""
    made = [make_environment(env, disable_env_checker=True) for _ in range(SLOTS)]
    limit = made[0].spec.max_episode_steps
    if limit is None:
        raise InputError(f"{env} has no limit on steps: register it with max_episode_steps")
    return [_bare(world) for world in made], space_of(made[0], env), int(limit)


def _bare(world: Any) -> Any:
    """Without what `gymnasium.make` puts around it, a limit on steps and a guard: they cost time at every step."""
    from gymnasium.wrappers import OrderEnforcing, TimeLimit

    world = world.env if isinstance(world, TimeLimit) else world
    return world.env if isinstance(world, OrderEnforcing) else world
