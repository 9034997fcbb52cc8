"""HDF5 files in D4RL's layout: read them, write them.

`observations, actions, rewards, terminals` are needed; `timeouts` and `next_observations` are used where they
are; `infos/*` and `metadata/*` stay in the file until someone asks for them. What D4RL's layout has no place for, the
bounds or number of the actions and the environment's id, is kept in `metadata` under our names for them.
"""

import math
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bcol.data.arrays import listed
from bcol.data.log import Log, make_log
from bcol.errors import InputError

Progress = Callable[[float], None]
"""Called now and then with the fraction of the work that is done."""

_NEEDED = ("observations", "actions", "rewards", "terminals")
_OPTIONAL = ("timeouts", "next_observations")
_DECLARED = ("action_low", "action_high", "num_actions", "env_id")
_SAFE_KINDS = "biufS"
_SLICE_BYTES = 1 << 25
_CHUNK_BYTES = 1 << 20
_GZIP_LEVEL = 1
# Deflate cannot shrink anything further than about 1032 times; a file that claims more is damaged, and
# believing it would fill the memory.
_MOST_COMPRESSION = 1100


def read_d4rl(path: str | os.PathLike[str], progress: Progress | None = None) -> Log:
    """The rows of a D4RL-layout HDF5 file.

    Args:
        path: the file.
        progress: told how far reading is.
    """
    path = Path(path)
    arrays: dict[str, Any] = {}
    with _opened(path) as file:
        for name in _NEEDED:
            if name not in file:
                raise InputError(
                    f"{path}: has no array {name!r} (it has: {listed(file)}); D4RL files need {', '.join(_NEEDED)}"
                )
        present = [name for name in (*_NEEDED, *_OPTIONAL) if name in file]
        total = sum(_safe_size(path, name, file[name]) for name in present)
        done = 0

        def tick(numbers: int) -> None:
            nonlocal done
            done += numbers
            if progress is not None:
                progress(done / total)

        for name in present:
            arrays[name] = _read(file[name], tick)
    metadata = Tree(path, "metadata")
    declared = _declared(path, metadata, discrete=arrays["actions"].dtype.kind in "iu")
    return make_log(**arrays, source=str(path), infos=Tree(path, "infos"), metadata=metadata, **declared)


def _declared(path: Path, metadata: Mapping, discrete: bool) -> dict[str, Any]:
    """What the file says of actions and environment, as arguments of `make_log`."""
    told = {name: metadata[name] for name in set(metadata).intersection(_DECLARED)}
    found: dict[str, Any] = {name: told[name] for name in ("env_id", "num_actions") if name in told}
    if not isinstance(found.get("env_id", ""), str):
        raise InputError(f"{path}: metadata/env_id must be text; write it again")
    if "num_actions" in found:
        if np.ndim(found["num_actions"]) or np.asarray(found["num_actions"]).dtype.kind not in "iu":
            raise InputError(f"{path}: metadata/num_actions must be a whole number; write it again")
        found["num_actions"] = int(found["num_actions"])
    if {"action_low", "action_high"} <= set(told) and not discrete:
        found["action_bounds"] = told["action_low"], told["action_high"]
    return found


class Tree(Mapping[str, Any]):
    """The arrays below one group of an HDF5 file, by path, read when asked for; empty without such a group.

    Where the file has an array in the group's place, it is the only entry, under the group's name. Strings of
    variable length are left out: in damaged files the HDF5 library searches for them forever.
    """

    def __init__(self, path: Path, group: str) -> None:
        """Look nowhere yet."""
        self._path, self._group = path, group

    def __getitem__(self, name: str) -> Any:
        """Open the file and read one array, or one number or string."""
        if name not in self._names:
            raise KeyError(name)
        import h5py

        with _opened(self._path) as file:
            group = file[self._group]
            item = group if isinstance(group, h5py.Dataset) else group[name]
            _safe_size(self._path, f"{self._group}/{name}", item)
            value = item[()]
        return value.decode(errors="replace") if isinstance(value, bytes) else value

    def __iter__(self) -> Iterator[str]:
        """The paths, as `policy/fc0/weight`."""
        return iter(self._names)

    def __len__(self) -> int:
        """How many arrays there are."""
        return len(self._names)

    @property
    def _names(self) -> list[str]:
        import h5py

        with _opened(self._path) as file:
            if self._group not in file:
                return []
            item = file[self._group]
            if isinstance(item, h5py.Dataset):
                return [self._group]
            found: list[str] = []

            def visit(name: str, child: Any) -> None:
                if isinstance(child, h5py.Dataset) and child.dtype.kind in _SAFE_KINDS:
                    found.append(name)

            item.visititems(visit)
            return found


