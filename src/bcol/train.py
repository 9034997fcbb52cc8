"""One loop for all agents: train, log, evaluate in the background, save; exact resume."""

import itertools
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from bcol.agents.base import Agent
from bcol.data.filters import normalize_states
from bcol.data.transitions import Transitions
from bcol.errors import InputError
from bcol.evaluate import check_environment, worker_pool
from bcol.monitor import Monitor, diagnosis
from bcol.policy import Policy, Rule
from bcol.program import Programs
from bcol.runs import Member, Run, RunError, open_run, read_checkpoint

Device = Literal["cpu", "gpu"]


def train(
    data: Transitions,
    agent: Agent,
    *,
    steps: int = 1_000_000,
    seeds: Sequence[int] = (0,),
    sweep: Mapping[str, Sequence[float | int]] | None = None,
    env: str | None = None,
    out: str | Path | None = None,
    eval_every: int | None = None,
    eval_episodes: int = 10,
    checkpoint_every: int | None = None,
    keep: int = 3,
    workers: int | None = None,
    device: Device | None = None,
    guards: bool = True,
    tensorboard: bool = False,
    wandb: str | None = None,
    progress: bool = True,
) -> Run:
    """Train an agent; the same call again resumes an interrupted run, or takes a finished one to more `steps`.

    All seeds, and all values of a sweep, are trained side by side.

    Args:
        data: from `load_dataset`.
        agent: which algorithm, with its hyper-parameters.
        steps: gradient steps.
        seeds: one run each.
        sweep: values of hyper-parameters that are numbers, such as `{"omega": (0.0, 10.0), "budget": (1, 10)}`; one run
            for each value and seed. Floats and seeds share one program; other budgets are other programs, in turns.
        env: Gymnasium id to score the policy in while training goes on; by default the data's own, if it has one.
        out: the run folder; by default `runs/<data>-<agent>`.
        eval_every: steps between evaluations, a fifth of it in the last tenth; by default steps / 200 (at least
            500), which is the paper's 5,000 and 1,000 of a million; 0 for none.
        eval_episodes: episodes per evaluation.
        checkpoint_every: steps between checkpoints; by default steps / 20.
        keep: how many checkpoints are kept.
        workers: processes that evaluate; by default one per core.
        device: where to train; by default a GPU if there is one.
        guards: stop a run whose numbers show that it is lost (see `bcol.monitor.diagnosis`).
        tensorboard: also write TensorBoard event files.
        wandb: also log to this Weights & Biases project.
        progress: show a live progress line on a terminal.

    Raises:
        InputError: the options make no sense, or `out` holds a run of another configuration or of other data.
        RunError: a run is lost, the disk is full, or the environment crashed; what was saved is whole.
    """
    agent.check()
    for name, value in {"steps": steps, "eval_episodes": eval_episodes, "keep": keep, "seeds": len(seeds)}.items():
        if value < 1:
            raise InputError(f"{name} must be at least 1: got {value}")
    if data.spec.discrete:
        raise InputError("the data has discrete actions, and every agent here needs continuous ones")
    if agent.normalize_states and data.spec.normalization is None:
        data = normalize_states(data)
    spec, env = data.spec, env or data.spec.env_id
    variants = _variants(agent, dict(sweep or {}), seeds)
    path = Path(out) if out is not None else Path("runs") / f"{spec.task or Path(spec.source).stem}-{agent.name}"
    members = [Member(path / name, keep, tensorboard, wandb) for name, _, _ in variants]
    start, config = open_run(
        path, members, {"agent": agent.to_json(), "data": asdict(spec), "sweep": dict(sweep or {})}
    )

    with ExitStack() as stack:
        stack.enter_context(_on(device))
        program = Programs([variant for _, variant, _ in variants], [seed for *_, seed in variants], data, steps)
        if start:
            program.restore(start, [read_checkpoint(member.at(start))[0] for member in members])
        machine = f"{(jax.default_device.value or jax.devices()[0]).device_kind}, {program.route()}"
        for i, (member, (_, variant, seed)) in enumerate(zip(members, variants, strict=True)):
            about = {"index": i, "seed": seed, "steps": steps, "machine": machine}
            member.begin({**about, **config, "agent": variant.to_json()}, start)

        def policy(i: int) -> Policy:
            return Policy(spec, Rule(**variants[i][1].policy()), program.networks(i))

        pool = None
        if env is not None and eval_every != 0:
            check_environment(policy(0), env)
            pool = stack.enter_context(worker_pool(workers or os.cpu_count() or 1))
        monitor = stack.enter_context(Monitor(path, members, start, steps, env, eval_episodes, pool, progress))
        monitor.say(f"{path}: on {machine}")
        saves = _every(steps, checkpoint_every or max(1, steps // 20))
        evaluations = _evaluations(steps, eval_every or max(500, steps // 200)) if pool else set()
        reports = _every(steps, max(1, min(1000, steps // 100)))
        largest = float(np.abs(data.reward).max())
        for step in sorted(s for s in saves | evaluations | reports if s > start):
            metrics = program.advance(step, monitor.tick)
            monitor.report(step, metrics)
            for i in monitor.alive if guards else ():
                problem = diagnosis(metrics[i], largest / (1 - variants[i][1].discount))
                if problem is not None:
                    monitor.lose(i, step, problem)
            if not monitor.alive:
                break
            if step in evaluations:
                monitor.evaluate(step, {i: policy(i) for i in monitor.alive})
            if step in saves:
                for i in monitor.alive:
                    about = {"data": asdict(spec), "rule": variants[i][1].policy()}
                    monitor.save(step, partial(members[i].save, step, *program.checkpoint(i), about))
        monitor.finish()
    if monitor.lost:
        first = min(monitor.lost)
        raise RunError(f"{members[first].path} stopped: {monitor.lost[first]}")
    return Run(path)


def _variants(
    agent: Agent, sweep: dict[str, Sequence[float | int]], seeds: Sequence[int]
) -> list[tuple[str, Agent, int]]:
    """Name, agent and seed of every run."""
    kinds = {f.name: type(getattr(agent, f.name)) for f in fields(agent)}
    numbers = {name: kind for name, kind in kinds.items() if kind in (int, float)}
    for name, values in sweep.items():
        if name not in numbers:
            raise InputError(f"sweep can vary numbers only ({', '.join(sorted(numbers))}): got {name!r}")
        if not values:
            raise InputError(f"sweep over {name} has no values")
        if numbers[name] is int and any(value != int(value) for value in values):
            raise InputError(f"sweep over {name} needs whole numbers: got {', '.join(map(str, values))}")
    variants = []
    for values in itertools.product(*sweep.values()):
        changes: dict[str, Any] = {name: numbers[name](value) for name, value in zip(sweep, values, strict=True)}
        variant = replace(agent, **changes)
        variant.check()
        label = "".join(f"{name}={value:g}," for name, value in changes.items())
        variants += [(f"{label}seed{seed}", variant, int(seed)) for seed in seeds]
    if len({name for name, *_ in variants}) < len(variants):
        raise InputError("seeds and sweep values must differ from one another: two runs would be the same")
    return variants


def _on(device: Device | None) -> Any:
    try:
        return jax.default_device(None if device is None else jax.devices(device)[0])
    except RuntimeError:
        raise InputError(
            f"JAX sees no {device}: install bcol[gpu] on a machine with CUDA, or use device='cpu'"
        ) from None


def _every(steps: int, interval: int) -> set[int]:
    return {*range(interval, steps + 1, interval), steps}


def _evaluations(steps: int, interval: int) -> set[int]:
    """The paper's schedule: every `interval` steps, and every fifth of it in the last tenth."""
    late = steps * 9 // 10
    return {s for s in _every(steps, interval) if s <= late} | {
        s for s in _every(steps, max(1, interval // 5)) if s > late
    }
