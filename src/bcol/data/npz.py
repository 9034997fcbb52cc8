"""Own logs in NumPy's NPZ format. Pickled arrays are refused, never unpickled."""

import os
from pathlib import Path

import numpy as np

from bcol.data.columns import Columns, log_from_columns
from bcol.data.log import Log
from bcol.errors import InputError


def read_npz(path: str | os.PathLike[str], columns: Columns | None = None) -> Log:
    """The rows of an NPZ file whose arrays are named as in D4RL files, or as `columns` says."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file; check the path")
    try:
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise InputError(f"{path}: holds a single array; save all of them with np.savez")
            with archive:
                return log_from_columns(
                    archive.files, lambda names: {name: archive[name] for name in names}, columns, str(path)
                )
    except InputError:
        raise
    except Exception as error:  # damaged archives raise anything: BadZipFile, zlib.error, EOFError, KeyError, ...
        reason = " ".join(str(error).split())[:120]
        if reason.startswith("Object arrays"):
            raise InputError(
                f"{path}: holds pickled objects, which are never loaded; save arrays of numbers"
            ) from error
        raise InputError(f"{path}: damaged or not an NPZ file ({reason}); write it again") from error
