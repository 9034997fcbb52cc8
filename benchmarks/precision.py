"""Do policies learned with bf16 products score as those learned in float32?

    python benchmarks/precision.py OUT --tasks halfcheetah-medium walker2d-medium --rows 300000

Forges each dataset, trains BCOL-SAC (three seeds side by side) once in each precision for 200k steps, and plays the
last policies. Every training is a process of its own, all run at once: nothing is timed. Writes OUT/precision.json.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

import bcol
from bcol.forge.make import forge

PRECISIONS = ("float32", "bf16")


def learn(file: Path, task: str, precision: str, args: argparse.Namespace) -> None:
    """Train three seeds, score each, and write the scores beside the runs."""
    data = bcol.load_dataset(str(file), task=f"{task}-v2")
    agent = bcol.BCOLSAC(budget=args.budget, precision=precision, hidden=tuple(args.hidden), batch_size=args.batch_size)
    out = args.work / f"{task}-{precision}"
    run = bcol.train(
        data, agent, steps=args.steps, seeds=(0, 1, 2), out=out, eval_every=0, guards=False, progress=False
    )
    scores = [bcol.evaluate(run.policy(i), data.spec.env_id, args.episodes) for i in range(3)]
    found = {"scores": [float(s.normalized.mean()) for s in scores], "machine": machine(run.path)}
    (out / "found.json").write_text(json.dumps(found))


def machine(folder: Path) -> str:
    return json.loads((folder / "seed0" / "run.json").read_text())["machine"]


def main() -> None:
    """Forge, train all at once, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tasks", nargs="+", default=["halfcheetah-medium", "walker2d-medium"])
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--budget", type=int, default=1)
    parser.add_argument("--episodes", type=int, default=50)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--hidden", type=int, nargs="+", default=[256, 256, 256])
    parser.add_argument("--work", type=Path, default=Path("runs/precision"))
    parser.add_argument("--only", nargs=2, metavar=("TASK", "PRECISION"), help="one of the trainings, on forged data")
    args = parser.parse_args()
    if args.only:
        learn(args.work / f"{args.only[0]}.hdf5", *args.only, args)
        return
    args.out.mkdir(parents=True, exist_ok=True)
    for task in args.tasks:
        forge(task, rows=args.rows, out=args.work / f"{task}.hdf5", progress=lambda x: None)
    pairs = [(task, precision) for task in args.tasks for precision in PRECISIONS]
    processes = [subprocess.Popen([sys.executable, *sys.argv, "--only", *pair]) for pair in pairs]
    codes = [process.wait() for process in processes]
    report: dict = {
        "rows": args.rows,
        "steps": args.steps,
        "budget": args.budget,
        "episodes": args.episodes,
        "tasks": {},
    }
    for (task, precision), code in zip(pairs, codes, strict=True):
        if code == 0:
            found = json.loads((args.work / f"{task}-{precision}" / "found.json").read_text())
            report["tasks"].setdefault(task, {})[precision] = found
    for task, found in report["tasks"].items():
        for precision, result in found.items():
            scores = np.array(result["scores"])
            result["mean"], result["standard_error"] = (
                float(scores.mean()),
                float(scores.std(ddof=1) / len(scores) ** 0.5),
            )
            print(f"{task} {precision}: {result['mean']:.1f} +- {result['standard_error']:.1f}", result, flush=True)
    (args.out / "precision.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
