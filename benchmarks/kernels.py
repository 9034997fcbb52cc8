"""How many kernels a gradient step is on a GPU, and how many of them wait for each other; no GPU is needed.

    pip install 'jax[cuda13]'
    python benchmarks/kernels.py --cases td3-bc bcol-sac-10

Compiles the loop of `bcol train` for an H200 that need not be there and reads the result. *Chain* is the longest run of
kernels of which each needs the one before; *branch* is its part that only every second step of the TD3 style has.
*Traffic* is what kernels outside the branch read and write. Without a GPU the compiler cannot try variants of products,
so counts are near what runs there, not the same; what they are good for is to see what a change does. (bcol-td3-50 is
compiled with library products, which have work space: its traffic says nothing.)
"""

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_gpu_autotune_level=0"

import jax
import jax.numpy as jnp
import tyro
from jax.experimental import topologies

from bcol.bench.cases import GPU, Case, chosen
from bcol.bench.measure import random_data
from bcol.program import _GPU_OPTIONS, Program, on_device

H200 = """
gpu_device_info {
  threads_per_block_limit: 1024  threads_per_warp: 32  threads_per_core_limit: 2048
  shared_memory_per_block: 49152  shared_memory_per_core: 233472  shared_memory_per_block_optin: 232448
  registers_per_core_limit: 65536  registers_per_block_limit: 65536  core_count: 132  fpus_per_core: 128
  block_dim_limit_x: 2147483647  block_dim_limit_y: 65535  block_dim_limit_z: 65535
  memory_bandwidth: 4800000000000  l2_cache_size: 52428800  clock_rate_ghz: 1.98
  device_memory_size: 149000000000  cuda_compute_capability { major: 9 }
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 }
runtime_version { major: 13 }
device_description_str: "NVIDIA H200"
"""
# What takes no kernel.
FREE = {"parameter", "get-tuple-element", "tuple", "bitcast", "constant"}
SIZES = {"f32": 4, "s32": 4, "u32": 4, "bf16": 2, "pred": 1}


@dataclass(frozen=True)
class Instruction:
    """One line of a compiled computation."""

    name: str
    shape: str
    op: str
    operands: tuple[str, ...]
    branches: tuple[str, ...]

    @property
    def bytes(self) -> int:
        """Of what it writes."""
        return sum(
            SIZES.get(kind, 4) * math.prod(int(d) for d in dims.split(",") if d)
            for kind, dims in re.findall(r"(\w+)\[([\d,]*)\]", self.shape)
        )


def compiled(case: Case) -> str:
    """The program of a case, as text."""
    gpu = topologies.get_topology_desc("one", "cuda", target_config=H200, topology="1x1x1").devices[0]
    there = jax.sharding.SingleDeviceSharding(gpu)
    with patch("bcol.fused._device", lambda: SimpleNamespace(platform="gpu", compute_capability="9.0")):
        with patch("bcol.program._refused", lambda options: None):
            program = Program([case.agent] * case.runs, list(range(case.runs)), on_device(random_data(1000)), 1_000_000)
        arguments = (program._state, program._hyper, program._keys, program._data, 0, 1, 1_000_000)
        specs = jax.tree.map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x), _dtype(x), sharding=there), arguments)
        lowered = jax.jit(program._dispatch, donate_argnums=0).lower(*specs)
    try:
        return lowered.compile(compiler_options=_GPU_OPTIONS).as_text()
    except jax.errors.JaxRuntimeError:  # products of a size that the compiler's own cannot be without trying variants
        return lowered.compile(compiler_options={**_GPU_OPTIONS, "xla_gpu_enable_triton_gemm": False}).as_text()


def _dtype(x: Any) -> Any:
    return getattr(x, "dtype", jnp.int32)


def computations(text: str) -> dict[str, list[Instruction]]:
    """Every computation of a program by name."""
    found: dict[str, list[Instruction]] = {}
    name = ""
    for line in text.splitlines():
        if begin := re.match(r"(?:ENTRY )?%?([\w.-]+) \(.*\) -> .*\{$", line):
            name = begin.group(1)
            found[name] = []
        elif parts := re.match(r"\s+(?:ROOT )?%?([\w.-]+) = (\(.*?\)|\S+) ([\w-]+)\((.*?)\)(?:, (.*))?$", line):
            label, shape, op, operands, rest = parts.groups()
            branches = re.findall(r"(?:true|false)_computation=%([\w.-]+)|body=%([\w.-]+)", rest or "")
            names = tuple(a or b for a, b in branches)
            found[name].append(Instruction(label, shape, op, tuple(re.findall(r"%([\w.-]+)", operands)), names))
    return found


def longest(program: dict[str, list[Instruction]], name: str) -> tuple[int, int, int]:
    """Kernels of a computation, the longest chain in it, and how much of that is in a branch."""
    kernels, ends = 0, {}
    for line in program[name]:
        chain, inside = max((ends[o] for o in line.operands if o in ends), default=(0, 0))
        if line.op == "conditional":
            count, most, _ = max(longest(program, branch) for branch in line.branches)
            kernels, chain, inside = kernels + count, chain + most, inside + most
        elif line.op not in FREE:
            kernels, chain = kernels + 1, chain + 1
        ends[line.name] = chain, inside
    chain, inside = max(ends.values())
    return kernels, chain, inside


def main(cases: tuple[str, ...] = ()) -> None:
    """Compile the cases of `bcol bench` on a GPU (by default all), and print a table."""
    print("| case | kernels | chain | of it in the branch | traffic, MB |\n|---|---|---|---|---|")
    for case in chosen(GPU, cases):
        program = computations(compiled(case))
        body = next(x.branches[0] for lines in program.values() for x in lines if x.op == "while")
        kernels, chain, inside = longest(program, body)
        traffic = _traffic(program[body])
        print(f"| {case.name} | {kernels} | {chain} | {inside} | {traffic / 1e6:.0f} |", flush=True)


def _traffic(lines: Sequence[Instruction]) -> int:
    sizes = {line.name: line.bytes for line in lines}
    kernels = [line for line in lines if line.op not in FREE and line.op != "conditional"]
    return sum(line.bytes + sum(sizes.get(o, 0) for o in line.operands) for line in kernels)


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
