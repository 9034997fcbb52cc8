"""The compiled gradient steps of all runs: data on the device, thousands of steps per dispatch, runs side by side."""

import time
from collections.abc import Callable
from copy import copy
from dataclasses import fields
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from bcol.agents.base import Agent, Batch, Clock
from bcol.data.transitions import Transitions
from bcol.errors import InputError
from bcol.fused import platform, resolved

# Long enough that the host is idle, short enough that progress is live and Ctrl-C is heard.
_SECONDS_PER_DISPATCH = 1.0
# Steps are short and made of many kernels: the whole loop becomes one CUDA graph, in which kernels that do not wait for
# each other run at the same time, and the host launches none.
_GPU_OPTIONS = {
    "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUDNN,CUSTOM_CALL,DYNAMIC_SLICE_FUSION,CONDITIONAL,WHILE",
    "xla_gpu_command_buffer_scheduling_mode": "CONCURRENT",
    "xla_gpu_graph_min_graph_size": 1,
}


class Programs:
    """All runs of a sweep: as many programs as there are networks of different shape, such as those of other budgets.

    Padding all runs to the largest budget instead would be one program, and do the largest budget's work for each.
    """

    def __init__(self, agents: list[Agent], seeds: list[int], data: Transitions, steps: int):
        """Runs i = 0, 1, ... have these agents and seeds."""
        rows, groups = on_device(data), dict[str, list[int]]()
        for i, agent in enumerate(agents):
            fixed = {f.name: getattr(agent, f.name) for f in fields(agent)}
            groups.setdefault(repr({k: v for k, v in fixed.items() if not isinstance(v, float)}), []).append(i)
        self._members = list(groups.values())
        self._programs = [Program([agents[i] for i in g], [seeds[i] for i in g], rows, steps) for g in self._members]
        self._place = {
            i: (program, j) for g, program in zip(self._members, self._programs, strict=True) for j, i in enumerate(g)
        }
        self.step = 0

    def route(self) -> str:
        """How matrix products are computed, for the log."""
        return "; ".join(dict.fromkeys(program.route() for program in self._programs))

    def advance(self, until: int, tick: Callable[[int], None]) -> list[dict[str, float]]:
        """Train up to step `until`, and return each run's metrics, averaged on the way; `tick` hears of progress."""
        begin, metrics = self.step, dict[int, dict[str, float]]()
        for k, (group, program) in enumerate(zip(self._members, self._programs, strict=True)):

            def ahead(step: int, before: int = k * (until - begin)) -> None:
                tick(begin + (before + step - begin) // len(self._programs))

            found = program.advance(until, ahead)
            metrics |= dict(zip(group, found, strict=True))
        self.step = until
        return [metrics[i] for i in sorted(metrics)]

    def networks(self, i: int) -> dict[str, Any]:
        """What run i deploys, as NumPy arrays."""
        program, j = self._place[i]
        return program.networks(j)

    def checkpoint(self, i: int) -> tuple[dict[str, np.ndarray], dict[str, str]]:
        """All of run i's state by name, and where in it each tensor of the policy lies."""
        program, j = self._place[i]
        return program.checkpoint(j)

    def restore(self, step: int, checkpoints: list[dict[str, np.ndarray]]) -> None:
        """Go on from checkpoints, one per run; InputError if they are not of these networks."""
        for group, program in zip(self._members, self._programs, strict=True):
            program.restore(step, [checkpoints[i] for i in group])
        self.step = step


def _refused(options: dict[str, Any]) -> str | None:
    """Why this version of the compiler does not take these options; None if it does."""
    try:
        jax.jit(lambda x: x, compiler_options=options).lower(0.0).compile()
    except jax.errors.JaxRuntimeError as error:
        return str(error).splitlines()[0]
    return None


def on_device(data: Transitions) -> Batch:
    """All rows on the device, actions scaled to [-1, 1]."""
    low, high = (np.asarray(x, np.float32) for x in (data.spec.action_low, data.spec.action_high))
    action, next_action = (np.clip(2 * (x - low) / (high - low) - 1, -1, 1) for x in (data.action, data.next_action))
    rows: Any = (data.observation, action, data.reward, data.next_observation, next_action, data.mask)
    return Batch(*map(jnp.asarray, rows))


class Program:
    """Runs that differ in nothing but seeds and floats: one program, vmapped."""

    def __init__(self, agents: list[Agent], seeds: list[int], data: Batch, steps: int):
        """Fresh networks for every run; `data` lies on the device already."""
        self.agents, self.step, self.steps = agents, 0, steps
        self._data = data
        dims = data.observation.shape[1], data.action.shape[1]
        self._template = agents[0].init(np.random.default_rng(0), *dims)
        self._names = [_name(path) for path, _ in jax.tree_util.tree_flatten_with_path(self._template)[0]]
        self._state = _stacked([a.init(np.random.default_rng(s), *dims) for a, s in zip(agents, seeds, strict=True)])
        self._keys = jnp.stack([jax.random.key(s) for s in seeds])
        self._hyper = {
            f.name: jnp.asarray([getattr(a, f.name) for a in agents], jnp.float32)
            for f in fields(agents[0])
            if len({getattr(a, f.name) for a in agents}) > 1
        }
        on_gpu = platform() == "gpu"
        self._obstacle = _refused(_GPU_OPTIONS) if on_gpu else None
        options = _GPU_OPTIONS if on_gpu and self._obstacle is None else None
        self._compiled = jax.jit(self._dispatch, donate_argnums=0, compiler_options=options)
        self._steps_per_second = 0.0

    def route(self) -> str:
        """How matrix products are computed, for the log."""
        route = self.agents[0].route(self._template)
        return route if self._obstacle is None else f"{route}; no CUDA graph: {self._obstacle}"

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
            return state, following, sums + jnp.stack([metrics[name] for name in names])

        precision = "float32" if resolved(self.agents[0].precision) == "float32" else "tensorfloat32"
        with jax.default_matmul_precision(precision):
            drawn = all_runs(of_step, keys, step=step)
            # One array of all metrics: added one by one, they would be a dozen kernels per step.
            names = list(jax.eval_shape(lambda: all_runs(one_run, state, hyper, drawn, step=step))[1])
            nothing = jnp.zeros((len(names), len(self.agents)))
            state, _, sums = jax.lax.fori_loop(0, n, body, (state, drawn, nothing))
            return state, dict(zip(names, sums, strict=True))

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
