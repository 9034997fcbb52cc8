"""Gradient steps per second of BCOL-SAC against the same update in plain PyTorch, and what bounds them.

    pip install torch
    python benchmarks/train_speed.py

Both train on the same rows, draw their batches themselves and take turns; every figure is a median over the rounds.
The arithmetic of a step is counted, and the rate of the largest matrix product in it is measured in the same run: what
a step would take if all of it ran at that rate is its floor. `budget_samples = 4` updates 4 budgets per step instead
of all and is a different, cheaper step. CPU seconds are of all threads together: other load on the machine hardly
touches them, while it can double the time on the clock.
"""

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch
import tyro

from bcol.agents import BCOLSAC
from bcol.bench.measure import ACTION_DIM, OBSERVATION_DIM, random_data
from bcol.bench.peer import Compile, make
from bcol.bench.peer_nets import Batch
from bcol.bench.work import operations
from bcol.data.transitions import Transitions
from bcol.program import Program, on_device


@dataclass
class Options:
    """What to time; every entry of a round takes about `seconds`, and at least one step."""

    budgets: tuple[int, ...] = (1, 10, 50)
    budget_samples: int = 4
    precision: str = "float32"
    peer: bool = True
    compile: Compile = "none"
    fused_adam: bool = False
    rounds: int = 7
    seconds: float = 1.0
    output: Path | None = Path(__file__).parent / "results" / "train_speed_cpu"


def peer_operations(agent: BCOLSAC) -> float:
    """Of one step of the peer, counted as `bcol.bench.work` does: it reads the state and asks all heads every time."""
    n, a, h, heads = agent.batch_size, ACTION_DIM, agent.hidden[-1], agent.budget + 1
    middle, everything = sum(2 * i * o for i, o in pairwise(agent.hidden)), 2 * heads * h
    state, first = 2 * OBSERVATION_DIM * h, 2 * a * h
    target = (1 + agent.samples * agent.budget) * (state + first + middle + everything)
    learned = (1 + agent.budget) * (2 * (state + first) + 3 * middle + 3 * everything)
    actor = heads * (state + 2 * first + 2 * middle + 2 * everything)
    outputs = lambda heads: 2 * 2 * h * heads * a  # noqa: E731
    policies = (state + middle + outputs(heads)) + (2 * state + 3 * middle + 3 * outputs(heads))
    behavior = 2 * state + 3 * middle + 3 * outputs(1)
    return n * (2 * (target + learned + actor) + policies + behavior)


def gemm_rate(rounds: int = 10) -> float:
    """FLOP/s of one core in [n m B, h] @ [h, h] at B = 10, the product that dominates; the best of some."""
    x, w = torch.randn(12_800, 256), torch.randn(256, 256)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    seconds = min(timed(lambda n: [x @ w for _ in range(n)], 2)[1] for _ in range(rounds))
    torch.set_num_threads(threads)
    return 2 * x.shape[0] * 256 * 256 / seconds


def ours(agent: BCOLSAC, data: Transitions) -> Callable[[int], None]:
    program = Program([agent], [0], on_device(data), 1_000_000)

    def steps(n: int) -> None:
        program._steps_per_second = 1e9  # one dispatch
        program.advance(program.step + n, lambda step: None)

    return steps


def theirs(agent: BCOLSAC, data: Transitions, options: Options) -> Callable[[int], None]:
    peer = make(agent, OBSERVATION_DIM, ACTION_DIM, compile=options.compile, fused_adam=options.fused_adam)
    columns = (data.observation, data.action, data.reward, data.next_observation, data.next_action, data.mask)
    rows = Batch(*map(torch.from_numpy, columns))
    threads = 1

    def steps(n: int) -> None:
        torch.set_num_threads(threads)
        for _ in range(n):
            peer.update(rows.sample(agent.batch_size), **peer.noise())

    # As many threads as make it fastest: on a busy machine more than one only wait for each other.
    speed = {}
    for threads in range(1, (os.cpu_count() or 1) + 1):
        steps(1)
        speed[threads] = min(timed(steps, 1) for _ in range(3))
    threads = min(speed, key=lambda x: speed[x])
    print(f"torch at B={agent.budget}: fastest with {threads} threads")
    return steps


def timed(steps: Callable[[int], Any], n: int) -> tuple[float, float]:
    """Seconds per step, on the clock and of all threads."""
    clock, cpu = time.perf_counter(), time.process_time()
    steps(n)
    return (time.perf_counter() - clock) / n, (time.process_time() - cpu) / n


