"""Does a step get faster with other options of the compiler? For one GPU.

    python benchmarks/gpu_options.py --output options.json

Times cases of `bcol bench` with the options that `bcol train` uses on a GPU, and with each variant below added to them.
What the compiler refuses is a dash. On a CPU all rows are the same: a rehearsal.
"""

import json
from pathlib import Path
from unittest.mock import patch

import jax
import tyro

from bcol.bench.cases import GPU, chosen
from bcol.bench.measure import our_step, random_data
from bcol.fused import platform
from bcol.program import _GPU_OPTIONS, _refused

VARIANTS = {
    "as they are": {},
    # Then a product's sum, bias and rectifier end in one kernel; see notes.md.
    "no split sums": {"xla_disable_hlo_passes": "splitk-rewriter"},
    "products apart": {"xla_disable_hlo_passes": "dot-merger"},
    "neither": {"xla_disable_hlo_passes": "splitk-rewriter,dot-merger"},
    "library products": {"xla_gpu_enable_triton_gemm": False},
    "our compiler's products": {"xla_gpu_cublas_fallback": False},
    "all tilings tried": {"xla_gpu_exhaustive_tiling_search": True},
}


def main(cases: tuple[str, ...] = ("td3-bc", "bcol-sac-10"), seconds: float = 1.0, output: Path | None = None) -> None:
    """Time the cases with every variant, and print microseconds per step."""
    found: dict[str, dict[str, float | None]] = {}
    data = random_data(200_000)
    names = [case.name for case in chosen(GPU, cases)]
    print("| options | " + " | ".join(names) + " |\n|---|" + "---|" * len(names))
    for name, options in VARIANTS.items():
        found[name] = {}
        for case in chosen(GPU, cases):
            with patch.dict(_GPU_OPTIONS, options):
                try:
                    if platform() == "gpu" and (reason := _refused(_GPU_OPTIONS)):
                        raise jax.errors.JaxRuntimeError(reason)
                    found[name][case.name] = 1e6 * our_step(case.agent, case.runs, data, seconds, 3) / case.runs
                except jax.errors.JaxRuntimeError:
                    found[name][case.name] = None
        times = ("-" if found[name][n] is None else f"{found[name][n]:.0f}" for n in names)
        print(f"| {name} | " + " | ".join(times) + " |", flush=True)
        if output is not None:
            output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
