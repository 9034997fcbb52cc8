"""How well AntMaze's controllers walk with a given goal-reaching policy, beside D4RL's real rows.

    python benchmarks/antmaze_controller.py POLICY.npz [--rows FOLDER] [--episodes 100] [--output TABLE.md]

Without real rows the last table is left out.
"""

import argparse
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import h5py
import numpy as np

from bcol.envs.antmaze import AntMazeEnv
from bcol.envs.maze import MAZES
from bcol.forge.antmaze import RECIPES, Episode, Recipe, at_goal, make_episode
from bcol.forge.behaviour import read_walker
from bcol.forge.goal_policy import GoalPolicy, goal_features
from bcol.forge.navigation import CleanNavigator

Table = list[list[str]]


def upside_down(qpos: np.ndarray) -> np.ndarray:
    """Where the torso's z axis points down; the ant does not get up from there."""
    return qpos[..., 4] ** 2 + qpos[..., 5] ** 2 > 0.5


def clean_walk(recipe: Recipe | None, maze: str, policy: GoalPolicy, number: int) -> tuple[bool, int]:
    """One episode of the clean controller: success and steps. Without a recipe it is evaluation's task."""
    env, rng = AntMazeEnv(maze), np.random.default_rng(number)
    places = {}
    if recipe is not None:
        cells = env.maze.goal_cells
        # The recipe's own goals can lie in a wall; these are in the same cells, where an ant can go.
        places["goal"] = env.maze.sample_goal(rng, cells[rng.integers(len(cells))])
        if (start := recipe.sample_start(rng)) is not None:
            places["start"] = start
    observation, info = env.reset(seed=number, options=places)
    navigator = CleanNavigator(env.maze, policy, info["goal"])
    for step in range(1, env.maze.max_steps + 1):
        observation, _, success, _, _ = env.step(navigator.act(observation, rng))
        if success:
            return True, step
    return False, env.maze.max_steps


def open_walk(policy: GoalPolicy, number: int) -> tuple[float, bool]:
    """300 steps in one of 8 directions, no walls in the way: distance along it, and whether it fell over."""
    env, rng = AntMazeEnv("umaze"), np.random.default_rng(number)
    for geom in range(env.model.ngeom):
        if env.model.geom(geom).name.startswith("wall"):
            env.model.geom_contype[geom] = env.model.geom_conaffinity[geom] = 0
    angle = 2 * np.pi * (number % 8) / 8
    direction = np.array([np.cos(angle), np.sin(angle)])
    observation, _ = env.reset(seed=number)
    fell = False
    for _ in range(300):
        observation = env.step(policy(goal_features(observation, direction), rng))[0]
        fell = fell or bool(upside_down(observation))
    return float(observation[:2] @ direction), fell


def forged(name: str, policy: GoalPolicy, number: int) -> tuple[Episode, float]:
    started = time.perf_counter()
    episode = make_episode(name, policy, seed=0, number=number)
    return episode, time.perf_counter() - started


def describe(episodes: list[Episode]) -> list[str]:
    """Rows, saturation, flips: what can be said of real and of forged episodes alike."""
    actions = np.concatenate([episode["actions"] for episode in episodes])
    qpos = np.concatenate([episode["infos/qpos"] for episode in episodes])
    flipped = [bool(upside_down(episode["infos/qpos"]).any()) for episode in episodes]
    lengths = sorted({len(episode["actions"]) for episode in episodes})
    own = [at_goal(episode["infos/qpos"][:, :2], episode["infos/goal"][0]).any() for episode in episodes]
    return [
        str(len(episodes)),
        ", ".join(map(str, lengths)),
        f"{np.mean(np.abs(actions) > 0.99):.0%}",
        f"{np.mean(flipped):.0%}",
        f"{np.mean(upside_down(qpos)):.0%}",
        f"{np.mean(own):.0%}",
    ]


def real_episodes(path: Path) -> list[Episode]:
    """The real rows cut where their own goal changes (the time-out flags of v0 are wrong)."""
    with h5py.File(path) as file:
        arrays = {name: file[name][:] for name in ("actions", "infos/qpos", "infos/goal")}
    cuts = np.flatnonzero(np.any(np.diff(arrays["infos/goal"], axis=0) != 0, axis=1)) + 1
    parts = {name: np.split(array, cuts) for name, array in arrays.items()}
    return [{name: parts[name][i] for name in parts} for i in range(len(cuts) + 1)]


def markdown(header: str, table: Table) -> str:
    columns = header.split(" | ")
    lines = [columns, ["---"] * len(columns), *table]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def report(policy: GoalPolicy, rows: Path | None, episodes: int, each: Callable) -> str:
    """All tables as Markdown; `each(function, count)` maps a function over episode numbers."""
    walks = each(partial(open_walk, policy), 32)
    text = "Open ground, 300 steps, 8 directions: mean distance "
    text += f"{np.mean([walk[0] for walk in walks]):.0f}, {sum(walk[1] for walk in walks)} of 32 fell over.\n\n"

    table: Table = []
    for maze in MAZES:
        recipe = next(recipe for recipe in RECIPES.values() if recipe.maze_name == maze)
        cells = []
        for task in (recipe, None):
            results = each(partial(clean_walk, task, maze, policy), episodes)
            steps = [steps for success, steps in results if success]
            cells += [f"{len(steps) / episodes:.0%}", f"{np.mean(steps):.0f}" if steps else "-"]
        table.append([maze, *cells])
    text += markdown("clean controller | data's starts and goals | steps | evaluation's start and goal | steps", table)

    table, seconds, simulated = [], 0.0, 0
    for name in RECIPES:
        results = each(partial(forged, name, policy), episodes)
        made = [episode for episode, _ in results]
        seconds += sum(taken for _, taken in results)
        simulated += sum(len(episode["actions"]) for episode in made)
        labelled = np.mean([episode["rewards"].any() for episode in made])
        table.append([f"forge/{name}", *describe(made), f"{labelled:.0%}"])
        path = rows / f"{name}-v0.hdf5" if rows else None
        if path is not None and path.exists():
            table.append([f"real {name}-v0", *describe(real_episodes(path)), "-"])
    header = "noisy recipe | episodes | rows each | actions beyond 0.99 | episodes with a fall"
    header += " | rows upside down | own goal reached | label goal reached"
    text += "\n" + markdown(header, table)
    return text + f"\nSteps/s per worker, controller included: {simulated / seconds:.0f}\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("policy", type=Path)
    parser.add_argument("--rows", type=Path, default=None)
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--output", type=Path, default=None)
    args = parser.parse_args()
    policy = read_walker(args.policy)
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:

        def each(function: Callable, count: int) -> list:
            return list(pool.map(function, range(count)))

        text = report(policy, args.rows, args.episodes, each)
    print(text)
    if args.output:
        args.output.write_text(text)


if __name__ == "__main__":
    main()
