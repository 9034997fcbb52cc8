"""How fast datasets are forged, beside the bare simulator.

    python benchmarks/forge.py --workers 2 [--policies FOLDER_WITH_D4RL_FILES] [--blocks 8] [--output TABLE.md]

*step* is the same environment's own `step` in a loop, on the recorded actions from the recorded states, with nothing
decided and nothing kept; *physics* is MuJoCo's `mj_step` alone, likewise. All three run in the same number of processes
at the same time, in turns. Without the files policies are random networks of the same size, whose episodes are short.
"""

import argparse
import os
import statistics
import time
from concurrent.futures import Future, ProcessPoolExecutor, wait
from pathlib import Path

import mujoco
import numpy as np

from bcol.evaluate import worker_pool
from bcol.forge.behaviour import Behaviour, read_behaviour
from bcol.forge.rollouts import Block, Locomotion, _worlds
from bcol.nets import make_actor

ROBOTS = {"hopper": ("Hopper-v4", 11, 3), "walker2d": ("Walker2d-v4", 17, 6), "halfcheetah": ("HalfCheetah-v4", 17, 6)}


def forged(source: Locomotion, number: int) -> tuple[float, float, Block]:
    _worlds(source.env)
    started = time.perf_counter()
    block = source.block(number)
    seconds = time.perf_counter() - started
    return len(block["rewards"]), seconds, block


def replayed(env: str, block: Block, physics: bool) -> tuple[float, float]:
    """Rows and seconds of the same steps without a policy."""
    world = _worlds(env)[0][0]
    world.reset(seed=0)
    qpos, qvel, actions = block["infos/qpos"], block["infos/qvel"], block["actions"]
    starts = np.append(True, (block["terminals"] | block["timeouts"])[:-1])
    model, data, skip = world.model, world.data, world.frame_skip
    started = time.perf_counter()
    for row in range(len(actions)):
        if starts[row]:
            world.set_state(qpos[row], qvel[row])
        if physics:
            data.ctrl[:] = actions[row]
            mujoco.mj_step(model, data, skip)
        else:
            world.step(actions[row])
    return len(actions), time.perf_counter() - started


def rate(futures: list[Future], workers: int) -> float:
    """Rows per second of all workers together, from the time each spent on its own."""
    wait(futures)
    rows, seconds = (sum(f.result()[i] for f in futures) for i in (0, 1))
    return rows / seconds * workers


def measure(
    pool: ProcessPoolExecutor, source: Locomotion, workers: int, blocks: int
) -> list[tuple[float, float, float]]:
    """Rates of forging, stepping and physics, several times in turns; the first turn warms up."""
    rates = []
    for turn in range(blocks // workers + 1):
        made = [pool.submit(forged, source, turn * workers + i) for i in range(workers)]
        speed = rate(made, workers)
        again = [f.result()[2] for f in made]
        others = [
            rate([pool.submit(replayed, source.env, block, physics) for block in again], workers)
            for physics in (False, True)
        ]
        rates.append((speed, *others))
    return rates[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--blocks", type=int, default=8, help="blocks of about 9,000 rows per robot")
    parser.add_argument("--policies", type=Path)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    lines = ["| robot | workers | rows/s | step/s | physics/s | of step | of physics | 1M rows |", "|---" * 8 + "|"]
    with worker_pool(args.workers) as pool:
        for robot, (env, s, a) in ROBOTS.items():
            if args.policies:
                behaviour = read_behaviour(args.policies / f"{robot}_medium-v2.hdf5")
            else:
                behaviour = Behaviour.from_actor(make_actor(np.random.default_rng(0), s, a, (256, 256)), "random")
            rates = measure(pool, Locomotion(env, behaviour, 0, "speed"), args.workers, args.blocks)
            made, step, physics = (statistics.median(column) for column in zip(*rates, strict=True))
            of_step, of_physics = (statistics.median(rate[0] / rate[i] for rate in rates) for i in (1, 2))
            lines.append(
                f"| {robot} | {args.workers} | {made:,.0f} | {step:,.0f} | {physics:,.0f} | {of_step:.0%} | "
                f"{of_physics:.0%} | {1e6 / made:.0f} s |"
            )
    text = "\n".join(lines) + "\n"
    print(text)
    if args.output:
        args.output.write_text(text)


if __name__ == "__main__":
    main()
