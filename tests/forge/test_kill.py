"""A forge that is killed without warning, workers and all, is continued to the same bytes by the same command."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
from test_goal_policy import random_arrays

from bcol.forge import make
from bcol.forge.make import forge

ROWS = 6 * 1402
"""Six blocks: when the first has been written the last is seconds away, so that the kill comes before the end."""

PATIENCE_SECONDS = 60


def arrays(path: Path) -> dict[str, bytes]:
    """The rows of a file, and what is inside about them."""
    found: dict[str, bytes] = {}
    with h5py.File(path) as file:
        file.visititems(lambda name, item: found.update({name: item[()].tobytes()} if hasattr(item, "dtype") else {}))
    return found


def blocks(out: Path) -> dict[Path, int]:
    """The blocks that are there, and when each was written."""
    return {path: path.stat().st_mtime_ns for path in Path(f"{out}.parts").glob("*.safetensors")}


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups")
def test_a_killed_forge_is_continued_to_the_same_bytes(tmp_path, monkeypatch) -> None:
    policy, out = tmp_path / "ant.npz", tmp_path / "killed.hdf5"
    np.savez(policy, **random_arrays())  # type: ignore[arg-type]
    command = [sys.executable, "-m", "bcol", "data", "forge", "antmaze-umaze", "--policy", str(policy)]
    command += ["--rows", str(ROWS), "--workers", "1", "--out", str(out)]

    # A group of its own, so that the kill takes the worker processes too and leaves nobody to tidy up.
    with (tmp_path / "said").open("wb") as said:
        process = subprocess.Popen(command, start_new_session=True, stdout=said, stderr=said)
        try:
            give_up = time.monotonic() + PATIENCE_SECONDS
            while not blocks(out) and process.poll() is None and time.monotonic() < give_up:
                time.sleep(0.01)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert process.wait(PATIENCE_SECONDS) == -signal.SIGKILL, (tmp_path / "said").read_text()
    before = blocks(out)
    assert 1 <= len(before) < 6
    assert not out.exists()

    kept = {}
    monkeypatch.setattr(make, "shutil", type("Kept", (), {"rmtree": lambda path: kept.update(blocks(out))}))
    forge("antmaze-umaze", policy=[policy], rows=ROWS, workers=2, out=out)
    assert len(kept) == 6
    assert before.items() <= kept.items()  # what was there was not made again
    whole = forge("antmaze-umaze", policy=[policy], rows=ROWS, workers=2, out=tmp_path / "whole.hdf5")
    assert arrays(out) == arrays(whole)
