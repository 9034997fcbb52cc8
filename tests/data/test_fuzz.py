"""Thousands of damaged files: each loads or raises an InputError of one line, and none takes long."""

import random
import time

import h5py
import numpy as np
import pytest

import bcol
from bcol.data import pair, read_d4rl, read_npz
from conftest import fields_of, rows

FILES = 3000
SLOW_S = 5.0


def hdf5_seeds(folder):
    """Small files in old and new versions of the format, plain and compressed, with all that we read."""
    log = rows("sssTsssssOsssT" * 2, stored_next=True)
    for number, (version, compression) in enumerate(
        (version, compression) for version in ("earliest", "latest") for compression in (None, "gzip")
    ):
        path = folder / f"{number}.hdf5"
        with h5py.File(path, "w", libver=version) as file:
            for name, array in fields_of(log).items():
                file.create_dataset(name, data=array, compression=compression)
            file["infos/qpos"] = log.observations.astype(np.float64)
            file["metadata/algorithm"] = np.bytes_("SAC")
            file["metadata/name"] = "of variable length"
        yield path.read_bytes()


def npz_seeds(folder):
    fields = fields_of(rows("sssTsssssOsssT" * 2, stored_next=True))
    for save in (np.savez, np.savez_compressed):
        save(folder / "x.npz", **fields)
        yield (folder / "x.npz").read_bytes()


def damaged(content, chance):
    """One of: cut short, bits flipped, bytes or words overwritten, a piece copied, a piece removed."""
    kind = chance.randrange(6)
    if kind == 0:
        return content[: chance.randrange(len(content))]
    content = bytearray(content)
    for _ in range(chance.choice([1, 1, 2, 4, 16])):
        at = chance.randrange(len(content))
        if kind == 1:
            content[at] ^= 1 << chance.randrange(8)
        elif kind == 2:
            content[at] = chance.choice([0, 255, 127, 128, chance.randrange(256)])
        elif kind == 3:
            size = chance.choice([2, 4, 8])
            content[at : at + size] = chance.choice([b"\xff", b"\0", b"\x7f", chance.randbytes(1)]) * size
        elif kind == 4:
            size, source = chance.randrange(1, 64), chance.randrange(len(content))
            content[at : at + size] = content[source : source + size]
        elif len(content) > 64:
            del content[at : at + chance.randrange(1, 32)]
    return bytes(content)


@pytest.mark.parametrize(("seeds", "read", "ending"), [(hdf5_seeds, read_d4rl, "hdf5"), (npz_seeds, read_npz, "npz")])
@pytest.mark.parametrize("part", range(2))
def test_damaged_files(tmp_path, seeds, read, ending, part):
    originals = list(seeds(tmp_path))
    path = tmp_path / f"damaged.{ending}"
    loaded = 0
    for number in range(part, FILES, 2):
        chance = random.Random(number)
        path.write_bytes(damaged(chance.choice(originals), chance))
        start = time.monotonic()
        try:
            log = read(path)
            dict(log.infos), dict(log.metadata)
            pair(log)
            loaded += 1
        except bcol.InputError as error:
            assert "\n" not in str(error), number  # noqa: PT017
        assert time.monotonic() - start < SLOW_S, number
    # Both outcomes are common, or the damage is not of the interesting kind.
    assert 20 < loaded < FILES // 2 - 20
