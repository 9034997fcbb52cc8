"""Own logs as tables: Parquet and CSV, one row per step."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from bcol.data.columns import Columns, log_from_columns
from bcol.data.log import Log
from bcol.errors import InputError


def read_table(path: str | os.PathLike[str], columns: Columns | None = None) -> Log:
    """The rows of a Parquet or CSV file (with a header) whose columns mean what `columns` says."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file; check the path")
    try:
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError as error:
        raise InputError(f"{path}: tables need pyarrow; run pip install 'bcol[tables]'") from error
    try:
        if path.suffix == ".csv":
            table = pyarrow.csv.read_csv(path)
            names, load = table.column_names, table.select
        else:
            names = pyarrow.parquet.read_schema(path).names
            load = lambda wanted: pyarrow.parquet.read_table(path, columns=wanted)  # noqa: E731
        return log_from_columns(
            names,
            lambda wanted: {
                name: _numpy(path, name, column) for name, column in zip(wanted, load(wanted).columns, strict=True)
            },
            columns,
            str(path),
        )
    except InputError:
        raise
    except Exception as error:  # Arrow's errors are many; all of them mean that the file cannot be read
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"{path}: damaged or not a {path.suffix[1:]} table ({reason}); write it again") from error


def _numpy(path: Path, name: str, column: Any) -> np.ndarray:
    """A column as an array; a column of lists of one length gives a matrix."""
    import pyarrow as pa

    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy())[0])
        raise InputError(f"{path}: column {name!r} is empty at row {row}; fill it in or drop the row")
    array = column.combine_chunks()
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type) or pa.types.is_fixed_size_list(array.type):
        flat = array.flatten()
        if flat.null_count:
            raise InputError(f"{path}: column {name!r} holds lists with empty places; fill them in")
        lengths = np.unique(array.value_lengths().to_numpy(zero_copy_only=False)) if len(array) else np.array([0])
        if len(lengths) != 1:
            raise InputError(f"{path}: column {name!r} holds lists of different lengths; every row needs the same")
        return flat.to_numpy(zero_copy_only=False).reshape(len(array), int(lengths[0]))
    return array.to_numpy(zero_copy_only=False)
