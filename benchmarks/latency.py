"""How long a deployed policy takes to decide for one observation, against d3rlpy's `predict`.

    pip install torch
    pip install d3rlpy
    python benchmarks/latency.py

d3rlpy pins an older Gymnasium than bcol needs; install bcol last, this benchmark uses none of d3rlpy's environments.
All policies take turns; state 17, action 6, random weights. TD3+BC has the same width on both sides.
"""

import json
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from bcol.agents import BC, BCOLSAC, TD3BC
from bcol.agents.base import Agent
from bcol.data.transitions import Spec
from bcol.policy import Policy, Rule

OBSERVATION, ACTION = 17, 6


@dataclass
class Options:
    """How often to decide: `rounds` turns of `calls` each."""

    rounds: int = 20
    calls: int = 200
    output: Path | None = Path(__file__).parent / "results" / "latency"


def ours(agent: Agent) -> Callable[[np.ndarray], Any]:
    spec = Spec(OBSERVATION, ACTION, None, (-1.0,) * ACTION, (1.0,) * ACTION, None, "random", "")
    state = agent.init(np.random.default_rng(0), OBSERVATION, ACTION)
    policy = Policy(spec, Rule(**agent.policy()), agent.deployed(state))
    policy.reset()
    return policy.act


def theirs(hidden: tuple[int, ...], threads: int) -> Callable[[np.ndarray], Any]:
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import d3rlpy
    encoder = d3rlpy.models.VectorEncoderFactory(list(hidden))
    config = d3rlpy.algos.TD3PlusBCConfig(actor_encoder_factory=encoder, critic_encoder_factory=encoder)
    agent = config.create(device="cpu:0")
    agent.create_impl((OBSERVATION,), ACTION)

    def predict(observation: np.ndarray) -> Any:
        torch.set_num_threads(threads)
        return agent.predict(observation[None])

    return predict


def main(options: Options) -> None:
    deciders = {
        "bcol, TD3+BC 256x2": ours(TD3BC()),
        "bcol, BC 256x2": ours(BC()),
        "bcol, BCOL-SAC 256x3, B = 10": ours(BCOLSAC(budget=10)),
        "d3rlpy, TD3+BC 256x2": theirs((256, 256), os.cpu_count() or 1),
        "d3rlpy, TD3+BC 256x2, one thread": theirs((256, 256), 1),
    }
    observations = np.random.default_rng(0).normal(size=(options.calls, OBSERVATION)).astype(np.float32)
    times: dict[str, list[float]] = {name: [] for name in deciders}
    load = os.getloadavg()[0]
    for turn in range(options.rounds + 1):
        for name, decide in deciders.items():
            for observation in observations:
                began = time.perf_counter()
                decide(observation)
                if turn:  # the first warms up
                    times[name].append((time.perf_counter() - began) * 1e6)
    rows = {
        name: {"median_us": float(np.median(x)), "p99_us": float(np.percentile(x, 99))} for name, x in times.items()
    }
    best = min(row["median_us"] for name, row in rows.items() if name.startswith("d3rlpy"))
    lines = ["| | median | 99th percentile | times faster than d3rlpy |", "|---|---|---|---|"]
    for name, row in rows.items():
        row["times_d3rlpy"] = best / row["median_us"]
        lines.append(f"| {name} | {row['median_us']:.0f} us | {row['p99_us']:.0f} us | {row['times_d3rlpy']:.1f} |")
    text = f"""# Deciding for one observation

`python benchmarks/latency.py`: state {OBSERVATION}, action {ACTION}, {options.rounds * options.calls} decisions each,
{os.cpu_count()} cores, load average {load:.1f}.

""" + "\n".join(lines)
    print(text)
    if options.output:
        report = {"cores": os.cpu_count(), "load": load, "policies": rows}
        options.output.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
        options.output.with_suffix(".md").write_text(text + "\n")


if __name__ == "__main__":
    main(tyro.cli(Options))
