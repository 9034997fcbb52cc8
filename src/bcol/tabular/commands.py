"""`bcol gridworld`: its fields are the flags."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bcol.errors import InputError
from bcol.tabular.estimate import Unvisited


@dataclass(frozen=True)
class GridWorld:
    """The paper's grid world: two habits, a pit, and what each deviation buys.

    Logs the habits of a map, estimates the MDP and the behaviour from the log, plans for every budget and without
    one, tries the plans in the true world, and draws the picture. docs/idea.md says how a map is written.

    examples:
      bcol gridworld
      bcol gridworld --budget 5 --discount 0.95 --output grid.svg
      bcol gridworld --map my_map.txt --slip 0.1
    """

    map: Path | None = None
    """text file with a map and its habits; by default the built-in one"""
    budget: int = 3
    """plan for every budget from 0 to this"""
    discount: float = 0.98
    """discount factor, in [0, 1)"""
    slip: float = 0.02
    """chance that a move goes sideways"""
    noise: float = 0.05
    """chance that a logged decision is a random one"""
    fail_cost: float = 50.0
    """what falling into the pit costs, in steps"""
    unvisited: Unvisited = "pessimistic"
    """what decisions never logged are taken to lead to"""
    episodes: int = 2000
    """episodes in which each plan is tried"""
    seed: int = 0
    """seed of the log and of the trials"""
    output: Path = Path("gridworld.png")
    """the picture: .png or .svg"""

    def run(self) -> None:
        """Print the table and save the picture."""
        from bcol.tabular.gridworld import STITCH, parse
        from bcol.tabular.picture import check_output, draw
        from bcol.tabular.study import study

        check_output(self.output)
        world = parse(_read_text(self.map) if self.map else STITCH, self.slip, self.fail_cost)
        result = study(
            world,
            self.budget,
            self.discount,
            noise=self.noise,
            unvisited=self.unvisited,
            episodes=self.episodes,
            seed=self.seed,
        )
        draw(result, self.output)
        console = Console()
        console.print(_outcome_table(result.outcomes))
        console.print(f"Planned values are exact for the estimated MDP to {result.solution.error:.0e}.")
        console.print(f"Picture: {self.output}", soft_wrap=True, highlight=False)


def _outcome_table(outcomes: list[Any]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("who decides", "promised", "delivered", "+-", "reach goal", "steps", "deviations"):
        table.add_column(column, justify="left" if column == "who decides" else "right")
    for o in outcomes:
        standard_error = o.delivered.std() / len(o.delivered) ** 0.5
        table.add_row(
            o.name,
            "" if o.promised is None else f"{o.promised:.2f}",
            f"{o.delivered.mean():.2f}",
            f"{standard_error:.2f}",
            f"{o.reached.mean():.1%}",
            f"{o.steps.mean():.1f}",
            f"{o.deviations.mean():.1f}",
        )
    return table


def _read_text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {str(path)!r}: {error}") from None
