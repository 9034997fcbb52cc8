"""A grid world with two habits: the smallest problem where one counterfactual decision changes everything.

A map is text: rows of cells, an empty line, then one line per habit.

    .   free     #   wall     F   fail: ends the episode at a cost     G   goal: ends it
    any other letter: a free cell with a name, where a habit may start; the first habit's start is the start

    common 190 S E2 N7 E9 S7 W2 N3      name, logged episodes, start, moves (N E S W, with counts)
"""

import re
from collections import deque
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from jaxtyping import Bool, Float, Int

from bcol.errors import InputError
from bcol.tabular.estimate import Episode

ACTIONS = "NESW"
_STEPS = ((-1, 0), (0, 1), (1, 0), (0, -1))

STITCH = """
............
...########.
...#......#.
...#......#.
T.....F..G#.
...#..F...#.
...######.#.
S..######...

common 180 S E2 N7 E9 S7 W2 N3
rare    20 T E4 N2 E4 S2 E1
"""
"""The default map: the common habit walks around the building, the rare one goes through it, past the pit."""


@dataclass(frozen=True)
class Habit:
    """A way of acting seen in the log.

    Attributes:
        name: what the map calls it.
        episodes: how many logged episodes follow it.
        path: the cells it passes when nothing goes wrong, from its start to the goal.
        action: what it does in every cell; beside its path it makes for the nearest cell of it.
    """

    name: str
    episodes: int
    path: list[int]
    action: Int[np.ndarray, " S"]


@dataclass(frozen=True)
class GridWorld:
    """The cells, who was logged in them, and the true dynamics.

    Attributes:
        cells: (row, column) of each state.
        letters: what the map says of each state.
        habits: the logged ways of acting; the first one's start is where policies are compared.
        slip: chance that a move goes to one of its two sides instead.
        fail_cost: what falling into F costs, beside the 1 that every step costs.
    """

    cells: Int[np.ndarray, "S 2"]
    letters: str
    habits: list[Habit]
    slip: float
    fail_cost: float

    @property
    def start(self) -> int:
        """Where the first habit starts."""
        return self.habits[0].path[0]

    @cached_property
    def terminal(self) -> Bool[np.ndarray, " S"]:
        """Whether a state ends the episode."""
        return np.array([letter in "FG" for letter in self.letters])

    @cached_property
    def entry_cost(self) -> Float[np.ndarray, " S"]:
        """What a step costs that ends in this state."""
        return np.array([1.0 + self.fail_cost * (letter == "F") for letter in self.letters])

    @cached_property
    def destination(self) -> Int[np.ndarray, "S 4"]:
        """Where each move leads without slipping; off the map or into a wall it leads nowhere."""
        return _destinations(self.cells)

    @cached_property
    def transition(self) -> sp.csr_array:
        """The true P(s'|s, a), sparse [S*4, S]."""
        n = len(self.cells)
        probability = sp.csr_array((n * 4, n))
        for turn, chance in ((0, 1 - self.slip), (1, self.slip / 2), (3, self.slip / 2)):
            to = np.roll(self.destination, -turn, axis=1)
            to = np.where(self.terminal[:, None], np.arange(n)[:, None], to).ravel()
            probability = probability + sp.csr_array((np.full(n * 4, chance), (np.arange(n * 4), to)), shape=(n * 4, n))
        return probability

    @cached_property
    def reward(self) -> Float[np.ndarray, "S 4"]:
        """The true r(s, a): minus the expected cost of the step."""
        cost = (self.transition @ self.entry_cost).reshape(-1, 4)
        return np.where(self.terminal[:, None], 0.0, -cost)

    def step(
        self, state: Int[np.ndarray, " n"], action: Int[np.ndarray, " n"], random: np.random.Generator
    ) -> tuple[Int[np.ndarray, " n"], Float[np.ndarray, " n"]]:
        """Next states and rewards of n episodes; those that have ended stay where they are and pay nothing."""
        turn = random.choice([0, 1, 3], size=len(state), p=[1 - self.slip, self.slip / 2, self.slip / 2])
        ended = self.terminal[state]
        moved = np.where(ended, state, self.destination[state, (action + turn) % 4])
        return moved, np.where(ended, 0.0, -self.entry_cost[moved])

    def log(self, noise: float = 0.05, seed: int = 0, limit: int = 1000) -> list[Episode]:
        """Episodes of every habit, in which each decision is a random one with probability `noise`."""
        random = np.random.default_rng(seed)
        return [self._logged(habit, noise, random, limit) for habit in self.habits for _ in range(habit.episodes)]

    def _logged(self, habit: Habit, noise: float, random: np.random.Generator, limit: int) -> Episode:
        state = np.array(habit.path[:1])
        states: list[int] = [habit.path[0]]
        actions: list[int] = []
        rewards: list[float] = []
        while not self.terminal[state[0]] and len(actions) < limit:
            action = random.integers(4, size=1) if random.random() < noise else habit.action[state]
            state, reward = self.step(state, action, random)
            states.append(int(state[0]))
            actions.append(int(action[0]))
            rewards.append(float(reward[0]))
        return Episode(np.array(states), np.array(actions), np.array(rewards), bool(self.terminal[state[0]]))


