"""The run folder: configuration, metrics, scores, checkpoints; everything needed to resume or deploy.

    runs/hopper/
      config.json            agent, data, steps: what the command asked for
      seed0/                 one folder per run, each loadable by `load_policy`
        run.json               what this run is
        metrics.jsonl          losses and values by step
        scores.jsonl           evaluations by step
        step_000150000.safetensors    networks, optimisers and how the policy decides: the newest few are kept

Files appear whole or not at all. Nothing here needs JAX.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

import bcol
from bcol.data.transitions import Spec
from bcol.errors import InputError
from bcol.nets import Actor, Behavior, Critic, Linear
from bcol.sinks import Sink, open_sinks

FORMAT = 1
"""The version of the run folder; raised whenever an older bcol could not read it."""


class RunError(RuntimeError):
    """A run cannot go on; the message is one line that says why and what to do."""


@dataclass(frozen=True)
class Run:
    """A finished or running training run.

    Attributes:
        path: its folder.
    """

    path: Path

    @property
    def members(self) -> list[Path]:
        """The folders of its seeds, in order."""
        return sorted(
            (p.parent for p in self.path.glob("*/run.json")), key=lambda p: read_json(p / "run.json")["index"]
        )

    def policy(self, member: int = 0) -> "bcol.Policy":
        """The deployable policy of one seed."""
        return bcol.load_policy(self.members[member])

    def scores(self) -> list[dict[str, Any]]:
        """Every evaluation of every seed."""
        return [{"run": p.name, **row} for p in self.members for row in read_rows(p / "scores.jsonl")]

    def final_score(self, last: int = 10, member: str | None = None) -> tuple[float, float]:
        """Mean and deviation over the episodes of the last evaluations of all runs, or of one, as the paper does it."""
        chosen = [p for p in self.members if member in (None, p.name)]
        rows = [row for p in chosen for row in read_rows(p / "scores.jsonl")[-last:]]
        if not rows:
            raise InputError(f"{self.path} holds no evaluations: train with env=..., or use bcol evaluate")
        episodes = np.concatenate([row["scores"] for row in rows])
        return float(episodes.mean()), float(episodes.std())


class Member:
    """One run of a run folder, being written."""

    def __init__(self, path: Path, keep: int, tensorboard: bool = False, wandb: str | None = None):
        """Write under `path`, keep the newest `keep` checkpoints, and log to TensorBoard or W&B too if asked."""
        self.path, self._keep = path, keep
        self._tensorboard, self._wandb = tensorboard, wandb
        self._sinks: list[Sink] = []

    def at(self, step: int) -> Path:
        """Where the checkpoint of a step lies."""
        return checkpoint_path(self.path, step)

    def begin(self, description: dict[str, Any], step: int) -> None:
        """Make the folder, or bring the logs of an interrupted run back to the step that it resumes from."""
        _guarded(lambda: self.path.mkdir(parents=True, exist_ok=True), self.path)
        write_json(self.path / "run.json", description)
        for name in ("metrics.jsonl", "scores.jsonl"):
            rows = [row for row in read_rows(self.path / name) if row["step"] <= step]
            write_atomically(self.path / name, "".join(json.dumps(row) + "\n" for row in rows).encode())
        self._sinks = open_sinks(self.path, description, self._tensorboard, self._wandb)

    def log(self, file: str, row: dict[str, Any]) -> None:
        """Append a row to metrics.jsonl or scores.jsonl."""

        def append() -> None:
            with (self.path / file).open("a") as stream:
                stream.write(json.dumps(row) + "\n")

        _guarded(append, self.path / file)
        for sink in self._sinks:
            sink.log(row)

    def save(self, step: int, tensors: dict[str, np.ndarray], policy: dict[str, str], meta: dict[str, Any]) -> None:
        """Write a checkpoint, then remove the ones that are too many."""
        meta = {"format": FORMAT, "bcol": bcol.__version__, "step": step, "policy": policy, **meta}
        write_atomically(self.at(step), save(tensors, {"bcol": json.dumps(meta)}))
        for old in checkpoints(self.path)[: -self._keep]:
            old.unlink()

    def close(self) -> None:
        """Close what logs go to."""
        for sink in self._sinks:
            sink.close()


def open_run(path: Path, members: list[Member], config: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Begin or resume a run folder: the step to go on from (0 for a new one), and the configuration as kept.

    Resumes from the newest step of which every member has a readable checkpoint.
    """
    config = json.loads(json.dumps({"format": FORMAT, "bcol": bcol.__version__, **config}))
    file = path / "config.json"
    if not file.exists():
        if path.exists() and any(path.iterdir()):
            raise InputError(f"{path} exists and is not a run folder: choose another out")
        _guarded(lambda: path.mkdir(parents=True, exist_ok=True), path)
        write_json(file, config)
        return 0, config
    held = read_json(file)
    if not isinstance(held, dict) or held.get("format") != FORMAT:
        raise InputError(f"{path} is a run folder of another version of bcol: choose another out")
    if held["data"]["checksum"] != config["data"]["checksum"]:
        raise InputError(f"{path} was trained on other data ({held['data']['source']}): choose another out")
    for part in ("agent", "sweep"):
        if held[part] != config[part]:
            changed = sorted(
                k for k in held[part].keys() | config[part].keys() if held[part].get(k) != config[part].get(k)
            )
            raise InputError(
                f"{path} holds a run with another {', '.join(changed)}: choose another out, or the same options"
            )
    saved = [{int(p.stem.removeprefix("step_")) for p in checkpoints(m.path)} for m in members]
    return max(set.intersection(*saved), default=0), config


