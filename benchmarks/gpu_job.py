"""A whole job: training with the paper's evaluations behind it, beside the training alone.

    python benchmarks/gpu_job.py OUT --task hopper-medium --steps 400000

The paper evaluates 10 episodes every 5,000 steps, every 1,000 in the last tenth: 280 times in a million steps. With
--alone the same run without evaluations follows; `bcol bench` times the same steps too. Times are by the clock, from
the first step after compilation to the end, the last evaluations and checkpoints included; the seconds before the first
step are reported apart. Writes OUT/job.json.
"""

import argparse
import json
import os
import time
from importlib import import_module
from pathlib import Path
from unittest.mock import patch

import bcol
from bcol.data.transitions import Transitions
from bcol.forge.make import forge
from bcol.monitor import Monitor
from bcol.runs import Run


def timed(data: Transitions, agent: bcol.BCOLSAC, steps: int, every: int, out: Path) -> tuple[float, float, Run]:
    """Seconds until the first report, seconds from there to the end scaled to all steps, and the run."""
    reports = []

    class Watched(Monitor):
        def report(self, step: int, metrics: list[dict[str, float]]) -> None:
            reports.append((time.monotonic(), step))
            super().report(step, metrics)

    began = time.monotonic()
    with patch.object(import_module("bcol.train"), "Monitor", Watched):
        run = bcol.train(data, agent, steps=steps, eval_every=every, out=out, guards=False, progress=False)
    first, step = reports[0]
    return first - began, (time.monotonic() - first) * steps / (steps - step), run


def main() -> None:
    """Forge, train twice, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--task", default="hopper-medium")
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--steps", type=int, default=400_000)
    parser.add_argument("--every", type=int, default=5_000)
    parser.add_argument("--budget", type=int, default=10)
    parser.add_argument("--hidden", type=int, nargs="+", default=[256, 256, 256])
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--work", type=Path, default=Path("runs/job"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    file = forge(args.task, rows=args.rows, out=args.work / f"{args.task}.hdf5", progress=lambda x: None)
    data = bcol.load_dataset(str(file), task=f"{args.task}-v2")
    agent = bcol.BCOLSAC(budget=args.budget, hidden=tuple(args.hidden))
    report: dict = {"steps": args.steps, "cores": os.cpu_count()}
    for name, every in (("job", args.every), ("training alone", 0))[: 1 + args.alone]:
        start, seconds, run = timed(data, agent, args.steps, every, args.work / name.replace(" ", "-"))
        report[name] = {"before_the_first_step": start, "seconds": seconds, "us_per_step": 1e6 * seconds / args.steps}
        if every:
            scores = run.scores()
            report["evaluations"] = len(scores)
            report["episode_steps"] = sum(sum(row["lengths"]) for row in scores)
            report["final_score"] = run.final_score()
        print(name, report, flush=True)
        (args.out / "job.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
