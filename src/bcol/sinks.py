"""Where logs go beside the run folder's own files: TensorBoard and Weights & Biases, if they are installed."""

from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from bcol.errors import InputError


@runtime_checkable
class Sink(Protocol):
    """Something that takes rows of numbers by step."""

    def log(self, row: dict[str, Any]) -> None:
        """Take a row; what is not a number is left out."""
        ...

    def close(self) -> None:
        """Flush and close."""
        ...


class _TensorBoard:
    def __init__(self, path: Path):
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise InputError("tensorboard needs an extra: pip install 'bcol[tensorboard]'") from None
        self._writer = SummaryWriter(str(path))

    def log(self, row: dict[str, Any]) -> None:
        for name, value in _numbers(row):
            self._writer.add_scalar(name, value, row["step"])

    def close(self) -> None:
        self._writer.close()


class _WandB:
    def __init__(self, path: Path, project: str, description: dict[str, Any]):
        try:
            import wandb
        except ImportError:
            raise InputError("wandb needs an extra: pip install 'bcol[wandb]'") from None
        self._run = wandb.init(project=project, name=str(path), config=description, reinit="create_new")

    def log(self, row: dict[str, Any]) -> None:
        self._run.log(dict(_numbers(row)), step=row["step"])

    def close(self) -> None:
        self._run.finish()


def open_sinks(path: Path, description: dict[str, Any], tensorboard: bool, wandb: str | None) -> list[Sink]:
    """The sinks that were asked for; InputError if one is not installed."""
    sinks: list[Sink] = []
    if tensorboard:
        sinks.append(_TensorBoard(path))
    if wandb is not None:
        sinks.append(_WandB(path, wandb, description))
    return sinks


def _numbers(row: dict[str, Any]) -> list[tuple[str, float]]:
    return [(name, value) for name, value in row.items() if isinstance(value, float)]