def write_d4rl(path: str | os.PathLike[str], log: Log) -> None:
    """Write rows in D4RL's layout, with all else that the log holds; the file appears whole or not at all."""
    import h5py

    path = Path(path)
    part = path.with_name(path.name + ".part")
    arrays = {name: getattr(log, name) for name in (*_NEEDED, *_OPTIONAL)}
    try:
        with h5py.File(part, "w") as file:
            for name, array in arrays.items():
                if array is not None:
                    _write(file, name, array)
            declared = {name: getattr(log, name) for name in _DECLARED if getattr(log, name) is not None}
            for group, entries in (("infos", log.infos), ("metadata", {**log.metadata, **declared})):
                for name, value in entries.items():
                    alone = name == group and len(entries) == 1
                    _write(file, group if alone else f"{group}/{name}", value)
        part.replace(path)
    except (OSError, RuntimeError) as error:  # a full disk is a RuntimeError where h5py closes what it could not write
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())[:120]
        raise InputError(f"cannot write {path} ({reason}); choose another place") from error
    finally:
        part.unlink(missing_ok=True)


def _write(file: Any, name: str, value: Any) -> None:
    array = np.asarray(value.encode() if isinstance(value, str) else value)
    if array.ndim == 0 or array.size == 0:
        file.create_dataset(name, data=array)
        return
    rows = max(1, min(len(array), _CHUNK_BYTES // array[0].nbytes))
    options = {"chunks": (rows, *array.shape[1:]), "compression": "gzip", "compression_opts": _GZIP_LEVEL}
    dataset = file.create_dataset(name, array.shape, array.dtype, **options)

    def packed(start: int) -> bytes:
        chunk = array[start : start + rows]
        missing = np.zeros((rows - len(chunk), *array.shape[1:]), array.dtype)
        return zlib.compress(chunk.tobytes() + missing.tobytes(), _GZIP_LEVEL)

    # The HDF5 library compresses on one core; compressed here, on all of them, the chunks are the same.
    with ThreadPoolExecutor() as pool:
        starts = range(0, len(array), rows)
        for start, content in zip(starts, pool.map(packed, starts), strict=True):
            dataset.id.write_direct_chunk((start, *(0,) * (array.ndim - 1)), content)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The open file; whatever the HDF5 library says about a damaged one becomes one line."""
    import h5py

    if not path.is_file():
        raise InputError(f"{path}: no such file; check the path, or see `bcol data list` for names that are downloaded")
    try:
        with h5py.File(path, "r") as file:
            yield file
    except InputError:
        raise
    except Exception as error:  # damaged files raise anything: OSError, KeyError, RuntimeError, MemoryError, ...
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"{path}: damaged or not an HDF5 file ({reason}); download or write it again") from error


def _safe_size(path: Path, name: str, item: Any) -> int:
    """How many numbers an array holds, once it is sure that reading it is safe."""
    import h5py

    if not isinstance(item, h5py.Dataset):
        raise InputError(f"{path}: {name} is a group, not an array; D4RL files hold arrays at the top")
    if item.dtype.kind not in _SAFE_KINDS:
        raise InputError(f"{path}: {name} has dtype {item.dtype}; store numbers (float32)")
    if item.shape is None:
        raise InputError(f"{path}: {name} is empty; store one row per step")
    size = math.prod(int(n) for n in item.shape)
    claimed = size * item.dtype.itemsize
    if claimed > path.stat().st_size * _MOST_COMPRESSION:
        raise InputError(
            f"{path}: {name} claims {claimed} bytes, more than the file can hold; download or write it again"
        )
    return size


def _read(dataset: Any, tick: Callable[[int], None]) -> np.ndarray:
    """The array; floats arrive as float32 straight in their final place, without a copy on the way."""
    if dataset.dtype.kind != "f" or dataset.size == 0 or dataset.ndim == 0:
        return np.asarray(dataset[()])
    array = np.empty(dataset.shape, dtype=np.float32)
    # Slices that end where chunks end: no chunk is inflated twice.
    chunk = dataset.chunks[0] if dataset.chunks else 1
    step = max(1, _SLICE_BYTES // array[0].nbytes // chunk) * chunk
    for start in range(0, len(array), step):
        stop = min(start + step, len(array))
        dataset.read_direct(array, np.s_[start:stop], np.s_[start:stop])
        tick(array[start:stop].size)
    return array
