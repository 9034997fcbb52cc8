"""The low level of AntMaze's data: a policy that walks an ant in a given direction, in NumPy."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from jaxtyping import Float, Float32

from bcol.errors import InputError
from bcol.nets import Actor, squash_log_std

FEATURES = 29
ACTIONS = 8
LAYERS = ("fc0", "fc1", "last_fc", "last_fc_log_std")

DIRECTION_LENGTH = 10.0
"""The policy was trained on goals about this far away, so every direction is scaled to this length."""


GoalReaching = Callable[[Float[np.ndarray, "29"], np.random.Generator], Float[np.ndarray, "8"]]
"""Anything that walks: features from `goal_features` and a generator in, an action in [-1, 1] out."""


def goal_features(observation: Float[np.ndarray, "29"], offset: Float[np.ndarray, "2"]) -> Float[np.ndarray, "29"]:
    """What a goal-reaching policy sees: qpos[2:15], qvel and the direction to walk, of length 10.

    Args:
        observation: an AntMaze observation, qpos (15) and qvel (14).
        offset: from the ant to where it should go; only the direction counts. Zero stays zero.
    """
    length = max(float(np.hypot(offset[0], offset[1])), 1e-6)
    return np.concatenate([observation[2:], offset * (DIRECTION_LENGTH / length)])


@dataclass(frozen=True, eq=False)
class GoalPolicy:
    """A tanh-Gaussian MLP with two hidden ReLU layers: a = tanh(mean + std * N(0, 1))."""

    weights: tuple[Float32[np.ndarray, "..."], ...]
    """Of the two hidden layers, the mean and the log-std, each [out, in]."""
    biases: tuple[Float32[np.ndarray, "..."], ...]
    smooth: bool = False
    """Whether the log-std is squashed smoothly, as in `bcol.nets`, or clipped to -20..2."""

    @property
    def checksum(self) -> str:
        """SHA-256 of the weights."""
        digest = hashlib.sha256(b"smooth" if self.smooth else b"clipped")
        for array in (*self.weights, *self.biases):
            digest.update(f"{array.shape}".encode())
            digest.update(array.tobytes())
        return f"sha256:{digest.hexdigest()}"

    def __call__(self, features: Float[np.ndarray, "29"], rng: np.random.Generator) -> Float[np.ndarray, "8"]:
        """Draw an action."""
        hidden = features.astype(np.float32)
        for layer in (0, 1):
            hidden = np.maximum(self._linear(layer, hidden), 0)
        mean, log_std = self._linear(2, hidden), self._linear(3, hidden)
        log_std = squash_log_std(log_std) if self.smooth else np.clip(log_std, -20, 2)
        return np.tanh(mean + np.exp(log_std) * rng.standard_normal(ACTIONS))

    def _linear(self, layer: int, x: Float32[np.ndarray, "in"]) -> Float32[np.ndarray, "out"]:
        # Not `@`: BLAS splits the product over its threads, so the last bit could depend on their number, and
        # the threads of several worker processes would fight for the cores.
        return np.einsum("oi,i->o", self.weights[layer], x) + self.biases[layer]

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> "GoalPolicy":
        """Build a policy from a `.weight` and a `.bias` of `fc0`, `fc1`, `last_fc` and `last_fc_log_std`.

        An array `smooth` that is not zero says that the log-std is squashed smoothly.
        """
        weights, biases = [], []
        inputs, outputs = FEATURES, 0
        for layer in LAYERS:
            for part in ("weight", "bias"):
                if f"{layer}.{part}" not in arrays:
                    raise InputError(f"the goal-reaching policy has no array {layer}.{part}")
            weight, bias = (np.asarray(arrays[f"{layer}.{part}"]) for part in ("weight", "bias"))
            outputs = len(bias) if bias.ndim == 1 and layer in LAYERS[:2] else ACTIONS
            if weight.shape != (outputs, inputs) or bias.shape != (outputs,):
                raise InputError(
                    f"{layer} of the goal-reaching policy has shapes {weight.shape} and {bias.shape}, "
                    f"expected ({outputs}, {inputs}) and ({outputs},)"
                )
            weights.append(np.ascontiguousarray(weight, dtype=np.float32))
            biases.append(np.ascontiguousarray(bias, dtype=np.float32))
            if layer in LAYERS[:2]:
                inputs = outputs
        return cls(tuple(weights), tuple(biases), bool(np.any(arrays.get("smooth", False))))

    @classmethod
    def from_actor(cls, actor: Actor) -> "GoalPolicy":
        """The policy of a network trained in `bcol/AntDirections-v0`."""
        return cls.from_arrays(goal_arrays(actor))


def goal_arrays(actor: Actor) -> dict[str, Float32[np.ndarray, "..."]]:
    """A network trained in `bcol/AntDirections-v0` as the arrays of a goal-reaching policy, for `numpy.savez`."""
    if len(actor.hidden) != 2 or actor.log_std is None or actor.log_std[0] is None:
        raise InputError("a goal-reaching policy needs two hidden layers and a deviation that depends on the state")
    outputs: list[Any] = [(weight[:, 0], bias[0]) for weight, bias in (actor.mean, actor.log_std) if weight is not None]
    arrays = {"smooth": np.ones((), np.float32)}
    for layer, (weight, bias) in zip(LAYERS, [*actor.hidden, *outputs], strict=True):
        arrays[f"{layer}.weight"] = np.ascontiguousarray(np.asarray(weight, np.float32).T)
        arrays[f"{layer}.bias"] = np.asarray(bias, np.float32)
    return arrays


def load_goal_policy(path: str | Path) -> GoalPolicy:
    """Read a goal-reaching policy from an `.npz` file."""
    try:
        arrays = np.load(path, allow_pickle=False)
        if isinstance(arrays, np.ndarray):
            raise ValueError("one array, not an archive of several")
        with arrays:
            named = {name: arrays[name] for name in arrays.files}
    except FileNotFoundError:
        raise InputError(f"no goal-reaching policy at {path}: give the path of an .npz file") from None
    except (OSError, ValueError, BadZipFile) as error:
        raise InputError(f"{path} is not an .npz file with the layers of a goal-reaching policy") from error
    return GoalPolicy.from_arrays(named)
