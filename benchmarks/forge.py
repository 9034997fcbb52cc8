"""How fast datasets are forged, beside the bare simulator.

    python benchmarks/forge.py --workers 2 [--policies FOLDER_WITH_D4RL_FILES] [--blocks 8] [--output TABLE.md]

*step* is the same environment's own `step` in a loop, on the recorded actions from the recorded states, with nothing
decided and nothing kept; *physics* is MuJoCo's `mj_step` alone, likewise. All three run in as many processes, in turns,
and are measured in CPU seconds of these processes, so that other work on the machine does not count. *whole* is `forge`
from start to file, by the clock. Without the files policies are random networks, whose episodes are short.
"""

import argparse
import os
import statistics
import tempfile
import time
from concurrent.futures import Future, ProcessPoolExecutor, wait
from pathlib import Path

import mujoco
import numpy as np

from bcol.evaluate import worker_pool
from bcol.forge.behaviour import Behaviour, read_behaviour
from bcol.forge.make import forge
from bcol.forge.rollouts import Block, Sampled, _worlds
from bcol.nets import make_actor

ROBOTS = {"hopper": ("Hopper-v4", 11, 3), "walker2d": ("Walker2d-v4", 17, 6), "halfcheetah": ("HalfCheetah-v4", 17, 6)}


def forged(source: Sampled, number: int) -> tuple[float, float, Block]:
    _worlds(source.env)
    started = time.process_time()
    block = source.block(number)
    seconds = time.process_time() - started
    return len(block["rewards"]), seconds, block


def replayed(env: str, block: Block, physics: bool) -> tuple[float, float]:
    """Rows and seconds of the same steps without a policy."""
    world = _worlds(env)[0][0]
    world.reset(seed=0)
    qpos, qvel, actions = block["infos/qpos"], block["infos/qvel"], block["actions"]
    starts = np.append(True, (block["terminals"] | block["timeouts"])[:-1])
    model, data, skip = world.model, world.data, world.frame_skip
    started = time.process_time()
    for row in range(len(actions)):
        if starts[row]:
            world.set_state(qpos[row], qvel[row])
        if physics:
            data.ctrl[:] = actions[row]
            mujoco.mj_step(model, data, skip)
        else:
            world.step(actions[row])
    return len(actions), time.process_time() - started


def rate(futures: list[Future], workers: int) -> float:
    """Rows per second of all workers together, from the time each spent on its own."""
    wait(futures)
    rows, seconds = (sum(f.result()[i] for f in futures) for i in (0, 1))
    return rows / seconds * workers


def measure(pool: ProcessPoolExecutor, source: Sampled, workers: int, blocks: int) -> list[tuple[float, float, float]]:
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


def from_start_to_file(robot: str, file: Path, args: argparse.Namespace) -> float:
    """Rows per second of everything: processes started, blocks written, one file made of them."""
    rows = args.blocks * 10_000
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        forge(f"d4rl-{robot}-medium", policy=[file], rows=rows, workers=args.workers, out=Path(folder) / "x.hdf5")
        return rows / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--blocks", type=int, default=8, help="blocks of about 9,000 rows per robot")
    parser.add_argument("--policies", type=Path)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    header = "robot | workers | rows/s | step/s | physics/s | of step | of physics | whole, rows/s"
    lines = [f"| {header} |", "|---" * 8 + "|"]
    with worker_pool(args.workers) as pool:
        for robot, (env, s, a) in ROBOTS.items():
            file = args.policies / f"{robot}_medium-v2.hdf5" if args.policies else None
            random = make_actor(np.random.default_rng(0), s, a, (256, 256))
            behaviour = Behaviour.from_actor(random, "random") if file is None else read_behaviour(file)
            rates = measure(pool, Sampled(env, behaviour, 0, "speed"), args.workers, args.blocks)
            made, step, physics = (statistics.median(column) for column in zip(*rates, strict=True))
            of_step, of_physics = (statistics.median(rate[0] / rate[i] for rate in rates) for i in (1, 2))
            whole = "-" if file is None else f"{from_start_to_file(robot, file, args):,.0f}"
            lines.append(
                f"| {robot} | {args.workers} | {made:,.0f} | {step:,.0f} | {physics:,.0f} | {of_step:.0%} | "
                f"{of_physics:.0%} | {whole} |"
            )
    text = "\n".join(lines) + "\n"
    print(text)
    if args.output:
        args.output.write_text(text)


if __name__ == "__main__":
    main()
