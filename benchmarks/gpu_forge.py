"""Every forged dataset at full size, its card and its time; and cloning on umaze.

    python benchmarks/gpu_forge.py OUT --seconds 540

Writes OUT/forge_full.json: card and seconds of each dataset, cloning's score on umaze. Datasets that do not fit in the
time are left out.
"""

import argparse
import json
import os
import re
import time
from pathlib import Path

import numpy as np

import bcol
from bcol.forge.cards import read_card
from bcol.forge.make import forge

ROBOTS = ("hopper", "walker2d", "halfcheetah")
NAMES = [
    f"antmaze-{kind}"
    for kind in ("umaze", "umaze-diverse", "medium-play", "medium-diverse", "large-play", "large-diverse")
]
NAMES += [f"{robot}-{kind}" for kind in ("medium-replay", "medium", "medium-expert") for robot in ROBOTS]


def cloned(file: Path, steps: int, episodes: int, out: Path) -> dict:
    """How three clones of a dataset score in umaze."""
    began = time.monotonic()
    data = bcol.load_dataset(str(file), task="antmaze-umaze-v2")
    agent = bcol.BC.preset("antmaze")
    run = bcol.train(data, agent, steps=steps, seeds=(0, 1, 2), out=out, eval_every=0, progress=False)
    scores = [bcol.evaluate(run.policy(i), "bcol/AntMaze-umaze-v0", episodes) for i in range(3)]
    means = [float(s.normalized.mean()) for s in scores]
    return {"steps": steps, "scores": means, "mean": float(np.mean(means)), "seconds": time.monotonic() - began}


def main() -> None:
    """Forge and clone."""
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
        if name == "antmaze-umaze":
            report["bc_umaze"] = cloned(file, args.bc_steps, 100 if args.rows is None else 5, args.work / "bc")
            print(report["bc_umaze"], flush=True)
        if args.rows is None:
            file.unlink()
        (args.out / "forge_full.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
