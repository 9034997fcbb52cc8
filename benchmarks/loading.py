"""How fast and how lean loading is, against bare h5py reads and against d3rlpy's buffer.

    python benchmarks/loading.py                 # d3rlpy is measured if it is installed
    python benchmarks/loading.py --rows 200000   # smaller

Writes a D4RL-layout file (17-d observations, 6-d actions, episodes of 1,000 rows that time out, stored
next_observations as in D4RL's v2 files), then measures each way of loading it: the best time of several
rounds, and the peak memory of one load above that of the started process.
"""

import json
import multiprocessing
import os
import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import tyro

OBSERVATION, ACTION, EPISODE = 17, 6, 1000
ARRAYS = ("observations", "actions", "rewards", "terminals", "timeouts", "next_observations")


def write_file(path: Path, rows: int, compression: str | None) -> None:
    rng = np.random.default_rng(0)
    observations = rng.standard_normal((rows + 1, OBSERVATION), dtype=np.float32)
    last = np.arange(rows) % EPISODE == EPISODE - 1
    after = observations[1:].copy()
    after[last] += 1  # the state before the reset, which no row shows
    options: dict[str, Any] = {"compression": compression, "chunks": True} if compression else {}
    with h5py.File(path, "w") as file:
        file.create_dataset("observations", data=observations[:-1], **options)
        file.create_dataset("next_observations", data=after, **options)
        actions = rng.uniform(-1, 1, (rows, ACTION)).astype(np.float32)
        file.create_dataset("actions", data=actions, **options)
        file.create_dataset("rewards", data=rng.standard_normal(rows, dtype=np.float32), **options)
        file.create_dataset("terminals", data=np.zeros(rows, bool), **options)
        file.create_dataset("timeouts", data=last, **options)


def bare(path: str) -> Any:
    with h5py.File(path) as file:
        return [file[name][()] for name in ARRAYS]


def ours(path: str) -> Any:
    import bcol

    return bcol.load_dataset(path)


def d3rlpy(path: str) -> Any:
    from d3rlpy.dataset import MDPDataset

    with h5py.File(path) as file:
        arrays = {name: file[name][()] for name in ARRAYS if name != "next_observations"}
    return MDPDataset(
        **{name: arrays[name] for name in ("observations", "actions", "rewards", "terminals", "timeouts")}
    )


WAYS = {"bare h5py reads": bare, "bcol.load_dataset": ours, "d3rlpy MDPDataset": d3rlpy}


def memory_mb(field: str) -> float:
    """What Linux says about this process: VmRSS now, VmHWM at its peak."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024


def peak(way: str, path: str, small: str, pipe: Any) -> None:
    """The peak memory of one load in a fresh process whose imports are done, and that of its arrays."""
    WAYS[way](small)
    before = memory_mb("VmRSS")
    data = WAYS[way](path)
    above = memory_mb("VmHWM") - before
    fields = vars(data).values() if way == "bcol.load_dataset" else []
    final = sum(value.nbytes for value in fields if isinstance(value, np.ndarray)) / 2**20
    pipe.send({"peak_mb": round(above, 1), "final_mb": round(final, 1)})


def times(ways: list[str], path: str, repeats: int, pipe: Any) -> None:
    """The best time of each way, taken in turns: other work on the machine then slows all of them alike."""
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(repeats + 1):  # the first round pays for imports
        for way in ways:
            np.ones(1 << 27)  # a virtual machine gets memory from its host slowly; let nobody's time hold that
            start = time.perf_counter()
            WAYS[way](path)
            best[way] = min(best[way], time.perf_counter() - start)
    pipe.send({way: {"seconds": round(seconds, 4)} for way, seconds in best.items()})


def in_process(target: Any, *arguments: Any) -> Any:
    """What a function sends from a process of its own."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    job = spawn.Process(target=target, args=(*arguments, there))
    job.start()
    answer = here.recv()
    job.join()
    return answer


@dataclass(frozen=True)
class Benchmark:
    """Measure loading."""

    rows: int = 2_000_000
    """Rows of the file."""
    repeats: int = 5
    """Loads of which the fastest counts."""
    out: Path = Path(__file__).parent / "results" / "loading.json"
    """Where the numbers go."""

    def run(self) -> None:
        """Write the files, measure, and keep the numbers."""
        ways = [way for way in WAYS if way != "d3rlpy MDPDataset" or find_spec("d3rlpy")]
        packages = ("numpy", "h5py", "d3rlpy") if find_spec("d3rlpy") else ("numpy", "h5py")
        results: dict[str, Any] = {
            "command": f"python benchmarks/loading.py --rows {self.rows} --repeats {self.repeats}",
            "cores": os.cpu_count(),
            "versions": {name: version(name) for name in packages},
        }
        with tempfile.TemporaryDirectory() as folder:
            small, large = Path(folder) / "small.hdf5", Path(folder) / "large.hdf5"
            write_file(small, 5000, None)
            for layout, compression in (("gzip, as D4RL's files", "gzip"), ("uncompressed", None)):
                write_file(large, self.rows, compression)
                numbers = in_process(times, ways, str(large), self.repeats)
                for way in ways:
                    numbers[way] |= in_process(peak, way, str(large), str(small))
                reads, loads = numbers["bare h5py reads"], numbers["bcol.load_dataset"]
                numbers["time over bare reads"] = round(loads["seconds"] / reads["seconds"], 2)
                numbers["peak over final arrays"] = round(loads["peak_mb"] / loads["final_mb"], 2)
                results[layout] = numbers
        self.out.write_text(json.dumps(results, indent=2) + "\n")
        print(self.out.read_text())


if __name__ == "__main__":
    tyro.cli(Benchmark).run()
