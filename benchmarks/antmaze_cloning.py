"""How a clone of forged umaze data fares: by its mode and by samples, with and without the goals that lie at the wall.

    bcol data forge antmaze-umaze --rows 300000 --out umaze.hdf5
    python benchmarks/antmaze_cloning.py umaze.hdf5 [--steps 30000] [--seeds 0 1 2] [--episodes 100] [--output TABLE.md]

An episode ends *at the goal*, or after 700 steps: *fallen* on its back, *still* if it moved less than 0.1 in its last
100 steps, else *walking*. *Near it* is the goal's cell and the half of a cell before it.
"""

import argparse
import tempfile
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

import bcol
from bcol.data.load import read_log
from bcol.data.log import Log
from bcol.data.transitions import pair
from bcol.envs.ant import upside_down
from bcol.envs.antmaze import AntMazeEnv
from bcol.evaluate import worker_pool
from bcol.policy import Policy

WALL = 9.25
"""The wall behind the goal's cell stops an upright ant's torso at about this y."""

GROUP = 20
FATES = ("at the goal", "fallen", "still near it", "still on the way", "walking")


def without_wall_goals(log: Log) -> Log:
    """The episodes whose own goal the ant can stand at; whole episodes, so that rows keep their successors."""
    keep = log.infos["goal"][:, 1] <= WALL
    names = ("observations", "actions", "rewards", "terminals", "timeouts")
    rows = {name: getattr(log, name)[keep] for name in names}
    return replace(log, **rows, infos={name: array[keep] for name, array in log.infos.items()})


def fate(path: list[np.ndarray], success: bool) -> str:
    """How an episode ended, from the states it went through."""
    states = np.array(path)
    if success:
        return "at the goal"
    if upside_down(states[-1, :15]):
        return "fallen"
    if np.linalg.norm(states[-100:, :2] - states[-1, :2], axis=1).max() >= 0.1:
        return "walking"
    x, y = states[-1, :2]
    return "still near it" if x < 4 and y > 6 else "still on the way"


def play(policy: Policy, numbers: range) -> list[str]:
    """The fates of some episodes of evaluation's task, played together."""
    worlds = [AntMazeEnv("umaze") for _ in numbers]
    seen = np.stack([world.reset(seed=number)[0] for world, number in zip(worlds, numbers, strict=True)])
    paths = [[row] for row in seen.copy()]
    done = [False] * len(worlds)
    policy.reset(len(worlds), seed=[(0, number) for number in numbers])
    for _ in range(worlds[0].maze.max_steps):
        actions = policy.act(seen).action
        for i, world in enumerate(worlds):
            if not done[i]:
                seen[i], _, done[i], _, _ = world.step(actions[i])
                paths[i].append(seen[i].copy())
    return [fate(path, success) for path, success in zip(paths, done, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--steps", type=int, default=30_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    log, task = read_log(args.file)
    lines = ["| data | clone | score by seed | " + " | ".join(FATES) + " |", "|---" * (3 + len(FATES)) + "|"]
    groups = [range(i, min(i + GROUP, args.episodes)) for i in range(0, args.episodes, GROUP)]
    with tempfile.TemporaryDirectory() as folder, worker_pool(args.workers) as pool:
        for name, part in {"as forged": log, f"goals with y > {WALL} left out": without_wall_goals(log)}.items():
            agent, out = bcol.BC.preset("antmaze"), Path(folder) / name[:5]
            run = bcol.train(
                pair(part, task), agent, steps=args.steps, seeds=args.seeds, out=out, eval_every=0, progress=False
            )
            for follow in ("mode", "sample"):
                ends = []
                for member in range(len(args.seeds)):
                    trained = run.policy(member)
                    policy = Policy(trained.spec, replace(trained.rule, follow=follow), trained.networks)
                    ends.append([end for group in pool.map(partial(play, policy), groups) for end in group])
                scores = [100 * sum(end == "at the goal" for end in seed) / args.episodes for seed in ends]
                count = Counter(end for seed in ends for end in seed)
                shares = " | ".join(f"{count[end] / count.total():.0%}" for end in FATES)
                shown = f"{np.mean(scores):.0f} ({', '.join(f'{score:.0f}' for score in scores)})"
                lines.append(f"| {name}, {len(part):,} rows | {follow} | {shown} | {shares} |")
                print(lines[-1], flush=True)
    text = "\n".join(lines) + "\n"
    print(text)
    if args.output:
        args.output.write_text(text)


if __name__ == "__main__":
    main()
