"""Are our agents the algorithm that a first reference implementation measured?

    python benchmarks/gpu_reproduce.py D4RL_FOLDER OUT --seconds 570

Forges medium datasets with the policies inside D4RL's files (600k rows each), trains BCOL-SAC with B = 1 and B = 10
(omega = 10) for 150k steps on each, and scores mu-hat's mode, mu-hat's best of 10 without any deviation, and the whole
policy, over the checkpoints after 110k steps. Writes OUT/reproduce.json after every part; parts that do not fit in the
time are left out.
"""

import argparse
import json
import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

import bcol
from bcol.evaluate import collect, groups, outcome, play, worker_pool
from bcol.forge.make import forge
from bcol.runs import Run, checkpoints, read_rows

TASKS = {"halfcheetah": "HalfCheetah-v4", "hopper": "Hopper-v4", "walker2d": "Walker2d-v4"}


def scored(pool, folder, env, budget, follow, episodes):
    """Mean, deviation and deviations spent over the episodes of all kept checkpoints."""
    jobs = []
    for i, checkpoint in enumerate(checkpoints(folder)):
        policy = bcol.load_policy(checkpoint)
        policy.rule = replace(policy.rule, follow=follow)
        jobs += [(policy, pool.submit(play, policy, env, seeds, budget)) for seeds in groups(episodes, seed=i)]
    scores = collect([outcome(future, env) for _, future in jobs], env, jobs[0][0])
    normal = scores.normalized
    return {"mean": float(normal.mean()), "std": float(normal.std()), "deviations": float(scores.deviations.mean())}


def main() -> None:
    """Forge, train, score."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("d4rl", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=570.0)
    parser.add_argument("--rows", type=int, default=600_000)
    parser.add_argument("--steps", type=int, default=150_000)
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--work", type=Path, default=Path("runs/reproduce"))
    parser.add_argument("--hidden", type=int, nargs="+", default=[256, 256, 256])
    args = parser.parse_args()
    began = time.monotonic()
    args.out.mkdir(parents=True, exist_ok=True)
    report: dict = {"rows": args.rows, "steps": args.steps, "forge": {}, "runs": []}
    taken: dict[int, float] = {}

    def save() -> None:
        (args.out / "reproduce.json").write_text(json.dumps(report, indent=1) + "\n")

    with worker_pool(os.cpu_count() or 1) as pool:
        for robot, env in TASKS.items():
            start = time.monotonic()
            source = args.d4rl / f"{robot}_medium-v2.hdf5"
            file = forge(
                f"d4rl-{robot}-medium",
                policy=[source],
                rows=args.rows,
                out=args.work / f"{robot}.hdf5",
                progress=lambda x: None,
            )
            data = bcol.load_dataset(str(file), task=f"{robot}-medium-v2")
            score = bcol.data.normalized_score(env, data.episode_return)
            seconds = time.monotonic() - start
            report["forge"][robot] = {
                "rows": len(data),
                "seconds": seconds,
                "mean_score": float(np.mean(score)),
                "episodes": len(score),
            }
            print(robot, report["forge"][robot], flush=True)
            save()
            for budget in (10, 1):
                left = args.seconds - (time.monotonic() - began)
                if left < 1.15 * taken.get(budget, 60.0):
                    print(f"{robot} B={budget}: left out, {left:.0f} s left", flush=True)
                    continue
                start = time.monotonic()
                agent = bcol.BCOLSAC(budget=budget, omega=10.0, hidden=tuple(args.hidden))
                run: Run = bcol.train(
                    data,
                    agent,
                    steps=args.steps,
                    out=args.work / f"{robot}-{budget}",
                    keep=5,
                    eval_every=0,
                    guards=False,
                    checkpoint_every=max(1, args.steps // 15),
                    progress=False,
                )
                trained = time.monotonic() - start
                folder = run.members[0]
                rows = read_rows(folder / "metrics.jsonl")[-10:]
                levels = {
                    k: float(np.mean([row[k] for row in rows]))
                    for k in ("q_follow", "q_budget", "penalty", "actor_saturation", "actor_spread")
                }
                row = {"robot": robot, "budget": budget, "train_seconds": trained, **levels}
                for name, (b, follow) in {
                    "mode": (0, "mode"),
                    "best_of_10": (0, "best"),
                    "policy_best": (budget, "best"),
                    "policy_mode": (budget, "mode"),
                }.items():
                    row[name] = scored(pool, folder, env, b, follow, args.episodes)
                taken[budget] = time.monotonic() - start
                report["runs"].append(row)
                print(f"{time.monotonic() - began:.0f} s", json.dumps(row), flush=True)
                save()


if __name__ == "__main__":
    main()
