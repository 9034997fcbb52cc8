"""AntMaze datasets by D4RL's recipe: a noisy controller walks between cells; rewards are labelled afterwards.

An episode has a start, a goal of its own and a fixed number of steps: reaching the goal does not end it.
Rewards and terminals are then labelled against one test goal per maze, the same in every episode, so they
come in clusters wherever an ant passes that place. Only time-outs end episodes.

Episodes do not depend on each other: number e of a dataset is a function of (dataset, policy, seed, e) alone,
so the arrays are the same whatever the number of workers and a file that was cut short can be continued.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from typing import TYPE_CHECKING, Literal
from zlib import crc32

import numpy as np
from jaxtyping import Bool, Float, Float32, Shaped

from bcol.envs.maze import GOAL_RADIUS, Maze, get_maze
from bcol.errors import InputError
from bcol.forge.goal_policy import GoalReaching
from bcol.forge.navigation import Navigator

if TYPE_CHECKING:
    from bcol.envs.antmaze import AntMazeEnv

ACTION_NOISE = 0.2
"""Standard deviation of the noise on every action of the controller."""

GOAL_NOISE = 2.0
"""Goals of episodes lie at a goal cell + U(0, 1) + U(0, this) per axis. The 11 goals in the released rows are
0.4 to 2.6 (mean 1.65) per axis from the middles of their cells: the 0.5 of evaluation is too small."""

Episode = dict[str, Shaped[np.ndarray, "rows *shape"]]
"""The arrays of one episode under D4RL's names; row t of `infos/qpos` and `infos/qvel` is *after* step t."""


@dataclass(frozen=True)
class Recipe:
    """How the episodes of one dataset start, and how long they are."""

    name: str
    maze_name: str
    rows: int
    """Rows of an episode. D4RL's loop cuts one step late: 701 and 1001."""
    starts: Literal["origin", "cells"]
    """`origin`: the environment's start. `cells`: any free cell that is no goal cell, + U(0, 1) per axis."""

    @property
    def maze(self) -> Maze:
        """The maze of the dataset."""
        return get_maze(self.maze_name)

    @property
    def label_goal(self) -> Float[np.ndarray, "2"]:
        """The goal that rewards are labelled against: the mean of the goals that are evaluated."""
        return self.maze.middle(self.maze.test_goal) + 0.75

    def sample_start(self, rng: np.random.Generator) -> Float[np.ndarray, "2"] | None:
        """Where an episode starts; None leaves it to the environment."""
        if self.starts == "origin":
            return None
        cells = [cell for cell in self.maze.free_cells if cell not in self.maze.goal_cells]
        return self.maze.middle(cells[rng.integers(len(cells))]) + rng.uniform(0, 1, 2)

    def sample_goal(self, rng: np.random.Generator) -> Float[np.ndarray, "2"]:
        """The goal an episode is steered to, in one of the goal cells."""
        cells = self.maze.goal_cells
        return self.maze.sample_goal(rng, cells[rng.integers(len(cells))], GOAL_NOISE)


# Play and diverse differ by name (and so by their draws) only: the released rows of both have starts in any
# free cell and goals in the goal cells.
RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe("antmaze-umaze", "umaze", rows=701, starts="origin"),
        Recipe("antmaze-umaze-diverse", "umaze", rows=1001, starts="cells"),
        Recipe("antmaze-medium-play", "medium", rows=1001, starts="cells"),
        Recipe("antmaze-medium-diverse", "medium", rows=1001, starts="cells"),
        Recipe("antmaze-large-play", "large", rows=1001, starts="cells"),
        Recipe("antmaze-large-diverse", "large", rows=1001, starts="cells"),
    )
}
"""The recipes by dataset name."""


def get_recipe(name: str) -> Recipe:
    """The recipe of that name, or an `InputError` that lists the names there are."""
    if name not in RECIPES:
        raise InputError(f"unknown AntMaze dataset {name!r}: choose one of {', '.join(RECIPES)}")
    return RECIPES[name]


def at_goal(
    xy: Float[np.ndarray, "rows 2"], goal: Float[np.ndarray, "2"], radius: float = GOAL_RADIUS
) -> Bool[np.ndarray, "rows"]:
    """Which of the points are at the goal."""
    return np.linalg.norm(xy - goal, axis=-1) <= radius


