"""The grid world as an experiment: plan from the log with every budget, then try each plan in the true world."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from bcol.errors import InputError
from bcol.tabular.estimate import Estimate, Unvisited, estimate
from bcol.tabular.gridworld import GridWorld
from bcol.tabular.mdp import check_budget, check_discount
from bcol.tabular.policy import TabularPolicy
from bcol.tabular.solver import Solution, solve

# An episode that takes longer than this has lost its way; what it would still pay is cut off.
_HORIZON = 400
# More deviations than an episode has decisions: planning without a budget.
_UNLIMITED = _HORIZON


@dataclass(frozen=True)
class Outcome:
    """How n episodes went.

    Attributes:
        name: who decided.
        promised: the value at the start in the MDP estimated from the log; None for the log itself.
        delivered: discounted return of each episode in the true world.
        reached: whether it reached the goal.
        steps: its decisions.
        deviations: its deviations.
        spent: how often each state was deviated in, over all episodes.
    """

    name: str
    promised: float | None
    delivered: Float[np.ndarray, " n"]
    reached: Bool[np.ndarray, " n"]
    steps: Int[np.ndarray, " n"]
    deviations: Int[np.ndarray, " n"]
    spent: Int[np.ndarray, " S"]


@dataclass(frozen=True)
class Study:
    """The world, the MDP estimated from its log, the solution for every budget, and how each plan went.

    Attributes:
        outcomes: the log itself, then budgets 0..B, then planning without a budget.
    """

    world: GridWorld
    model: Estimate
    solution: Solution
    outcomes: list[Outcome]


def study(
    world: GridWorld,
    budget: int = 3,
    discount: float = 0.98,
    *,
    noise: float = 0.05,
    unvisited: Unvisited = "pessimistic",
    episodes: int = 2000,
    seed: int = 0,
) -> Study:
    """Log the habits, plan for B = 0..budget and without a budget, and try every plan `episodes` times."""
    discount, budget = check_discount(discount), check_budget(budget)
    if budget >= _UNLIMITED:
        raise InputError(f"budget must be below {_UNLIMITED}, which is no budget at all here: got {budget}")
    if episodes < 1:
        raise InputError(f"episodes must be at least 1: got {episodes}")
    if not 0 <= noise <= 1:
        raise InputError(f"noise must lie in [0, 1]: got {noise}")
    log = world.log(noise, seed)
    model = estimate(log, n_states=len(world.cells), n_actions=4, unvisited=unvisited)
    everything = solve(model.transition, model.reward, model.behavior, discount, _UNLIMITED)
    solution = solve(model.transition, model.reward, model.behavior, discount, budget)

    plans = [(f"budget {b}", b) for b in range(budget + 1)] + [("no budget", _UNLIMITED)]
    outcomes = [_logged(world, log, discount)]
    for name, b in plans:
        promised = float(everything.v[b, world.start])
        outcomes.append(_try(world, everything.policy(seed), b, discount, episodes, name, promised, seed))
    return Study(world, model, solution, outcomes)


def _logged(world: GridWorld, log: list, discount: float) -> Outcome:
    """The logged episodes that began where the plans begin."""
    own = [e for e in log if e.states[0] == world.start]
    delivered = [float(np.sum(discount ** np.arange(len(e.rewards)) * e.rewards)) for e in own]
    reached = [world.letters[e.states[-1]] == "G" for e in own]
    none = np.zeros(len(own), np.int64)
    steps = np.array([len(e.actions) for e in own])
    return Outcome(
        "the log", None, np.array(delivered), np.array(reached), steps, none, np.zeros(len(world.cells), int)
    )


def _try(
    world: GridWorld,
    policy: TabularPolicy,
    budget: int,
    discount: float,
    n: int,
    name: str,
    promised: float,
    seed: int,
) -> Outcome:
    random = np.random.default_rng((seed, budget))
    state = np.full(n, world.start)
    delivered, steps, deviations = np.zeros(n), np.zeros(n, np.int64), np.zeros(n, np.int64)
    spent = np.zeros(len(world.cells), np.int64)
    policy.reset(n, budget)
    for t in range(_HORIZON):
        running = ~world.terminal[state]
        decision = policy.act(state)
        deviated = decision.deviated & running
        np.add.at(spent, state[deviated], 1)
        state, reward = world.step(state, decision.action, random)
        delivered += discount**t * reward
        steps += running
        deviations += deviated
    reached = np.array([world.letters[s] == "G" for s in state])
    return Outcome(name, promised, delivered, reached, steps, deviations, spent)


def likely_path(study: Study, budget: int) -> tuple[list[int], list[int]]:
    """The path from the start if nothing slips and mu does its most likely thing; and where it deviates."""
    world, solution = study.world, study.solution
    state, left, path, deviations = world.start, budget, [world.start], []
    while not world.terminal[state] and len(path) < _HORIZON:
        deviate = bool(solution.deviate[left, state])
        action = solution.action[left, state] if deviate else solution.behavior[state].argmax()
        if deviate:
            deviations.append(state)
        left -= deviate
        state = int(world.destination[state, action])
        path.append(state)
    return path, deviations
