"""Sweep throughput of the tabular solver against a SciPy loop over budgets and against this machine's memory.

    python benchmarks/solver.py --output benchmarks/results/solver.json

A sweep of S states, A actions and K successors with budgets 0..B must read, for every (s, a, s'), one row of
B+1 values, an index and a probability, and write V once: these bytes over the time of a sweep are its bandwidth.
Two kinds of successors are timed: near (within 1000 states, as in grids, queues and stocks) and anywhere
(uniform: every row comes from another place). Memory is measured in the same run, streaming (a triad) and
fetching rows of the same length from random places, which is what "anywhere" asks of it.
"""

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
import tyro

from bcol.tabular.mdp import checked
from bcol.tabular.sweep import lay_out, sweep

ACTIONS, SUCCESSORS, DISCOUNT = 8, 5, np.float32(0.95)


@dataclass
class Options:
    """Sizes to time; the budgets are those of the growth table, and every entry is timed for `seconds`."""

    states: tuple[int, ...] = (100_000, 1_000_000)
    budget: int = 20
    budgets: tuple[int, ...] = (0, 20, 40, 80, 160)
    seconds: float = 4.0
    output: Path | None = None


def random_mdp(n, near):
    random = np.random.default_rng(0)
    shape = (n * ACTIONS, SUCCESSORS)
    if near:
        here = np.arange(n * ACTIONS, dtype=np.int64)[:, None] // ACTIONS
        successor = (here + random.integers(-1000, 1000, shape)) % n
    else:
        successor = random.integers(0, n, shape)
    probability = random.dirichlet(np.ones(SUCCESSORS), n * ACTIONS).astype(np.float32)
    start = np.arange(n * ACTIONS + 1) * SUCCESSORS
    transition = sp.csr_array((probability.ravel(), successor.ravel().astype(np.int32), start), shape=(n * ACTIONS, n))
    reward = random.normal(size=(n, ACTIONS)).astype(np.float32)
    behavior = random.dirichlet(np.ones(ACTIONS), n).astype(np.float32)
    return transition, reward, behavior


def median_seconds(step, seconds):
    """Median time of `step()` after one call that does not count."""
    step()
    times: list[float] = []
    while sum(times) < seconds or len(times) < 3:
        began = time.perf_counter()
        step()
        times.append(time.perf_counter() - began)
    return float(np.median(times))


def ours(mdp, budget, seconds):
    blocks = lay_out(*checked(*mdp, np.dtype(np.float32))).blocks
    gamma = jnp.asarray(DISCOUNT)
    # Several sweeps to a dispatch, as solve does it: V stays in place.
    chunk = jax.jit(
        lambda v, blocks: jax.lax.fori_loop(0, 4, lambda _, v: sweep(v, blocks, gamma), v), donate_argnums=0
    )
    state = [jnp.zeros((len(mdp[1]), budget + 1), jnp.float32)]

    def step():
        state[0] = chunk(state[0], blocks).block_until_ready()

    return median_seconds(step, seconds) / 4


def plain_loop(mdp, budget, seconds):
    """What one would write first: Q for every budget, one sparse product each."""
    transition, reward, behavior = mdp
    state = [np.zeros((budget + 1, *reward.shape), np.float32)]

    def step():
        q, new = state[0], np.empty_like(state[0])
        for b in range(budget + 1):
            v = (behavior * q[b]).sum(axis=1)
            if b > 0:
                v = np.maximum(v, q[b - 1].max(axis=1))
            new[b] = reward + DISCOUNT * (transition @ v).reshape(reward.shape)
        state[0] = new

    return median_seconds(step, seconds)


def bytes_per_sweep(n, budget):
    row = 4 * (budget + 1)
    return n * ACTIONS * (SUCCESSORS * (row + 8) + 8) + n * row


def on_all_cores(work, pieces):
    """Seconds per call of `work(piece)` over all pieces at once, one thread each (NumPy releases the lock)."""
    with ThreadPoolExecutor(len(pieces)) as threads:
        return median_seconds(lambda: list(threads.map(work, pieces)), 1.0)


def memory_bandwidth():
    """Bytes per second of a = b + c over arrays far larger than the cache, on all cores."""
    n, cores = 40_000_000, os.cpu_count() or 1
    pieces = [tuple(np.ones(n, np.float32) for _ in range(3)) for _ in range(cores)]
    return cores * 3 * 4 * n / on_all_cores(lambda abc: np.add(abc[1], abc[2], out=abc[0]), pieces)


def row_bandwidth(n, budget):
    """Bytes per second of fetching rows of B+1 values from random places of V into the cache, on all cores."""
    cores, block = os.cpu_count() or 1, 4096
    v = np.ones((n, budget + 1), np.float32)
    index = np.random.default_rng(1).integers(0, n, (cores, 500, block))

    def fetch(blocks):
        taken = np.empty((block, budget + 1), np.float32)
        for rows in blocks:
            np.take(v, rows, axis=0, out=taken, mode="clip")

    return index.size * (4 * (budget + 1) + 4) / on_all_cores(fetch, list(index))


def main(options: Options) -> None:
    memory = memory_bandwidth()
    report: dict[str, Any] = {
        "cores": os.cpu_count(),
        "versions": {"jax": jax.__version__, "numpy": np.__version__},
        "memory_GB_per_s": memory / 1e9,
        "sweeps": [],
        "growth": [],
    }
    print(f"memory, streaming: {memory / 1e9:.1f} GB/s")
    for n in options.states:
        rows = row_bandwidth(n, options.budget)
        for near in (True, False):
            kind, mdp = "near" if near else "anywhere", random_mdp(n, near)
            fast, slow = ours(mdp, options.budget, options.seconds), plain_loop(mdp, options.budget, options.seconds)
            moved = bytes_per_sweep(n, options.budget) / fast
            report["sweeps"].append(
                {
                    "states": n,
                    "budget": options.budget,
                    "successors": kind,
                    "ms": fast * 1e3,
                    "scipy_loop_ms": slow * 1e3,
                    "times_faster": slow / fast,
                    "GB_per_s": moved / 1e9,
                    "share_of_streaming": moved / memory,
                    "share_of_random_rows": moved / rows,
                }
            )
            print(
                f"S={n:.0e} {kind:9} {fast * 1e3:7.1f} ms   SciPy loop {slow * 1e3:7.0f} ms ({slow / fast:.1f}x)",
                end="",
            )
            print(f"   {moved / 1e9:.1f} GB/s, {moved / memory:.0%} of streaming, {moved / rows:.0%} of random rows")
    n = options.states[0]
    mdp = random_mdp(n, near=True)
    for budget in options.budgets:
        taken = ours(mdp, budget, options.seconds)
        report["growth"].append({"states": n, "budget": budget, "ms": taken * 1e3})
        print(f"S={n:.0e} B={budget:<4} {taken * 1e3:7.1f} ms, {taken / (budget + 1) * 1e3:.2f} ms per budget")
    for n in (25_000, 50_000, 100_000, 200_000, 400_000):
        taken = ours(random_mdp(n, near=True), options.budget, options.seconds)
        report["growth"].append({"states": n, "budget": options.budget, "ms": taken * 1e3})
        print(f"S={n:<7} B={options.budget} {taken * 1e3:7.1f} ms, {taken / n * 1e9:.0f} ns per state")
    if options.output:
        options.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main(tyro.cli(Options))
