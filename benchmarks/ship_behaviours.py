"""From the ladders of `gpu_behaviours.py` to the behaviour policies that the package ships.

    python benchmarks/ship_behaviours.py LADDERS [--episodes 50] [--rungs 10] [--output src/bcol/forge/behaviours]

For each robot: candidates for *medium* and *expert* are measured again with more episodes, sampled as datasets are;
*expert* is the best of them, *medium* the one nearest to the mean score of D4RL's file, and *replay* the rungs on the
way to medium. NAME.safetensors gets these rungs, NAME.json says which is which, and what made them. The ant ships its
best rung, judged by the return in its own world.
"""

import argparse
import json
import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np

from bcol.evaluate import worker_pool
from bcol.forge.cards import PUBLISHED
from bcol.forge.rungs import Rung, measure, read_ladder, write_ladder
from bcol.runs import write_json


def measured_again(pool: ProcessPoolExecutor, rungs: list[Rung], episodes: int) -> list[Rung]:
    """The rungs with the returns of more episodes, other ones than before."""
    each = -(-episodes // 5)
    futures = [
        [pool.submit(measure, rung.env, rung.actor, 5, 7_000_000 + 1000 * part) for part in range(each)]
        for rung in rungs
    ]
    found = []
    for rung, parts in zip(rungs, futures, strict=True):
        results = [future.result() for future in parts]
        mode, sampled = (tuple(x for r in results for x in getattr(r, kind)) for kind in ("mode", "sampled"))
        found.append(replace(rung, measured=type(results[0])(mode, sampled)))
    return found


def choose(
    pool: ProcessPoolExecutor, name: str, rungs: list[Rung], args: argparse.Namespace
) -> tuple[list[Rung], dict]:
    """The rungs to ship, and which is which."""
    rungs = sorted(rungs, key=lambda rung: rung.step)
    best = sorted(rungs, key=lambda rung: -rung.score())[: args.candidates]
    expert = max(measured_again(pool, best, args.episodes), key=lambda rung: rung.score())
    if name == "ant":
        return [expert], {"expert": expert.step}
    wanted = PUBLISHED[f"{name}-medium"]
    # Learning is not steady: medium is looked for on the way up, before the learner was half-way from it to the expert.
    over = next(rung.step for rung in rungs if rung.score() > (wanted + expert.score()) / 2)
    near = [rung for rung in rungs if rung.step < over]
    near = sorted(near, key=lambda rung: abs(rung.score() - wanted))[: args.candidates]
    medium = min(measured_again(pool, near, args.episodes), key=lambda rung: abs(rung.score() - wanted))
    before = [rung for rung in rungs if rung.step < medium.step]
    picked = np.unique(np.linspace(0, len(before) - 1, min(args.rungs - 1, len(before))).round().astype(int))
    replay = [*(before[i] for i in picked), medium]
    shown = ", ".join(f"{rung.score():.0f}" for rung in replay)
    print(f"{name}: medium {medium.score():.1f} (wanted {wanted:g}), expert {expert.score():.1f}, replay {shown}")
    return [*replay, *([expert] if expert.step != medium.step else [])], {
        "medium": medium.step,
        "expert": expert.step,
        "replay": [rung.step for rung in replay],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ladders", type=Path)
    parser.add_argument("--episodes", type=int, default=50)
    parser.add_argument("--candidates", type=int, default=6)
    parser.add_argument("--rungs", type=int, default=10, help="policies in medium-replay, medium included")
    parser.add_argument("--output", type=Path, default=Path("src/bcol/forge/behaviours"))
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    with worker_pool(os.cpu_count() or 1) as pool:
        for path in sorted(args.ladders.glob("*.safetensors")):
            rungs, about = read_ladder(path)
            # The command without the places of the machine that it ran on.
            about["command"] = " ".join(
                w for w in about["command"].replace("--work ", "--work=").split() if "=/" not in w
            )
            about["command"] = " ".join("OUT" if w.startswith("/") else w for w in about["command"].split())
            chosen, which = choose(pool, path.stem, rungs, args)
            write_ladder(args.output / path.name, chosen, about)
            returns = [
                {
                    "step": rung.step,
                    "sampled": round(float(np.mean(rung.measured.sampled)), 1),
                    "mode": round(float(np.mean(rung.measured.mode)), 1),
                    "episodes": len(rung.measured.sampled),
                    "score": round(rung.score(), 1),
                }
                for rung in chosen
                if rung.measured is not None
            ]
            card = {"env": chosen[0].env, "seed": chosen[0].seed, **which, "returns": returns, "made": about}
            write_json(args.output / f"{path.stem}.json", card)
            print(json.dumps({"file": path.name, "bytes": (args.output / path.name).stat().st_size}))


if __name__ == "__main__":
    main()