def checkpoint_path(member: Path, step: int) -> Path:
    """Where the checkpoint of a step lies."""
    return member / f"step_{step:09d}.safetensors"


def checkpoints(member: Path) -> list[Path]:
    """The checkpoints of a run, oldest first."""
    return sorted(member.glob("step_*.safetensors"))


def read_checkpoint(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The tensors and the description in a checkpoint; InputError if it is not one of ours, or damaged."""
    try:
        with safe_open(path, framework="numpy") as file:
            meta = json.loads((file.metadata() or {}).get("bcol", "null"))
            if meta is None:
                raise InputError(f"{path} is a safetensors file, but not a checkpoint of bcol")
            if meta["format"] != FORMAT:
                raise InputError(
                    f"{path} was written by bcol {meta['bcol']} in format {meta['format']}; this one reads {FORMAT}: "
                    f"use that version, or train again"
                )
            return {name: file.get_tensor(name) for name in file.keys()}, meta  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"cannot read the checkpoint {path}: {_one_line(error)}") from None


def read_policy(run: Path, step: int | None) -> tuple[Spec, Any, dict[str, Any]]:
    """Data spec, rule and networks of a policy: the arguments of `bcol.Policy`."""
    from bcol.policy import Rule

    path = run
    if run.is_dir():
        if (run / "config.json").exists():
            members = Run(run).members
            if not members:
                raise InputError(f"{run} holds no run that has begun")
            run = members[0]
        path = (
            checkpoint_path(run, step) if step is not None else (checkpoints(run) or [run / "step_*.safetensors"])[-1]
        )
    if not path.is_file():
        kept = [int(p.stem.removeprefix("step_")) for p in checkpoints(path.parent)]
        hint = f"kept are the steps {kept}" if kept else "train one with bcol train"
        raise InputError(f"there is no checkpoint {path}: {hint}")
    tensors, meta = read_checkpoint(path)
    try:
        flat = {name: np.asarray(tensors[stored], np.float32) for name, stored in meta["policy"].items()}
        return Spec.from_json(json.dumps(meta["data"])), Rule(**meta["rule"]), rebuild_networks(flat)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"the checkpoint {path} describes no policy: {_one_line(error)}") from None


def rebuild_networks(tensors: dict[str, np.ndarray]) -> dict[str, Any]:
    """Networks from tensors named by their place, such as `critic.hidden.0.weight`."""
    nested: dict[str, Any] = {}
    for name, tensor in tensors.items():
        *folders, leaf = name.split(".")
        node = nested
        for folder in folders:
            node = node.setdefault(folder, {})
        node[leaf] = tensor

    def build(node: Any) -> Any:
        if not isinstance(node, dict):
            return node
        node = {name: build(child) for name, child in node.items()}
        if node.keys() == {"weight", "bias"}:
            return Linear(**node)
        if all(name.isdigit() for name in node):
            return tuple(node.get(str(i)) for i in range(1 + max(map(int, node))))
        return node

    def actor(node: dict[str, Any]) -> Actor:
        return Actor(**({"log_std": None} | node))

    networks = build(nested)
    if "actor" in networks:
        networks["actor"] = actor(networks["actor"])
    if "critic" in networks:
        networks["critic"] = Critic(**({"hidden": (), "norms": (), "own": None} | networks["critic"]))
    if "behavior" in networks:
        parts = networks["behavior"]
        networks["behavior"] = Behavior(actor(parts["components"]), parts["logits"])
    return networks


def read_json(path: Path) -> Any:
    """A JSON file; InputError if it is damaged."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {_one_line(error)}") from None


def write_json(path: Path, content: Any) -> None:
    """A JSON file, whole or not at all."""
    write_atomically(path, (json.dumps(content, indent=1) + "\n").encode())


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a .jsonl file; a last line cut off by a kill does not count."""
    return list(_rows(path)) if path.exists() else []


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text().splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            return


def write_atomically(path: Path, content: bytes) -> None:
    """Write beside the file, flush to the disk, then move into place: a kill leaves the old file or the new one."""
    beside = path.with_name(f".{path.name}.part")

    def write() -> None:
        try:
            with beside.open("wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)

    _guarded(write, path)


def _guarded(write: Any, path: Path) -> None:
    try:
        write()
    except OSError as error:
        raise RunError(
            f"cannot write {path}: {error.strerror}; what was saved is whole, mend this and give the same command again"
        ) from None


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
