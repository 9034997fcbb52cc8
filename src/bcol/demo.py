"""The demo: the idea solved exactly in a grid world, then learned from a log in the plane."""

import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from rich.console import Console
from rich.table import Table

from bcol.agents import BCOLSAC, OfflineSAC
from bcol.data.transitions import Transitions
from bcol.envs.junction import GOAL, GOAL_RADIUS, HIGH, LIMIT, LOW, PIT, PIT_RADIUS, Junction
from bcol.envs.junction import log as junction_log
from bcol.policy import Policy, load_policy
from bcol.tabular.commands import GridWorld
from bcol.train import train

SMALL: dict[str, Any] = {
    "hidden": (64, 64),
    "batch_size": 128,
    "discount": 0.97,
    "actor_lr": 1e-3,
    "critic_lr": 1e-3,
}
"""Networks and rates that learn the junction in half a minute on two cores."""
BUDGETED = BCOLSAC(budget=1, omega=1.0, follow="mode", **SMALL)
UNBUDGETED = OfflineSAC(**SMALL)
STEPS = 6000
EPISODES = 20


@dataclass(frozen=True)
class Walks:
    """Episodes of one policy at the junction.

    Attributes:
        name: who decided.
        paths: the positions of each episode.
        deviated: which of its steps deviated.
        reached: whether it reached the goal.
        fell: whether it fell into the pit.
    """

    name: str
    paths: list[Float[np.ndarray, "_ 2"]]
    deviated: list[Bool[np.ndarray, " _"]]
    reached: Bool[np.ndarray, " n"]
    fell: Bool[np.ndarray, " n"]

    @property
    def steps(self) -> float:
        """Mean length of an episode."""
        return float(np.mean([len(d) for d in self.deviated]))


def demo(output: Path) -> None:
    """Both halves, with their tables and pictures."""
    console = Console()
    console.print(
        "[bold]1. Exact.[/bold] A log holds two habits: most episodes take the long way round, a few start elsewhere "
        "and go straight through. From the log alone, plan a policy that departs from it at most B times.\n"
    )
    GridWorld(output=output / "gridworld.png").run()
    console.print(
        "\n[bold]2. Learned.[/bold] The same story in the plane, with continuous actions and networks: BCOL-SAC with a "
        f"budget of 1, beside cloning and unbudgeted offline SAC; {STEPS:,} gradient steps each, about a minute.\n"
    )
    began = time.monotonic()
    data = junction_log()
    walks = junction_walks(data, output)
    draw_junction(data, walks, output / "junction.png")
    console.print(_table(walks))
    console.print(f"Trained and tried in {time.monotonic() - began:.0f} s.")
    console.print(f"Picture: {output / 'junction.png'}", soft_wrap=True, highlight=False)


def junction_walks(data: Transitions, output: Path, steps: int = STEPS, seed: int = 0) -> list[Walks]:
    """Train both agents, and let cloning (budget 0), BCOL (budget 1) and offline SAC walk."""
    policies = []
    for agent in (BUDGETED, UNBUDGETED):
        folder = output / f"junction-{agent.name}"
        shutil.rmtree(folder, ignore_errors=True)
        # No evaluation on the way: the walks below are the evaluation. An unbudgeted agent may well diverge here.
        run = train(data, agent, steps=steps, seeds=(seed,), out=folder, eval_every=0, guards=agent is BUDGETED)
        policies.append(load_policy(run.path))
    budgeted, free = policies
    return [
        walk("cloning (budget 0)", budgeted, 0),
        walk("BCOL-SAC, budget 1", budgeted, 1),
        walk("offline SAC, no budget", free, None),
    ]


def walk(name: str, policy: Policy, budget: int | None) -> Walks:
    """Let a policy walk from the common habit's start."""
    paths, deviated, ends = [], [], []
    for seed in range(EPISODES):
        world = Junction()
        observation, _ = world.reset(seed=seed)
        policy.reset(1, budget, seed=seed)
        path, over = [observation], False
        spent: list[bool] = []
        while not over and len(spent) < LIMIT:
            decision = policy.act(observation)
            observation, _, over, _, _ = world.step(decision.action)
            path.append(observation)
            spent.append(bool(decision.deviated))
        paths.append(np.array(path))
        deviated.append(np.array(spent))
        ends.append(path[-1])
    last = np.array(ends)
    reached = np.linalg.norm(last - GOAL, axis=1) < GOAL_RADIUS
    fell = np.linalg.norm(last - PIT, axis=1) < PIT_RADIUS
    return Walks(name, paths, deviated, reached, fell)


def draw_junction(data: Transitions, walks: list[Walks], path: Path) -> None:
    """The logged habits, and beside them each policy's walks with the points where it deviated."""
    figure = Figure(figsize=(14, 3.4), layout="constrained")
    panels = figure.subplots(1, len(walks) + 1)
    _world(panels[0], "the log")
    starts = data.first_rows
    ends = [*starts[1:], len(data)]
    for begin, end in list(zip(starts, ends, strict=True))[::3]:
        rare = data.observation[begin, 0] < -0.5
        panels[0].plot(*data.observation[begin:end].T, color="#3b76af" if rare else "#d9a21b", lw=0.6, alpha=0.5)
    for panel, shown in zip(panels[1:], walks, strict=True):
        _world(panel, f"{shown.name}\n{shown.reached.mean():.0%} reach the goal in {shown.steps:.0f} steps")
        for route, spent in zip(shown.paths, shown.deviated, strict=True):
            panel.plot(*route.T, color="#333333", lw=0.7, alpha=0.6)
            if not spent.all():
                panel.scatter(*route[:-1][spent].T, marker="*", s=60, color="#2c8c4a", zorder=3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def _world(axes: Axes, title: str) -> None:
    axes.add_patch(Circle(tuple(PIT), PIT_RADIUS, color="#c44e52", alpha=0.3, lw=0))
    axes.add_patch(Circle(tuple(GOAL), GOAL_RADIUS, color="#2c8c4a", alpha=0.3, lw=0))
    axes.text(PIT[0], PIT[1], "fail", ha="center", va="center", fontsize=8)
    axes.text(GOAL[0], GOAL[1], "goal", ha="center", va="center", fontsize=8)
    axes.set(xlim=(LOW[0], HIGH[0]), ylim=(LOW[1], HIGH[1]), aspect="equal", xticks=[], yticks=[])
    axes.set_title(title, fontsize=10)


def _table(walks: list[Walks]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("who decides", "reach goal", "fall", "steps", "deviations"):
        table.add_column(column, justify="left" if column == "who decides" else "right")
    for shown in walks:
        spent = np.mean([d.sum() for d in shown.deviated])
        row = f"{shown.reached.mean():.0%}", f"{shown.fell.mean():.0%}", f"{shown.steps:.1f}", f"{spent:.1f}"
        table.add_row(shown.name, *row)
    return table
