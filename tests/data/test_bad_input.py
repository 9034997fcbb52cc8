"""Bad input never passes silently: one error type, one line, and it says which array or row."""

import h5py
import numpy as np
import pytest

import bcol
from bcol.data import make_log, pair, read_d4rl, read_npz, write_d4rl
from conftest import fields_of, rows

GOOD = fields_of(rows("ssOssT"))


def refused(match, fields=None, **more):
    with pytest.raises(bcol.InputError, match=match) as caught:
        pair(make_log(**{**GOOD, **(fields or {})}, **more))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["observations", "actions", "rewards"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_not_finite(name, value):
    array = GOOD[name].copy()
    array[3] = value
    refused(f"{name} holds NaN, inf .* at row 3", {name: array})


def test_not_finite_next_observations():
    log = rows("sGsT")
    log.next_observations[2, 1] = np.nan
    with pytest.raises(bcol.InputError, match=r"next_observations .* row 2"):
        pair(log)


def test_too_large_for_float32():
    refused("too large for float32 at row 1", {"rewards": np.array([0, 1e300, 0, 0, 0, 0])})


def test_large_but_finite_numbers_pass():
    pair(make_log(**{**GOOD, "rewards": np.full(6, 1e30)}))


@pytest.mark.parametrize("name", ["actions", "rewards", "terminals", "timeouts"])
def test_ragged_lengths(name):
    refused(f"{name} has 5 rows and observations has 6", {name: GOOD[name][:5]})


def test_ragged_lists():
    refused("observations is not one array", {"observations": [[1.0, 2.0], [3.0]]})


@pytest.mark.parametrize("bad", [np.array(["a"] * 6), np.array([None] * 6), np.ones(6, complex), np.ones(6, "M8[s]")])
@pytest.mark.parametrize("name", ["observations", "actions", "rewards", "terminals"])
def test_wrong_dtypes(name, bad):
    refused(f"{name} has dtype", {name: bad})


def test_integer_overflow():
    refused("rewards holds integers beyond", {"rewards": np.full(6, 2**40)})
    refused("observations holds integers beyond", {"observations": np.full((6, 2), -(2**31))})
    refused("actions holds integers beyond int32", {"actions": np.full(6, 2**40)})
    refused("actions holds integers beyond int32", {"actions": np.full(6, 2**63, np.uint64)})


def test_small_integers_are_numbers():
    assert pair(make_log(**{**GOOD, "rewards": np.arange(6)})).reward.dtype == np.float32


@pytest.mark.parametrize("value", [2, -1, 0.5, np.nan])
def test_flags_are_zero_or_one(value):
    flags = np.zeros(6)
    flags[4] = value
    refused("terminals is .* at row 4", {"terminals": flags})


def test_wrong_shapes():
    refused(r"observations has shape \[6, 2, 2\]", {"observations": np.zeros((6, 2, 2))})
    refused(r"observations has shape \[6, 0\]", {"observations": np.zeros((6, 0))})
    refused(r"rewards has shape \[6, 2\]", {"rewards": np.zeros((6, 2))})
    refused("next_observations has 3 columns", {"next_observations": np.zeros((6, 3))})
    refused("integers in 2 columns", {"actions": np.zeros((6, 2), int)})
    refused(r"observations has shape \[\]", {"observations": 1.0})


def test_no_rows():
    refused("has no rows", {name: array[:0] for name, array in GOOD.items()})


def test_no_successors():
    with pytest.raises(bcol.InputError, match="no row has a successor"):
        pair(rows("OOO"))


def test_actions_outside_declared_bounds():
    refused("outside the declared bounds at row 2", action_bounds=(-0.015, 0.015))
    refused(r"outside 0\.\.1 at row 1", {"actions": np.array([0, -1, 0, 1, 0, 1])})
    refused(r"outside 0\.\.1 at row 5", {"actions": np.array([0, 1, 0, 1, 0, 2])}, num_actions=2)


def test_known_tasks_declare_their_bounds():
    with pytest.raises(bcol.InputError, match="outside the declared bounds at row 0"):
        pair(make_log(**{**GOOD, "actions": np.full((6, 1), 1.5)}), bcol.data.TASKS["hopper-medium-v2"])


def test_bad_bounds():
    refused("low < high", action_bounds=(1, -1))
    refused("each one number or 1 of them", action_bounds=(np.zeros(3), np.ones(3)))
    refused("discrete", {"actions": np.zeros(6, int)}, action_bounds=(-1, 1))


def file_refused(path, match):
    with pytest.raises(bcol.InputError, match=match) as caught:
        bcol.load_dataset(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("missing", ["observations", "actions", "rewards", "terminals"])
def test_hdf5_missing_keys(tmp_path, missing):
    with h5py.File(tmp_path / "x.hdf5", "w") as file:
        for name, array in GOOD.items():
            if name != missing:
                file[name] = array
    file_refused(tmp_path / "x.hdf5", f"no array '{missing}'")


def test_hdf5_strange_members(tmp_path):
    def write(**members):
        with h5py.File(tmp_path / "x.hdf5", "w") as file:
            for name, array in {**GOOD, **members}.items():
                if array is None:
                    file.create_group(name)
                else:
                    file.create_dataset(name, data=array)

    write(observations=None)
    file_refused(tmp_path / "x.hdf5", "observations is a group")
    write(rewards=["a"] * 6)
    file_refused(tmp_path / "x.hdf5", "rewards has dtype object")
    write(rewards=h5py.Empty("f4"))
    file_refused(tmp_path / "x.hdf5", "rewards is empty")
    write(rewards=np.float32(1))
    file_refused(tmp_path / "x.hdf5", r"rewards has shape \[\]")
    write(rewards=np.zeros(6, [("a", "f4"), ("b", "f4")]))
    file_refused(tmp_path / "x.hdf5", "rewards has dtype")
    write(rewards=np.zeros(6, "S3"))
    file_refused(tmp_path / "x.hdf5", "rewards has dtype")


def test_hdf5_that_claims_more_than_it_holds(tmp_path):
    with h5py.File(tmp_path / "x.hdf5", "w") as file:
        for name, array in GOOD.items():
            if name != "observations":
                file[name] = array
        file.create_dataset("observations", (1 << 40, 17), "f4", chunks=(1024, 17))
    file_refused(tmp_path / "x.hdf5", "claims .* more than the file can hold")


@pytest.mark.parametrize("ending", [".hdf5", ".npz", ".parquet", ".csv"])
def test_not_such_a_file(tmp_path, ending):
    path = tmp_path / f"x{ending}"
    file_refused(path, "no such file")
    path.write_bytes(b"<html>not here</html>\xff")
    file_refused(path, "damaged|no column")
    path.write_bytes(b"")
    file_refused(path, "damaged|no column")


def test_truncated_files(tmp_path):
    write_d4rl(tmp_path / "x.hdf5", rows("ssOssT" * 50))
    whole = (tmp_path / "x.hdf5").read_bytes()
    (tmp_path / "x.hdf5").write_bytes(whole[: len(whole) // 2])
    file_refused(tmp_path / "x.hdf5", "damaged")
    np.savez(tmp_path / "x.npz", **GOOD)
    whole = (tmp_path / "x.npz").read_bytes()
    (tmp_path / "x.npz").write_bytes(whole[: len(whole) // 2])
    file_refused(tmp_path / "x.npz", "damaged")


class Bomb:
    """Unpickling this would create a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_pickles_are_never_opened(tmp_path):
    trap = tmp_path / "sprung"
    np.savez(tmp_path / "x.npz", **{**GOOD, "observations": np.array([Bomb(trap)] * 6, dtype=object)})
    with pytest.raises(bcol.InputError, match="pickled objects, which are never loaded"):
        read_npz(tmp_path / "x.npz")
    np.save(tmp_path / "y.npy", np.array([Bomb(trap)], dtype=object), allow_pickle=True)
    (tmp_path / "y.npy").rename(tmp_path / "y.npz")
    with pytest.raises(bcol.InputError):
        read_npz(tmp_path / "y.npz")
    assert not trap.exists()


def test_a_single_array_is_no_log(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(3))
    (tmp_path / "x.npy").rename(tmp_path / "x.npz")
    file_refused(tmp_path / "x.npz", "single array")


def test_unknown_names():
    file_refused("hopper-medum-v2", "did you mean hopper-medium-v2")
    file_refused("nothing-like-it", "give a name from")
    with pytest.raises(bcol.InputError, match="unknown task"):
        bcol.load_dataset("x.hdf5", task="hoper-medium-v2")
    with pytest.raises(bcol.InputError, match="columns given"):
        bcol.load_dataset("x.hdf5", columns=bcol.data.Columns())


def test_unwritable_place(tmp_path):
    with pytest.raises(bcol.InputError, match="cannot write"):
        write_d4rl(tmp_path / "no" / "such" / "folder.hdf5", rows("ssT"))


def test_a_file_that_vanished(tmp_path):
    write_d4rl(tmp_path / "x.hdf5", rows("ssT", infos={"qpos": np.zeros((3, 1))}))
    log = read_d4rl(tmp_path / "x.hdf5")
    (tmp_path / "x.hdf5").unlink()
    with pytest.raises(bcol.InputError, match="no such file"):
        log.infos["qpos"]
