"""The run folder of a behaviour policy in training: what is in it is listed in `online`."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save

import bcol
from bcol.errors import InputError
from bcol.forge.engine import Engine
from bcol.forge.rungs import Rung
from bcol.runs import (
    FORMAT,
    RunError,
    checkpoint_path,
    checkpoints,
    read_checkpoint,
    read_json,
    read_rows,
    write_atomically,
    write_json,
)


def rung_path(folder: Path, rung: Rung) -> Path:
    """Where a rung lies."""
    return folder / f"rung_seed{rung.seed}_{rung.step:09d}.safetensors"


def rung_files(folder: Path) -> list[Path]:
    """The files of a run's ladder, by seed and step."""
    return sorted(folder.glob("rung_seed*_*.safetensors"))


def opened(folder: Path, config: dict[str, Any], engine: Engine) -> int:
    """Begin or resume a run folder: the round to go on from."""
    config = json.loads(json.dumps({"format": FORMAT, "bcol": bcol.__version__, **config}))
    file = folder / "config.json"
    if not file.exists():
        if folder.exists() and any(folder.iterdir()):
            raise InputError(f"{folder} exists and is not a run folder: choose another out")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot make the folder {folder} ({error.strerror}): choose another out") from None
        write_json(file, config)
        return 0
    held = read_json(file)
    changed = sorted(k for k in held.keys() | config.keys() if held.get(k) != config.get(k) and k != "bcol")
    if changed:
        raise InputError(
            f"{folder} holds a run with another {', '.join(changed)}: choose another out, or the same options"
        )
    saved = checkpoints(folder)
    if saved:
        tensors, meta = read_checkpoint(saved[-1])
        engine.restore(tensors, meta["updates"], meta["step"], _rows_before(folder, meta["step"]))
    start = engine.rows
    for path in rung_files(folder):
        if _step(path) > start:
            path.unlink()
    rows = [row for row in read_rows(folder / "curve.jsonl") if row["step"] <= start]
    write_atomically(folder / "curve.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode())
    return start // engine.block


def save_checkpoint(folder: Path, step: int, engine: Engine, kept: list[np.ndarray], capacity: int) -> None:
    """A checkpoint: first the new rows, then the networks, whose file makes it count; then what is no longer needed."""
    if kept:
        write_atomically(folder / f"rows_{step:09d}.safetensors", save({"rows": np.concatenate(kept, axis=1)}))
    meta = {"format": FORMAT, "bcol": bcol.__version__, "step": step, "updates": engine.updates}
    write_atomically(checkpoint_path(folder, step), save(engine.tensors(), {"bcol": json.dumps(meta)}))
    for old in checkpoints(folder)[:-1]:
        old.unlink()
    for old in folder.glob("rows_*.safetensors"):
        if _step(old) <= step - capacity:
            old.unlink()


def _rows_before(folder: Path, step: int) -> list[np.ndarray]:
    """The rows up to a checkpoint; what was written after it, by a run that was killed then, is removed."""
    for path in folder.glob("rows_*.safetensors"):
        if _step(path) > step:
            path.unlink()
    return [load_file(path)["rows"] for path in sorted(folder.glob("rows_*.safetensors"))]


def _step(path: Path) -> int:
    return int(path.stem.rsplit("_", 1)[1])


def append_to_curve(folder: Path, row: dict[str, Any]) -> None:
    """Add a row to the learning curve."""
    try:
        with (folder / "curve.jsonl").open("a") as stream:
            stream.write(json.dumps(row) + "\n")
    except OSError as error:
        raise RunError(
            f"cannot write to {folder}: {error.strerror}; mend this and give the same command again"
        ) from None