def make_episode(name: str, policy: GoalReaching, seed: int, number: int) -> Episode:
    """Simulate episode `number` of a dataset, in this process."""
    recipe = get_recipe(name)
    env = _environment(recipe.maze_name)
    # The name is in the seed so that datasets of one maze are not the same draws.
    rng = np.random.default_rng(np.random.SeedSequence((seed, crc32(name.encode()), number)))
    start, goal = recipe.sample_start(rng), recipe.sample_goal(rng)
    places = {"goal": goal} if start is None else {"goal": goal, "start": start}
    observation, _ = env.reset(seed=int(rng.integers(2**63)), options=places)
    navigator = Navigator(recipe.maze, policy, goal)
    states = np.empty((recipe.rows + 1, 29))
    states[0] = observation
    actions = np.empty((recipe.rows, 8), dtype=np.float32)
    for row in range(recipe.rows):
        action = navigator.act(observation, rng) + ACTION_NOISE * rng.standard_normal(8)
        # Rounded before it is used, so that the file holds what the simulator was given.
        actions[row] = np.clip(action, -1, 1)
        states[row + 1] = observation = env.step(actions[row])[0]
    return _in_d4rl_layout(actions, states.astype(np.float32), goal, recipe)


def episodes(
    name: str,
    policy: GoalReaching,
    *,
    count: int,
    seed: int = 0,
    first: int = 0,
    workers: int | None = None,
    progress: Callable[[int], object] | None = None,
) -> Iterator[Episode]:
    """Yield episodes `first` .. `first + count - 1` of a dataset, in order.

    Args:
        name: a key of `RECIPES`.
        policy: walks the ant; it travels to the workers.
        count: how many episodes.
        seed: of the dataset.
        first: number of the first one; give what you already have to continue.
        workers: processes; all cores by default, 1 stays in this process. It does not change the arrays.
        progress: called with the number of rows of each episode as it is handed out.
    """
    recipe = get_recipe(name)
    workers = os.cpu_count() or 1 if workers is None else workers
    for what, value, least in (
        ("count", count, 0),
        ("seed", seed, 0),
        ("first", first, 0),
        ("workers", workers, 1),
    ):
        if value < least:
            raise InputError(f"{what} must be at least {least}, not {value}")
    return _episodes(recipe, policy, range(first, first + count), seed, workers, progress)


def _episodes(
    recipe: Recipe,
    policy: GoalReaching,
    numbers: range,
    seed: int,
    workers: int,
    progress: Callable[[int], object] | None,
) -> Iterator[Episode]:
    """The generator behind `episodes`, apart from it so that bad input is refused at the call."""
    for episode in _simulate(recipe.name, policy, numbers, seed, min(workers, len(numbers))):
        if progress is not None:
            progress(recipe.rows)
        yield episode


def _simulate(name: str, policy: GoalReaching, numbers: range, seed: int, workers: int) -> Iterator[Episode]:
    """Episodes in order, a few per worker ahead of the reader."""
    if workers <= 1:
        for number in numbers:
            yield make_episode(name, policy, seed, number)
        return
    # Not fork: the caller may hold JAX's threads.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        ahead: deque[Future[Episode]] = deque()
        try:
            for number in numbers:
                ahead.append(pool.submit(make_episode, name, policy, seed, number))
                if len(ahead) > 2 * workers:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


@cache
def _environment(maze: str) -> "AntMazeEnv":
    """The environment of a maze, built once per process; every reset starts it afresh."""
    from bcol.envs.antmaze import AntMazeEnv

    return AntMazeEnv(maze)


def _in_d4rl_layout(
    actions: Float32[np.ndarray, "rows 8"],
    states: Float32[np.ndarray, "rows+1 29"],
    goal: Float[np.ndarray, "2"],
    recipe: Recipe,
) -> Episode:
    """Name the arrays as D4RL does and label them, from the rounded states that the file will hold."""
    rows = len(actions)
    reached = at_goal(states[1:, :2], recipe.label_goal)
    return {
        "observations": states[:-1],
        "actions": actions,
        "rewards": reached.astype(np.float32),
        "terminals": reached,
        "timeouts": np.arange(rows) == rows - 1,
        "infos/qpos": states[1:, :15],
        "infos/qvel": states[1:, 15:],
        "infos/goal": np.tile(goal.astype(np.float32), (rows, 1)),
    }
