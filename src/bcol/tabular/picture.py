"""The picture of a grid-world study: who walks where, where the budget goes, what each unit buys."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from bcol.errors import InputError
from bcol.tabular.study import Study, likely_path

_COMMON, _RARE, _PLAN, _INK, _FAIL = "#d9a21b", "#3b76af", "#2c8c4a", "#333333", "#c44e52"


def check_output(path: Path) -> None:
    """InputError unless a picture can be saved under this name."""
    if path.suffix not in (".png", ".svg"):
        raise InputError(f"output must end in .png or .svg: got {str(path)!r}")


def draw(study: Study, path: Path, budget: int = 1) -> None:
    """Save the picture as .png or .svg; the path shown on the map is that of the given budget."""
    check_output(path)
    rows, columns = study.world.cells.max(axis=0) + 1
    figure = Figure(figsize=(12, 0.4 + 7.2 * rows / columns), layout="constrained")
    on_map, on_budget = figure.subplots(1, 2, width_ratios=(7, 5))
    _draw_map(on_map, study, min(budget, study.solution.budget))
    _draw_values(on_budget, study)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def _draw_map(axes: Axes, study: Study, budget: int) -> None:
    world = study.world
    cells = world.cells
    rows, columns = cells.max(axis=0) + 1
    free = {(int(r), int(c)) for r, c in cells}
    for r in range(rows):
        for c in range(columns):
            colour = "white" if (r, c) in free else "#8a8a8a"
            axes.add_patch(Rectangle((c - 0.5, r - 0.5), 1, 1, facecolor=colour, edgecolor="#dddddd", lw=0.8))
    for (r, c), letter in zip(cells, world.letters, strict=True):
        if letter == ".":
            continue
        if letter in "FG":
            fill = _FAIL if letter == "F" else _PLAN
            axes.add_patch(Rectangle((c - 0.5, r - 0.5), 1, 1, facecolor=fill, alpha=0.25, lw=0))
        word = {"F": "fail", "G": "goal"}.get(letter, letter)
        axes.text(c, r, word, ha="center", va="center", fontsize=10, weight="bold", color=_INK, zorder=5)
    total = sum(habit.episodes for habit in world.habits)
    colours = [_COMMON, _RARE, "#8b6bb1", "#8c613c"]
    for i, habit in enumerate(world.habits):
        share = habit.episodes / total
        label = f"{habit.name} habit, {share:.0%} of the log"
        side = 0.13 * (i - (len(world.habits) - 1) / 2)
        line = cells[habit.path] + side
        axes.plot(line[:, 1], line[:, 0], color=colours[i % 4], lw=2 + 6 * share, alpha=0.75, label=label)
    most = study.outcomes[-2]
    spent = np.flatnonzero(most.spent)
    sizes = 700 * most.spent[spent] / len(most.delivered)
    label = f"where {most.name} is spent"
    axes.scatter(cells[spent, 1], cells[spent, 0], s=sizes, color=_PLAN, alpha=0.3, lw=0, zorder=4, label=label)
    walk, deviations = likely_path(study, budget)
    axes.plot(
        cells[walk, 1],
        cells[walk, 0],
        color=_PLAN,
        ls="--",
        lw=2.2,
        label=f"the plan with budget {budget}",
        zorder=6,
    )
    if deviations:
        label = "its deviation" if len(deviations) == 1 else "its deviations"
        spots = cells[deviations]
        axes.scatter(spots[:, 1], spots[:, 0], marker="*", s=330, color=_PLAN, edgecolor="white", zorder=7, label=label)
    axes.set(xlim=(-0.55, columns - 0.45), ylim=(rows - 0.45, -0.55), aspect="equal")
    axes.axis("off")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=3, frameon=False, fontsize=10)


def _draw_values(axes: Axes, study: Study) -> None:
    log, *plans, free = study.outcomes
    budgets = np.arange(len(plans))
    promised = [float(plan.promised or 0) for plan in plans]
    delivered = [plan.delivered.mean() for plan in plans]
    error = [1.96 * plan.delivered.std() / np.sqrt(len(plan.delivered)) for plan in plans]
    axes.plot(budgets, promised, color=_PLAN, lw=2, marker="o", label="promised by the plan: V(start, B)")
    axes.errorbar(budgets, delivered, error, color=_INK, fmt="D", ms=5, capsize=3, label="delivered in the true world")
    axes.axhline(log.delivered.mean(), color=_COMMON, lw=2, label="the log")
    axes.axhline(
        free.delivered.mean(),
        color=_FAIL,
        lw=1.5,
        ls=":",
        label=f"no budget ({free.deviations.mean():.0f} deviations)",
    )
    axes.set_xticks(budgets)
    axes.set(xlabel="budget B: deviations allowed per episode", ylabel="discounted return from the start")
    axes.set_title("What each further deviation buys", fontsize=12)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2, frameon=False, fontsize=10)
