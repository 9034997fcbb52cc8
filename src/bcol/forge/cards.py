"""Data cards: what a forged dataset is, in numbers, beside what is known of D4RL's; and tables of them."""

import json
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from bcol.data.describe import describe
from bcol.data.log import Log
from bcol.data.tasks import FORGED
from bcol.errors import InputError
from bcol.forge.antmaze import RECIPES
from bcol.forge.recipes import Plan

PUBLISHED = {
    "hopper-medium": 44.0,
    "walker2d-medium": 62.0,
    "halfcheetah-medium": 41.0,
    "hopper-medium-replay": 15.0,
    "walker2d-medium-replay": 15.0,
    "halfcheetah-medium-replay": 27.0,
}
"""Mean scores of the episodes in D4RL's files of the same kind, where we know them."""

DIFFERENCES = {
    "locomotion": "made by Gymnasium's -v4 environments in today's MuJoCo: data of D4RL's kind, not D4RL's rows",
    "medium": "the policy is ours, chosen by its score",
    "d4rl": "the policy is the one inside the D4RL file",
    "medium-replay": "checkpoints sampled afresh, none from before learning set in; D4RL kept the learner's own buffer",
    "antmaze": "the walking policy is another; today's MuJoCo; time-outs are marked on the last row of episodes",
}


def make_card(log: Log, todo: Plan, about: dict[str, Any]) -> dict[str, Any]:
    """The card of a dataset from its rows and the plan it was made by."""
    summary = describe(log, FORGED.get(about["name"]))
    assert log.action_low is not None
    assert log.action_high is not None
    middle, half = 0.5 * (log.action_high + log.action_low), 0.5 * (log.action_high - log.action_low)
    kind = "d4rl" if todo.name.startswith("d4rl-") else todo.kind
    kind = "given" if kind == "medium" and not todo.policies[0].startswith("shipped") else kind
    differs = {"own": [], "antmaze": ["antmaze"]}.get(kind, ["locomotion", kind])
    card = {
        "about": about,
        "recipe": todo.recipe,
        "policies": list(todo.policies),
        "environment": todo.env,
        "versions": {name: version(name) for name in ("mujoco", "gymnasium", "numpy")},
        "rows": summary.rows,
        "episodes": len(summary.returns),
        "terminals": summary.terminals,
        "returns": _spread(summary.returns),
        "scores": None if summary.scores is None else _spread(summary.scores),
        "lengths": _spread(summary.lengths),
        "saturated_actions": float(np.mean(np.abs(log.actions - middle) > 0.99 * half)),
        "published_score": PUBLISHED.get(todo.name.removeprefix("d4rl-")),
        "differences": [DIFFERENCES[key] for key in differs if key in DIFFERENCES],
    }
    if todo.kind == "antmaze":
        card["label_goal"] = RECIPES[todo.name].label_goal.tolist()
    return card


def read_card(path: Path) -> dict[str, Any]:
    """A card that lies beside its dataset; InputError if it is none."""
    try:
        card = json.loads(path.read_text())
        if not isinstance(card, dict) or "about" not in card:
            raise ValueError("it has no 'about'")
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is no data card: {str(error).splitlines()[0]}") from None
    return card


def lines(card: dict[str, Any]) -> list[tuple[str, str]]:
    """What `bcol data info` shows of a card: names and values."""
    about, published = card["about"], card["published_score"]
    rows = [
        ("recipe", card["recipe"]),
        ("policies", ", ".join(dict.fromkeys(card["policies"]))),
        ("checksums", ", ".join(x.removeprefix("sha256:")[:12] for x in dict.fromkeys(about["policies"]))),
        ("seed", str(about["seed"])),
        ("mean score", _mean_score(card, "") + ("" if published is None else f" (D4RL's file: {published:g})")),
        ("saturated", f"{card['saturated_actions']:.0%} of action components"),
        ("made with", ", ".join(f"{name} {number}" for name, number in card["versions"].items())),
    ]
    if "label_goal" in card:
        rows.append(("label goal", ", ".join(f"{x:g}" for x in card["label_goal"])))
    return rows + [("differs", text) for text in card["differences"]]


def table(cards: Iterable[dict[str, Any]]) -> str:
    """Cards as a Markdown table, for docs/datasets.md."""
    header = ["dataset", "rows", "episodes", "mean length", "mean return", "mean score", "D4RL's score", "policies"]
    body = []
    for card in cards:
        about, published = card["about"], card["published_score"]
        numbers = [f"{card['rows']:,}", f"{card['episodes']:,}", f"{card['lengths']['mean']:.0f}"]
        numbers += [f"{card['returns']['mean']:.0f}", _mean_score(card, "-")]
        numbers.append("-" if published is None else f"{published:g}")
        policies = list(dict.fromkeys(card["policies"]))
        shown = ", ".join(policies) if len(policies) < 3 else f"{policies[0]} to {policies[-1]}"
        body.append([f"`{about['name']}`", *numbers, shown])
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, ["---"] * len(header), *body]) + "\n"


def _mean_score(card: dict[str, Any], unknown: str) -> str:
    return unknown if card["scores"] is None else f"{card['scores']['mean']:.1f}"


def _spread(values: Any) -> dict[str, float]:
    return {name: float(getattr(np, name)(values)) for name in ("min", "mean", "max", "std")}
