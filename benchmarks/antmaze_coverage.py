"""Where the rows of the six AntMaze datasets lie, with the walls and the goal that rewards are labelled against.

    python benchmarks/antmaze_coverage.py docs/antmaze_coverage.png

Forges what is not in the cache: a few minutes each.
"""

from pathlib import Path

import numpy as np
import tyro
from matplotlib.figure import Figure

from bcol.data import read_d4rl
from bcol.envs.maze import CELL_SIZE
from bcol.forge.antmaze import RECIPES
from bcol.forge.make import forge


def main(picture: tyro.conf.Positional[Path], rows: int | None = None) -> None:
    """Draw one panel for each dataset, of about so many rows (by default a million)."""
    figure = Figure(figsize=(12, 7.4), layout="constrained")
    for axes, (name, recipe) in zip(figure.subplots(2, 3).T.flat, RECIPES.items(), strict=True):
        x, y = read_d4rl(forge(name, rows=rows)).observations[:, :2].T
        walls = recipe.maze.walls
        # The middle of the first free cell, in row and column 1, is the origin.
        right, top = (CELL_SIZE * (size - 1.5) for size in walls.shape[::-1])
        extent = (-1.5 * CELL_SIZE, right, -1.5 * CELL_SIZE, top)
        axes.imshow(np.where(walls, 0.35, np.nan), origin="lower", extent=extent, cmap="Greys", vmin=0, vmax=1)
        axes.hexbin(x, y, gridsize=70, bins="log", cmap="viridis", linewidths=0, mincnt=1)
        axes.plot(*recipe.label_goal, marker="*", color="#d62728", ms=13, mec="white")
        axes.set(title=name, xlim=extent[:2], ylim=extent[2:], aspect="equal")
    figure.savefig(picture, dpi=75)


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
