"""Time steps: ours as `bcol.train` runs them, PyTorch's in a plain loop, and the machine's largest matrix rate."""

import statistics
import time
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from bcol.agents import Agent
from bcol.data.transitions import Spec, Transitions
from bcol.fused import platform
from bcol.program import Program, on_device

Advance = Callable[[int], Any]
"""Takes so many steps, and returns when they are done."""
Peer = Literal["eager", "compiled"]

OBSERVATION_DIM, ACTION_DIM = 17, 6  # those of HalfCheetah and Walker2d


def random_data(rows: int) -> Transitions:
    """Rows of noise: a step costs the same whatever it learns from."""
    random, s, a = np.random.default_rng(0), OBSERVATION_DIM, ACTION_DIM

    def normal(*shape: int) -> np.ndarray:
        return random.standard_normal(shape, np.float32)

    return Transitions(
        observation=normal(rows, s),
        action=np.tanh(normal(rows, a)),
        reward=normal(rows),
        next_observation=normal(rows, s),
        next_action=np.tanh(normal(rows, a)),
        mask=(random.random(rows) > 0.1).astype(np.float32),
        episode=np.zeros(rows, np.int32),
        episode_return=np.zeros(1),
        episode_length=np.array([rows], np.int32),
        draft=Spec(s, a, None, (-1.0,) * a, (1.0,) * a, None, "random", ""),
    )


def seconds_per_step(advance: Advance, *, warm_up: int, seconds: float, rounds: int) -> float:
    """The median over rounds of about so many seconds each, after steps in which programs are compiled."""
    return statistics.median(_rounds(advance, warm_up, seconds, rounds))


def _rounds(advance: Advance, warm_up: int, seconds: float, rounds: int) -> list[float]:
    """Seconds per step of each round."""
    advance(warm_up)
    n = 1
    while (took := _timed(advance, n)) < seconds / 4:
        n *= 4
    n = max(1, round(n * seconds / took))
    return [_timed(advance, n) / n for _ in range(rounds)]


def _timed(advance: Advance, n: int) -> float:
    began = time.perf_counter()
    advance(n)
    return time.perf_counter() - began


def our_step(agent: Agent, runs: int, data: Transitions, seconds: float, rounds: int) -> float:
    """Seconds per step of all runs together."""
    program = Program([agent] * runs, list(range(runs)), on_device(data), 1_000_000_000)

    def advance(n: int) -> None:
        program._steps_per_second = 1e9  # as many as it likes in one dispatch
        program.advance(program.step + n, lambda step: None)

    return seconds_per_step(advance, warm_up=1, seconds=seconds, rounds=rounds)


def torch_step(agent: Agent, data: Transitions, how: Peer, seconds: float, rounds: int) -> float:
    """Seconds per step of the PyTorch version of an agent's update, on the device that JAX runs on."""
    import torch

    from bcol.bench.peer import make
    from bcol.bench.peer_nets import Batch

    on_gpu, compiled = platform() == "gpu", how == "compiled"
    device = "cuda" if on_gpu else "cpu"
    if on_gpu:
        torch.set_float32_matmul_precision("high")
    if compiled:
        # What was compiled for another budget would make this one's shapes variables, and its programs slower.
        torch.compiler.reset()
    mode = "none" if not compiled else "reduce-overhead" if on_gpu else "default"
    peer = make(agent, OBSERVATION_DIM, ACTION_DIM, device=device, compile=mode, fused_adam=on_gpu)
    columns = (data.observation, data.action, data.reward, data.next_observation, data.next_action, data.mask)
    rows = Batch(*(torch.from_numpy(x).to(device) for x in columns))

    def advance(n: int) -> None:
        for _ in range(n):
            if mode == "reduce-overhead":
                torch.compiler.cudagraph_mark_step_begin()  # all graphs of a step share their memory
            peer.update(rows.sample(agent.batch_size), **peer.noise())
        if on_gpu:
            torch.cuda.synchronize()

    # A CUDA graph runs plainly, then is recorded, then replayed; steps with and without an actor's have their own.
    warm_up, times = 12 if compiled else 2, []
    threads = torch.get_num_threads()
    # On a busy CPU, threads only wait for each other: the faster of all and one counts.
    for count in {threads} if on_gpu else {threads, 1}:
        torch.set_num_threads(count)
        times.append(seconds_per_step(advance, warm_up=warm_up, seconds=seconds, rounds=rounds))
    torch.set_num_threads(threads)
    return min(times)


def matrix_peak(seconds: float, rounds: int, size: int | None = None) -> float:
    """FLOP/s of a large product: bfloat16 on a GPU, float32 on a CPU, the most that training could use."""
    gpu = platform() == "gpu"
    size, dtype = size or (8192 if gpu else 2048), jnp.bfloat16 if gpu else jnp.float32
    x, y = (jax.random.normal(jax.random.key(i), (size, size), dtype) for i in range(2))
    product = jax.jit(jnp.matmul)

    def advance(n: int) -> None:
        for _ in range(n):
            z = product(x, y)
        z.block_until_ready()

    # The best round: what else the machine does at the time is no part of what it could do.
    return 2 * size**3 / min(_rounds(advance, 2, seconds, rounds))
