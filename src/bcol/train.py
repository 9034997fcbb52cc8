"""One loop for all agents: data on the device, thousands of steps per dispatch, runs side by side, exact resume."""

import itertools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from copy import copy
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from bcol.agents.base import Agent, Batch, Clock
from bcol.data.filters import normalize_states
from bcol.data.transitions import Transitions
from bcol.errors import InputError
from bcol.evaluate import check_environment, worker_pool
from bcol.fused import platform, resolved
from bcol.monitor import Monitor, diagnosis
from bcol.policy import Policy, Rule
from bcol.runs import Member, Run, RunError, open_run, read_checkpoint

Device = Literal["cpu", "gpu"]

# Long enough that the host is idle, short enough that progress is live and Ctrl-C is heard.
_SECONDS_PER_DISPATCH = 1.0
# Steps are short and made of many kernels: the whole loop becomes one CUDA graph, in which kernels that do not wait for
# each other run at the same time, and the host launches none.
_GPU_OPTIONS = {
    "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUDNN,CUSTOM_CALL,DYNAMIC_SLICE_FUSION,CONDITIONAL,WHILE",
    "xla_gpu_command_buffer_scheduling_mode": "CONCURRENT",
    "xla_gpu_graph_min_graph_size": 1,
}


def train(
    data: Transitions,
    agent: Agent,
    *,
    steps: int = 1_000_000,
    seeds: Sequence[int] = (0,),
    sweep: Mapping[str, Sequence[float]] | None = None,
    env: str | None = None,
    out: str | Path | None = None,
    eval_every: int | None = None,
    eval_episodes: int = 10,
    checkpoint_every: int | None = None,
    keep: int = 3,
    workers: int | None = None,
    device: Device | None = None,
    guards: bool = True,
    tensorboard: bool = False,
    wandb: str | None = None,
    progress: bool = True,
) -> Run:
    """Train an agent; the same call again resumes an interrupted run, or takes a finished one to more `steps`.

    All seeds, and all values of a sweep, are trained side by side in one program.

    Args:
        data: from `load_dataset`.
        agent: which algorithm, with its hyper-parameters.
        steps: gradient steps.
        seeds: one run each.
        sweep: values of float hyper-parameters, such as `{"omega": (0.0, 10.0)}`; one run for each value and seed.
        env: Gymnasium id to score the policy in while training goes on; by default the data's own, if it has one.
        out: the run folder; by default `runs/<data>-<agent>`.
        eval_every: steps between evaluations, a fifth of it in the last tenth; by default steps / 200 (at least
            500), which is the paper's 5,000 and 1,000 of a million; 0 for none.
        eval_episodes: episodes per evaluation.
        checkpoint_every: steps between checkpoints; by default steps / 20.
        keep: how many checkpoints are kept.
        workers: processes that evaluate; by default one per core.
        device: where to train; by default a GPU if there is one.
        guards: stop a run whose numbers show that it is lost (see `bcol.monitor.diagnosis`).
        tensorboard: also write TensorBoard event files.
        wandb: also log to this Weights & Biases project.
        progress: show a live progress line on a terminal.

    Raises:
        InputError: the options make no sense, or `out` holds a run of another configuration or of other data.
        RunError: a run is lost, the disk is full, or the environment crashed; what was saved is whole.
    """
    agent.check()
    for name, value in {"steps": steps, "eval_episodes": eval_episodes, "keep": keep, "seeds": len(seeds)}.items():
        if value < 1:
            raise InputError(f"{name} must be at least 1: got {value}")
    if data.spec.discrete:
        raise InputError("the data has discrete actions, and every agent here needs continuous ones")
    if agent.normalize_states and data.spec.normalization is None:
        data = normalize_states(data)
    spec, env = data.spec, env or data.spec.env_id
    variants = _variants(agent, dict(sweep or {}), seeds)
    path = Path(out) if out is not None else Path("runs") / f"{spec.task or Path(spec.source).stem}-{agent.name}"
    members = [Member(path / name, keep, tensorboard, wandb) for name, _, _ in variants]
    start, config = open_run(
        path, members, {"agent": agent.to_json(), "data": asdict(spec), "sweep": dict(sweep or {})}
    )

    with ExitStack() as stack:
        stack.enter_context(_on(device))
        program = _Program([variant for _, variant, _ in variants], [seed for *_, seed in variants], data, steps)
        if start:
            program.restore(start, [read_checkpoint(member.at(start))[0] for member in members])
        for i, (member, (_, variant, seed)) in enumerate(zip(members, variants, strict=True)):
            member.begin({"index": i, "seed": seed, "steps": steps, **config, "agent": variant.to_json()}, start)

        def policy(i: int) -> Policy:
            return Policy(spec, Rule(**variants[i][1].policy()), program.networks(i))

        pool = None
        if env is not None and eval_every != 0:
            check_environment(policy(0), env)
            pool = stack.enter_context(worker_pool(workers or os.cpu_count() or 1))
        monitor = stack.enter_context(Monitor(path, members, start, steps, env, eval_episodes, pool, progress))
        saves = _every(steps, checkpoint_every or max(1, steps // 20))
        evaluations = _evaluations(steps, eval_every or max(500, steps // 200)) if pool else set()
        reports = _every(steps, max(1, min(1000, steps // 100)))
        largest = float(np.abs(data.reward).max())
        for step in sorted(s for s in saves | evaluations | reports if s > start):
            metrics = program.advance(step, monitor.tick)
            monitor.report(step, metrics)
            for i in monitor.alive if guards else ():
                problem = diagnosis(metrics[i], largest / (1 - variants[i][1].discount))
                if problem is not None:
                    monitor.lose(i, step, problem)
            if not monitor.alive:
                break
            if step in evaluations:
                monitor.evaluate(step, {i: policy(i) for i in monitor.alive})
            if step in saves:
                monitor.finish_evaluations()  # so that a run resumed from here lacks none of them
                for i in monitor.alive:
                    members[i].save(
                        step, *program.checkpoint(i), {"data": asdict(spec), "rule": variants[i][1].policy()}
                    )
        monitor.finish_evaluations()
    if monitor.lost:
        first = min(monitor.lost)
        raise RunError(f"{members[first].path} stopped: {monitor.lost[first]}")
    return Run(path)


class _Program:
    """The compiled steps of all runs, and their state on the device."""

    def __init__(self, agents: list[Agent], seeds: list[int], data: Transitions, steps: int):
        self.agents, self.step, self.steps = agents, 0, steps
        low, high = (np.asarray(x, np.float32) for x in (data.spec.action_low, data.spec.action_high))
        action, next_action = (
            np.clip(2 * (x - low) / (high - low) - 1, -1, 1) for x in (data.action, data.next_action)
        )
        rows: Any = (data.observation, action, data.reward, data.next_observation, next_action, data.mask)
        self._data = Batch(*map(jnp.asarray, rows))
        dims = data.observation.shape[1], action.shape[1]
        self._template = agents[0].init(np.random.default_rng(0), *dims)
        self._names = [_name(path) for path, _ in jax.tree_util.tree_flatten_with_path(self._template)[0]]
        self._state = _stacked([a.init(np.random.default_rng(s), *dims) for a, s in zip(agents, seeds, strict=True)])
        self._keys = jnp.stack([jax.random.key(s) for s in seeds])
        self._hyper = {
            f.name: jnp.asarray([getattr(a, f.name) for a in agents], jnp.float32)
            for f in fields(agents[0])
            if len({getattr(a, f.name) for a in agents}) > 1
        }
        self._compiled = jax.jit(
            self._dispatch, donate_argnums=0, compiler_options=_GPU_OPTIONS if platform() == "gpu" else None
        )
        self._steps_per_second = 0.0

    def advance(self, until: int, tick: Callable[[int], None]) -> list[dict[str, float]]:
        """Train up to step `until`, and return each run's metrics, averaged on the way; `tick` hears of progress."""
        begin, total = self.step, None
        while self.step < until:
            n = min(until - self.step, max(1, int(self._steps_per_second * _SECONDS_PER_DISPATCH)))
            began = time.monotonic()
            # The number of steps is an argument, not a shape: however a run is cut up, it is the same program.
            self._state, sums = self._compiled(
                self._state, self._hyper, self._keys, self._data, self.step, n, self.steps
            )
            sums = jax.tree.map(np.asarray, sums)
            self._steps_per_second = n / max(time.monotonic() - began, 1e-6)
            total = sums if total is None else jax.tree.map(np.add, total, sums)
            self.step += n
            tick(self.step)
        assert total is not None
        return [{name: float(x[i]) / (until - begin) for name, x in total.items()} for i in range(len(self.agents))]

    def _dispatch(self, state: Any, hyper: Any, keys: Array, data: Batch, step: Array, n: Array, steps: Array) -> Any:
        def of_step(key: Array, step: Array) -> tuple[Batch, Array]:
            """The rows of a step, and the key of its update."""
            for_rows, for_update = jax.random.split(jax.random.fold_in(key, step))
            rows = jax.random.randint(for_rows, (self.agents[0].batch_size,), 0, len(data.reward))
            return jax.tree.map(lambda x: x[rows], data), for_update

        def one_run(state: Any, hyper: Any, drawn: Any, step: Array) -> Any:
            agent = copy(self.agents[0])
            for name, value in hyper.items():
                object.__setattr__(agent, name, value)  # not by __init__: what a program traces is no float
            batch, key = drawn
            return agent.update(state, batch, key, Clock(step, steps))

        def all_runs(one: Callable, *arguments: Any, step: Array) -> Any:
            if len(self.agents) > 1:
                return jax.vmap(lambda *xs: one(*xs, step))(*arguments)
            alone = one(*jax.tree.map(lambda x: x[0], arguments), step)
            return jax.tree.map(lambda x: x[None], alone)

        def body(i: Array, carry: Any) -> Any:
            state, drawn, sums = carry
            # The next rows do not wait for this update: drawn here, a GPU fetches them meanwhile.
            following = all_runs(of_step, keys, step=step + i + 1)
            state, metrics = all_runs(one_run, state, hyper, drawn, step=step + i)
            return state, following, jax.tree.map(jnp.add, sums, metrics)

        precision = "float32" if resolved(self.agents[0].precision) == "float32" else "tensorfloat32"
        with jax.default_matmul_precision(precision):
            drawn = all_runs(of_step, keys, step=step)
            metrics = jax.eval_shape(lambda: all_runs(one_run, state, hyper, drawn, step=step))[1]
            nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), metrics)
            state, _, sums = jax.lax.fori_loop(0, n, body, (state, drawn, nothing))
            return state, sums

    def networks(self, i: int) -> dict[str, Any]:
        """What run i deploys, as NumPy arrays."""
        state = jax.tree.map(lambda x: x[i], self._state)
        return jax.tree.map(np.asarray, self.agents[i].deployed(state))

    def checkpoint(self, i: int) -> tuple[dict[str, np.ndarray], dict[str, str]]:
        """All of run i's state by name, and where in it each tensor of the policy lies."""
        leaves = [np.asarray(x[i]) for x in jax.tree.leaves(self._state)]
        named = jax.tree.unflatten(jax.tree.structure(self._template), self._names)
        deployed = jax.tree_util.tree_flatten_with_path(self.agents[i].deployed(named))[0]
        return dict(zip(self._names, leaves, strict=True)), {_name(path): name for path, name in deployed}

    def restore(self, step: int, checkpoints: list[dict[str, np.ndarray]]) -> None:
        """Go on from checkpoints, one per run; InputError if they are not of these networks."""
        shapes = {name: x.shape for name, x in zip(self._names, jax.tree.leaves(self._template), strict=True)}
        for tensors in checkpoints:
            if {name: x.shape for name, x in tensors.items()} != shapes:
                raise InputError("a checkpoint in the run folder is of other networks than the configuration asks for")
        structure = jax.tree.structure(self._template)
        self._state = _stacked([jax.tree.unflatten(structure, [t[n] for n in self._names]) for t in checkpoints])
        self.step = step


def _stacked(states: list[Any]) -> Any:
    return jax.tree.map(lambda *xs: jnp.stack([jnp.asarray(x) for x in xs]), *states)


def _name(path: Any) -> str:
    """A place in a pytree as text, such as `critic.net.hidden.0.weight`."""
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _variants(agent: Agent, sweep: dict[str, Sequence[float]], seeds: Sequence[int]) -> list[tuple[str, Agent, int]]:
    """Name, agent and seed of every run."""
    floats = {f.name for f in fields(agent) if isinstance(getattr(agent, f.name), float)}
    for name, values in sweep.items():
        if name not in floats:
            raise InputError(f"sweep can vary float hyper-parameters only ({', '.join(sorted(floats))}): got {name!r}")
        if not values:
            raise InputError(f"sweep over {name} has no values")
    variants = []
    for values in itertools.product(*sweep.values()):
        changes: dict[str, Any] = {name: float(value) for name, value in zip(sweep, values, strict=True)}
        variant = replace(agent, **changes)
        variant.check()
        label = "".join(f"{name}={value:g}," for name, value in changes.items())
        variants += [(f"{label}seed{seed}", variant, int(seed)) for seed in seeds]
    if len({name for name, *_ in variants}) < len(variants):
        raise InputError("seeds and sweep values must differ from one another: two runs would be the same")
    return variants


def _on(device: Device | None) -> Any:
    try:
        return jax.default_device(None if device is None else jax.devices(device)[0])
    except RuntimeError:
        raise InputError(
            f"JAX sees no {device}: install bcol[gpu] on a machine with CUDA, or use device='cpu'"
        ) from None


def _every(steps: int, interval: int) -> set[int]:
    return {*range(interval, steps + 1, interval), steps}


def _evaluations(steps: int, interval: int) -> set[int]:
    """The paper's schedule: every `interval` steps, and every fifth of it in the last tenth."""
    late = steps * 9 // 10
    return {s for s in _every(steps, interval) if s <= late} | {
        s for s in _every(steps, max(1, interval // 5)) if s > late
    }
