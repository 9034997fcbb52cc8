"""Training behaviour policies: environments in processes, updates in large dispatches, a ladder of policies.

A round: the crew steps every environment under the newest weights while the device makes a fixed number of updates
on the rows of earlier rounds; then the new rows are appended. Neither waits for the other's pace within a round, and
yet what comes out depends on the seeds alone. Checkpoints fall on fresh rounds (see `crew`), so a run that was
interrupted and resumed is, bit for bit on the same machine, the run that was not.

    runs/Hopper-v4/
      config.json                       what was asked for
      curve.jsonl                       the learning curve
      rung_seed0_000005000.safetensors  the ladder: policies on the way, with their returns
      step_000100000.safetensors        networks and optimisers: the newest only
      rows_000100000.safetensors        transitions seen since the checkpoint before
"""

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from bcol.errors import InputError
from bcol.evaluate import make_environment
from bcol.forge.crew import Order, Slot, hired
from bcol.forge.engine import Engine
from bcol.forge.folder import opened, save_checkpoint
from bcol.forge.sac import SAC
from bcol.forge.space import space_of
from bcol.forge.watch import Ladder, Line, Window


def train_behaviour(
    env: str,
    agent: SAC | None = None,
    *,
    steps: int = 1_000_000,
    seeds: Sequence[int] = (0,),
    envs: int = 16,
    round_steps: int = 32,
    updates_per_step: float = 1.0,
    random_steps: int = 10_000,
    replay: int = 1_000_000,
    rung_every: int = 5_000,
    rung_episodes: int = 5,
    checkpoint_every: int = 100_000,
    workers: int | None = None,
    evaluators: int = 1,
    seconds: float | None = None,
    out: str | Path | None = None,
    progress: bool = True,
) -> Path:
    """Train policies by online SAC and leave a ladder of them; the same call again resumes, or goes on to more steps.

    Args:
        env: Gymnasium id of an environment with box observations and bounded box actions.
        agent: hyper-parameters of SAC.
        steps: environment steps of each run.
        seeds: one run each, side by side in one program.
        envs: environments per run.
        round_steps: steps of each environment per round; the policy acts on weights that are a round old.
        updates_per_step: gradient steps per environment step.
        random_steps: steps with random actions, before learning begins.
        replay: transitions that are remembered.
        rung_every: steps between rungs of the ladder; from 25 times as many on, 4% of the steps so far.
        rung_episodes: episodes with the mode, and as many with sampled actions, that measure a rung.
        checkpoint_every: steps between checkpoints.
        workers: processes that step environments; by default one per core, but one.
        evaluators: processes that measure rungs.
        seconds: stop at the end of the round in which this much time has passed.
        out: the run folder; by default `runs/<env>`.
        progress: show a live progress line on a terminal.

    Returns:
        The run folder.

    Raises:
        InputError: the options make no sense, or `out` holds another run.
        RunError: an environment fails or hangs, or the disk is full.
    """
    began = time.monotonic()
    agent = agent or SAC()
    agent.check()
    workers = max(1, (os.cpu_count() or 2) - 1) if workers is None else workers
    numbers: dict[str, Any] = {"steps": steps, "seeds": len(seeds), "envs": envs, "round_steps": round_steps}
    numbers |= {"rung_every": rung_every, "rung_episodes": rung_episodes, "checkpoint_every": checkpoint_every}
    for name, value in (numbers | {"workers": workers, "evaluators": evaluators}).items():
        if value < 1:
            raise InputError(f"{name} must be at least 1: got {value}")
    if updates_per_step <= 0:
        raise InputError(f"updates_per_step must be positive: got {updates_per_step}")
    if len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise InputError(f"seeds must be different and not negative: got {list(seeds)}")
    world = make_environment(env)
    space = space_of(world, env)
    world.close()

    block = envs * round_steps
    slots = [Slot(run, seed, number) for run, seed in enumerate(seeds) for number in range(envs)]
    capacity = max(1, replay // block) * block
    engine = Engine(agent, seeds, space, block, capacity, max(1, round(updates_per_step * block)))
    folder = Path(out) if out is not None else Path("runs") / env.replace("/", "-")
    options = {"updates_per_step": updates_per_step, "random_steps": random_steps, "replay": replay, "envs": envs}
    options |= {"round_steps": round_steps, "checkpoint_every": checkpoint_every, "rung_every": rung_every}
    config = {"env": env, "agent": asdict(agent), "seeds": list(seeds), "workers": workers, **options}
    start = opened(folder, config, engine)
    total, between = -(-steps // block), max(1, checkpoint_every // block)
    rungs = {-(-step // block) for step in rung_steps(total * block, rung_every)} | {total}

    with ExitStack() as stack:
        if start < total:
            crew = stack.enter_context(hired(env, slots, round_steps, workers))
        ladder = stack.enter_context(Ladder(folder, env, space, seeds, rung_episodes, evaluators))
        line = stack.enter_context(Line(folder, total * block, start * block, progress))
        kept: list[np.ndarray] = []
        window = Window(folder, seeds)
        for k in range(start, total + 1):
            stop = k == total or (seconds is not None and time.monotonic() - began > seconds)
            if k > start and (k % between == 0 or stop):
                save_checkpoint(folder, k * block, engine, kept, capacity)
                kept.clear()
            actors = engine.actors()
            if k in rungs and (k > start or k == 0):
                ladder.add(k * block, actors)
            if stop:
                break
            learning = k * block >= max(random_steps, agent.batch_size)
            crew.begin(Order(k, k == start or k % between == 0, actors if learning else None))
            if learning:
                engine.learn()
            haul = crew.finish()
            rows = haul.rows.reshape(len(seeds), block, -1)
            engine.append(rows)
            kept.append(rows)
            window.add((k + 1) * block, engine.updates, haul.episodes, engine.metrics() if learning else None)
            line.show((k + 1) * block, window.news, ladder.news())
    return folder


def rung_steps(steps: int, every: int) -> list[int]:
    """Where rungs are: every `every` steps while learning is fast, then at growing intervals of 4%."""
    found, step = [0], 0
    while step < steps:
        step += max(every, step // 25)
        found.append(min(step, steps))
    return found
