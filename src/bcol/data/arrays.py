"""Arrays of any dtype and shape into the few that a `Log` holds, or an `InputError` that names the array."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from bcol.errors import InputError

# float32 holds every integer up to here, and no further.
_EXACT_INTEGER = 1 << 24


def listed(names: Iterable[str]) -> str:
    """Names for a message: on one line, whatever a damaged file calls its arrays, and not too many."""
    return " ".join(", ".join(names).split())[:200] or "nothing"


def floats(source: str, name: str, array: np.ndarray) -> np.ndarray:
    """Real numbers as contiguous float32."""
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):  # becomes inf, which `bad_values` reports with its row
            return np.ascontiguousarray(array, dtype=np.float32)
    if array.dtype.kind == "b":
        return array.astype(np.float32)
    if array.dtype.kind in "iu":
        if array.size and (int(array.max()) > _EXACT_INTEGER or int(array.min()) < -_EXACT_INTEGER):
            raise InputError(
                f"{source}: {name} holds integers beyond 2**24, which float32 cannot; rescale them to floats"
            )
        return array.astype(np.float32)
    raise InputError(f"{source}: {name} has dtype {array.dtype}; store numbers (float32)")


def matrix(source: str, name: str, value: Any) -> np.ndarray:
    """[rows, dims] as float32; [rows] becomes one column."""
    array = _array(source, name, value)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or array.shape[1] == 0:
        raise InputError(
            f"{source}: {name} has shape {list(array.shape)}; it must be [rows, dims], so flatten each row"
        )
    return floats(source, name, array)


def column(source: str, name: str, value: Any) -> np.ndarray:
    """[rows], from [rows] or [rows, 1]."""
    array = _array(source, name, value)
    if array.ndim == 2 and array.shape[1] == 1:  # medium-replay files have [rows, 1]
        array = array[:, 0]
    if array.ndim != 1:
        raise InputError(f"{source}: {name} has shape {list(array.shape)}; it must be [rows]")
    return array


def actions(source: str, value: Any) -> np.ndarray:
    """Floats as float32 [rows, dims]; integers, which are discrete actions, as int32 [rows]."""
    array = _array(source, "actions", value)
    if array.dtype.kind not in "iu":
        return matrix(source, "actions", array)
    if array.ndim == 2 and array.shape[1] > 1:
        raise InputError(f"{source}: actions are integers in {array.shape[1]} columns; store floats, or one column")
    array = column(source, "actions", array)
    info = np.iinfo(np.int32)
    if array.size and (int(array.max()) > info.max or int(array.min()) < info.min):
        raise InputError(f"{source}: actions holds integers beyond int32; number discrete actions from 0")
    return np.ascontiguousarray(array, dtype=np.int32)


def flags(source: str, name: str, array: np.ndarray) -> np.ndarray:
    """Booleans, from booleans or from zeros and ones."""
    if array.dtype.kind == "b":
        return np.ascontiguousarray(array, dtype=bool)
    if array.dtype.kind not in "iuf":
        raise InputError(f"{source}: {name} has dtype {array.dtype}; store booleans, or zeros and ones")
    wrong = np.flatnonzero((array != 0) & (array != 1))
    if len(wrong):
        raise InputError(f"{source}: {name} is {array[wrong[0]]} at row {wrong[0]}; it must be 0 or 1 everywhere")
    return array.astype(bool)


def _array(source: str, name: str, value: Any) -> np.ndarray:
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:  # ragged lists
        raise InputError(f"{source}: {name} is not one array (rows of different lengths?); pad or split it") from error
    if array.dtype.kind not in "biuf":
        raise InputError(f"{source}: {name} has dtype {array.dtype}; store numbers (float32)")
    return array