def measure(budget: int, data: Transitions, options: Options) -> list[dict[str, Any]]:
    agent = BCOLSAC(budget=budget, precision=options.precision)  # type: ignore[arg-type]
    few = BCOLSAC(budget=budget, precision=agent.precision, budget_samples=options.budget_samples)
    contenders = {"bcol": (ours(agent, data), operations(agent, OBSERVATION_DIM, ACTION_DIM))}
    if options.peer:
        contenders["torch"] = (theirs(agent, data, options), peer_operations(agent))
    if options.budget_samples <= budget:
        contenders[f"bcol, {options.budget_samples} budgets"] = (
            ours(few, data),
            operations(few, OBSERVATION_DIM, ACTION_DIM),
        )
    count = {}
    for name, (steps, _) in contenders.items():
        steps(1)
        count[name] = max(1, round(options.seconds / timed(steps, 2)[0]))
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    rates = []
    for _ in range(options.rounds):
        rates.append(gemm_rate(3))
        for name, (steps, _) in contenders.items():
            times[name].append(timed(steps, count[name]))
    peak = max(rates)
    rows = []
    for name, (_, flops) in contenders.items():
        clock, cpu = (float(x) for x in np.median(np.array(times[name]), axis=0))
        rows.append(
            {
                "budget": budget,
                "name": name,
                "ms": clock * 1e3,
                "best_ms": min(x for x, _ in times[name]) * 1e3,
                "cpu_ms": cpu * 1e3,
                "steps_per_s": 1 / clock,
                "GFLOP": flops / 1e9,
                "GFLOP_per_s": flops / clock / 1e9,
                "floor_cpu_ms": flops / peak * 1e3,
                "share_of_gemm": flops / cpu / peak,
            }
        )
    base = {row["name"]: row for row in rows}.get("torch")
    for row in rows if base else ():
        row["times_torch"] = base["ms"] / row["ms"]
        row["times_torch_cpu"] = base["cpu_ms"] / row["cpu_ms"]
    return rows


def table(report: dict[str, Any]) -> str:
    lines = [
        "| B | | steps/s | ms | CPU ms | GFLOP | floor, CPU ms | of GEMM rate | x torch | x torch, CPU time |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in report["steps"]:
        ratio = f"{r['times_torch']:.2f} | {r['times_torch_cpu']:.2f}" if "times_torch" in r else " | "
        lines.append(
            f"| {r['budget']} | {r['name']} | {r['steps_per_s']:.2f} | {r['ms']:.1f} | {r['cpu_ms']:.1f} | "
            f"{r['GFLOP']:.1f} | {r['floor_cpu_ms']:.1f} | {r['share_of_gemm']:.0%} | {ratio} |"
        )
    return "\n".join(lines)


def main(options: Options) -> None:
    data = random_data(20_000)
    report: dict[str, Any] = {
        "cores": os.cpu_count(),
        "load": [os.getloadavg()],
        "versions": {"jax": jax.__version__, "torch": torch.__version__, "numpy": np.__version__},
        "compile": options.compile,
        "precision": options.precision,
        "gemm_GFLOP_per_s_per_core": gemm_rate() / 1e9,
        "steps": [],
    }
    for budget in options.budgets:
        report["steps"] += measure(budget, data, options)
        print(f"B={budget} measured, load {os.getloadavg()[0]:.1f}", flush=True)
    report["load"].append(os.getloadavg())
    rate = report["gemm_GFLOP_per_s_per_core"]
    first, last = report["load"][0][0], report["load"][1][0]
    text = f"""# Gradient steps of BCOL-SAC, {report["cores"]} cores

`python benchmarks/train_speed.py`: batch 256, state 17, action 6, hidden 256x3, m = 5, omega = 10, {options.precision}.
A matrix product alone reaches {rate:.0f} GFLOP/s on one core. Load average before and after: {first:.1f}, {last:.1f}.

{table(report)}

The floor is the step's own arithmetic at the rate of one matrix product: bcol does less of it than the peer (the state
half of the first layer once per state, one head per action, one pass for penalty and actor), but most of a step is
hidden layers that both must compute, so that no float32 step of all budgets can be much faster than its floor.
"""
    print(text)
    if options.output:
        options.output.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
        options.output.with_suffix(".md").write_text(text)


if __name__ == "__main__":
    main(tyro.cli(Options))