def parse(text: str = STITCH, slip: float = 0.02, fail_cost: float = 50.0) -> GridWorld:
    """Read a map (see the top of this module); InputError names the line that is wrong."""
    if not 0 <= slip < 1:
        raise InputError(f"slip must lie in [0, 1): got {slip}")
    if not fail_cost >= 0:
        raise InputError(f"fail_cost must be 0 or more: got {fail_cost}")
    grid, _, habit_lines = text.strip("\n").partition("\n\n")
    rows = grid.split("\n")
    for i, row in enumerate(rows):
        if len(row) != len(rows[0]) or not re.fullmatch(r"[A-Za-z.#]+", row):
            raise InputError(f"map row {i + 1} must be {len(rows[0])} of '.', '#' and letters: got {row!r}")
    cells = np.array([(r, c) for r, row in enumerate(rows) for c, x in enumerate(row) if x != "#"]).reshape(-1, 2)
    letters = "".join(rows).replace("#", "")
    if "G" not in letters:
        raise InputError("the map has no goal: mark one cell G")
    habits = [_habit(line, cells, letters) for line in habit_lines.split("\n") if line.strip()]
    if not habits:
        raise InputError("the map has no habit: after an empty line, add one such as 'common 190 S E2 N7'")
    return GridWorld(cells, letters, habits, slip, fail_cost)


def _habit(line: str, cells: np.ndarray, letters: str) -> Habit:
    words = re.fullmatch(r"\s*(\w+)\s+([1-9]\d*)\s+([A-Za-z])((?:\s+[NESW]\d*)+)\s*", line)
    if words is None:
        raise InputError(f"a habit must read 'name episodes start moves', such as 'common 190 S E2 N7': got {line!r}")
    name, episodes, start, moves = words.groups()
    if letters.count(start) != 1:
        raise InputError(f"habit {name!r} starts at {start!r}, which must mark exactly one cell of the map")
    destination = _destinations(cells)
    path = [letters.index(start)]
    action = np.full(len(cells), -1)
    for direction, count in re.findall(r"([NESW])(\d*)", moves):
        for _ in range(int(count or 1)):
            action[path[-1]] = ACTIONS.index(direction)
            path.append(int(destination[path[-1], action[path[-1]]]))
    if letters[path[-1]] != "G" or len(set(path)) != len(path):
        raise InputError(
            f"habit {name!r} must walk from {start} to G without walls or loops: it ends in {cells[path[-1]]}"
        )
    return Habit(name, int(episodes), path, _towards(action, path, destination))


def _towards(action: np.ndarray, path: list[int], destination: np.ndarray) -> Int[np.ndarray, " S"]:
    """Complete the actions along a path by breadth-first search: off it, step towards the nearest cell of it."""
    action = action.copy()
    action[path[-1]] = 0
    frontier = deque(path)
    while frontier:
        cell = frontier.popleft()
        for origin, move in np.argwhere(destination == cell):
            if action[origin] < 0:
                action[origin] = move
                frontier.append(int(origin))
    return np.maximum(action, 0)  # cells cut off from the path are never reached


def _destinations(cells: np.ndarray) -> Int[np.ndarray, "S 4"]:
    state = {(int(r), int(c)): i for i, (r, c) in enumerate(cells)}
    return np.array([[state.get((r + dr, c + dc), i) for dr, dc in _STEPS] for (r, c), i in state.items()])
