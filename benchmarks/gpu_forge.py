"""Every forged dataset at full size, its card and its time; the ant's walks; and cloning on umaze.

    python benchmarks/gpu_forge.py OUT --seconds 540

Writes OUT/forge_full.json (card and seconds of each dataset, cloning's score on umaze) and OUT/coverage.png (where the
AntMaze rows lie). Datasets that do not fit in the time are left out.
"""

import argparse
import json
import os
import re
import time
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import bcol
from bcol.forge.antmaze import RECIPES
from bcol.forge.cards import read_card
from bcol.forge.make import forge

ROBOTS = ("hopper", "walker2d", "halfcheetah")
NAMES = [
    f"antmaze-{kind}"
    for kind in ("umaze", "umaze-diverse", "medium-play", "medium-diverse", "large-play", "large-diverse")
]
NAMES += [f"{robot}-{kind}" for kind in ("medium-replay", "medium", "medium-expert") for robot in ROBOTS]


def main() -> None:
    """Forge, clone, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=540.0)
    parser.add_argument("--rows", type=int, help="fewer than D4RL's, for a rehearsal")
    parser.add_argument("--bc-steps", type=int, default=100_000)
    parser.add_argument("--match", default="", help="only datasets whose name has this regular expression in it")
    parser.add_argument("--work", type=Path, default=Path("runs/forge"))
    args = parser.parse_args()
    began = time.monotonic()
    args.out.mkdir(parents=True, exist_ok=True)
    report: dict = {"cores": os.cpu_count(), "datasets": {}}
    figure = Figure(figsize=(15, 3), layout="constrained")
    panels = dict(zip(NAMES[:6], figure.subplots(1, 6), strict=True))
    for name in (name for name in NAMES if re.search(args.match, name)):
        left = args.seconds - (time.monotonic() - began)
        if left < 40:
            print(f"{name}: left out, {left:.0f} s left", flush=True)
            continue
        start = time.monotonic()
        file = forge(name, rows=args.rows, out=args.work / f"{name}.hdf5", progress=lambda x: None)
        seconds = time.monotonic() - start
        card = read_card(file.with_suffix(".json"))
        report["datasets"][name] = {"seconds": seconds, "card": card}
        print(
            f"{time.monotonic() - began:.0f} s {name}: {card['rows']:,} rows in {seconds:.0f} s, {card['scores']}",
            flush=True,
        )
        if name in panels:
            data = bcol.load_dataset(str(file), task=f"{name}-v2")
            xy = data.observation[:, :2]
            panels[name].hexbin(xy[:, 0], xy[:, 1], gridsize=60, bins="log", cmap="Greens", linewidths=0)
            panels[name].plot(*RECIPES[name].label_goal, marker="*", color="#c44e52", ms=12)
            panels[name].set(title=name.removeprefix("antmaze-"), aspect="equal", xticks=[], yticks=[])
            if name == "antmaze-umaze":
                start = time.monotonic()
                agent = bcol.BC.preset("antmaze")
                run = bcol.train(
                    data,
                    agent,
                    steps=args.bc_steps,
                    seeds=(0, 1, 2),
                    out=args.work / "bc",
                    eval_every=0,
                    progress=False,
                )
                scores = [
                    bcol.evaluate(run.policy(i), "bcol/AntMaze-umaze-v0", 100 if args.rows is None else 5)
                    for i in range(3)
                ]
                means = [float(s.normalized.mean()) for s in scores]
                report["bc_umaze"] = {
                    "steps": args.bc_steps,
                    "scores": means,
                    "mean": float(np.mean(means)),
                    "seconds": time.monotonic() - start,
                }
                print(report["bc_umaze"], flush=True)
            if name == NAMES[5]:
                figure.savefig(args.out / "coverage.png", dpi=90)
        elif args.rows is None:
            file.unlink()
        (args.out / "forge_full.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
