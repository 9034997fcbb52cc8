"""Which datasets can be forged, and of what each is made."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bcol.data.download import cached_file
from bcol.data.tasks import FORGED, TASKS
from bcol.errors import InputError
from bcol.forge.behaviour import Behaviour, read_behaviour, read_walker, shipped
from bcol.forge.goal_policy import GoalPolicy
from bcol.forge.rollouts import AntMaze, Sampled

ROWS = {
    "hopper-medium": 1_000_000,
    "hopper-medium-replay": 400_000,
    "hopper-medium-expert": 2_000_000,
    "walker2d-medium": 1_000_000,
    "walker2d-medium-replay": 300_000,
    "walker2d-medium-expert": 2_000_000,
    "halfcheetah-medium": 1_000_000,
    "halfcheetah-medium-replay": 200_000,
    "halfcheetah-medium-expert": 2_000_000,
}
"""Rows of the locomotion datasets, about D4RL's; all others have a million."""

TEXT = {
    "medium": "a policy stopped at part of the expert's return, its actions sampled",
    "expert": "a fully trained policy, its actions sampled",
    "medium-replay": "policies on the way to medium, as many rows of each, sampled",
    "medium-expert": "the rows of medium, then as many of the expert, all actions sampled",
    "antmaze": "a goal-reaching ant led from cell to cell by a noisy controller; rewards labelled afterwards",
    "own": "the policies given, as many rows of each, sampled",
}


@dataclass(frozen=True)
class Segment:
    """Some rows of a dataset, all by one policy."""

    source: Sampled | AntMaze
    rows: int


@dataclass(frozen=True)
class Plan:
    """How a dataset is made.

    Attributes:
        name: of the dataset, without `forge/`.
        kind: of its recipe, a key of `TEXT`.
        env: the Gymnasium id of the world it is made in.
        segments: its rows, in order.
        policies: where each segment's policy comes from, in words.
    """

    name: str
    kind: str
    env: str
    segments: tuple[Segment, ...]
    policies: tuple[str, ...]

    @property
    def recipe(self) -> str:
        """What it is, in words."""
        return TEXT[self.kind]

    @property
    def rows(self) -> int:
        """Of all segments."""
        return sum(segment.rows for segment in self.segments)


def plan(
    name: str,
    *,
    env: str | None = None,
    policy: Sequence[str | Path] = (),
    rows: int | None = None,
    seed: int = 0,
) -> Plan:
    """What forging a dataset amounts to.

    Args:
        name: `hopper-medium`, `antmaze-umaze`, `d4rl-hopper-medium` and so on, with or without `forge/`; or any other
            name, for a dataset of your own.
        env: Gymnasium id of the environment, for a dataset of your own.
        policy: files to take the policies from, instead of the shipped ones: one, or for medium-expert two, or for
            medium-replay and datasets of your own as many as you like.
        rows: how many, instead of D4RL's number.
        seed: of all draws.
    """
    name = name.removeprefix("forge/")
    known = FORGED.get(f"forge/{name}")
    if known is None and not env:
        raise InputError(f"unknown dataset 'forge/{name}': choose one of {', '.join(FORGED)}, or give env and policy")
    if known is not None and env is not None:
        raise InputError(f"forge/{name} is made in {known.env_id}: leave out --env, or choose another name")
    if not re.fullmatch(r"[\w.-]+", name):
        raise InputError(f"name must be made of letters, digits, '.', '_' and '-': got {name!r}")
    if known is None and re.match(r"d4rl-|.*-(rows|seed)\d+$", name):
        raise InputError(
            f"name must not begin with d4rl- or end like -rows100 or -seed1, which mean something: got {name!r}"
        )
    if rows is not None and rows < 1:
        raise InputError(f"rows must be at least 1: got {rows}")
    if seed < 0:
        raise InputError(f"seed must not be negative: got {seed}")
    world = str(env) if known is None else known.env_id
    total = rows or ROWS.get(name.removeprefix("d4rl-"), 1_000_000)
    kind = "own" if known is None else "antmaze" if name.startswith("antmaze-") else re.sub("^(d4rl-)?[^-]*-", "", name)
    if kind == "antmaze":
        walker, source = _walker(policy)
        return Plan(name, kind, world, (Segment(AntMaze(name, walker, seed), total),), (source,))
    behaviours = _behaviours(name, kind, policy)
    bounds = np.linspace(0, total, len(behaviours) + 1).round().astype(int)
    segments = [
        Segment(Sampled(world, behaviour, seed, f"{name}/{i}"), int(stop - start))
        for i, (behaviour, start, stop) in enumerate(zip(behaviours, bounds[:-1], bounds[1:], strict=True))
    ]
    sources = tuple(behaviour.source for behaviour in behaviours)
    return Plan(name, kind, world, tuple(s for s in segments if s.rows), sources)


def _walker(policy: Sequence[str | Path]) -> tuple[GoalPolicy, str]:
    if len(policy) > 1:
        raise InputError(f"an AntMaze dataset has one goal-reaching policy: got {len(policy)} files")
    if policy:
        return read_walker(policy[0]), Path(policy[0]).name
    rungs, card = shipped("ant")
    return GoalPolicy.from_actor(rungs[card["expert"]].actor), f"shipped ant, {card['expert']:,} steps"


def _behaviours(name: str, kind: str, policy: Sequence[str | Path]) -> list[Behaviour]:
    robot = name.removeprefix("d4rl-").split("-", 1)[0]
    wanted = {"medium": 1, "expert": 1, "medium-expert": 2}.get(kind)
    if name.startswith("d4rl-") and not policy:
        # A D4RL file that has been downloaded carries its policy.
        known = TASKS.get(f"{robot}-{kind}-v2")
        if known is None or not cached_file(known).exists():
            raise InputError(
                f"forge/{name} is made with the policy inside a D4RL file: "
                f"run bcol data forge {name} --policy {robot}_{kind.replace('-', '_')}-v2.hdf5"
            )
        policy = (cached_file(known),)
    if kind == "own" and not policy:
        raise InputError(f"forge/{name} is your own: give the policies to sample, --policy FILE ...")
    if policy:
        if wanted is not None and len(policy) != wanted:
            raise InputError(f"forge/{name} needs {wanted} policy file{'s' if wanted > 1 else ''}: got {len(policy)}")
        return [read_behaviour(path) for path in policy]
    rungs, card = shipped(robot)
    steps = {
        "medium": [card["medium"]],
        "medium-expert": [card["medium"], card["expert"]],
        "medium-replay": _on_the_way(card),
    }[kind]
    return [Behaviour.from_actor(rungs[step].actor, f"shipped {robot}, {step:,} steps") for step in steps]


def _on_the_way(card: dict[str, Any]) -> list[int]:
    """The rungs up to medium that beat the untrained policy.

    Untrained robots fall within a few steps: with a share of the rows for what has not learned anything yet, most
    episodes would be theirs.
    """
    returns = {rung["step"]: rung["sampled"] for rung in card["returns"]}
    untrained, *later = card["replay"]
    return [step for step in later if returns[step] > returns[untrained]]
