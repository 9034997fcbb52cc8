"""Own logs: NPZ, Parquet and CSV, with the usual names and with others."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import bcol
from bcol.data import Columns, pair, read_npz, read_table
from conftest import assert_same, fields_of, rows

LOG = rows("ssTssOsT")


def as_columns(log):
    """One column per number, with the usual names, and the episode of each row."""
    ends = log.terminals | log.timeouts
    table = {
        "episode": np.cumsum(ends) - ends,
        **{f"obs_{i}": log.observations[:, i] for i in range(log.observations.shape[1])},
        **{f"act_{i}": log.actions[:, i] for i in range(log.actions.shape[1])},
        "reward": log.rewards,
        "terminal": log.terminals,
    }
    table["step"] = np.concatenate([np.arange(np.sum(table["episode"] == e)) for e in np.unique(table["episode"])])
    return table


def write(path, table):
    table = pa.table(table)
    if path.suffix == ".csv":
        pa.csv.write_csv(table, path)
    else:
        pa.parquet.write_table(table, path)
    return path


def shuffled(table):
    order = np.random.default_rng(0).permutation(len(table["reward"]))
    return {name: np.asarray(column)[order] for name, column in table.items()}


def test_npz_with_d4rl_names(tmp_path):
    np.savez(tmp_path / "x.npz", **fields_of(LOG))
    assert_same(read_npz(tmp_path / "x.npz"), LOG)
    assert_same(bcol.load_dataset(tmp_path / "x.npz"), pair(LOG))


def test_npz_with_other_names(tmp_path):
    np.savez(tmp_path / "x.npz", s=LOG.observations, a=LOG.actions, r=LOG.rewards, d=LOG.terminals, t=LOG.timeouts)
    columns = Columns(observation=("s",), action=("a",), reward="r", terminal="d", timeout="t")
    assert_same(read_npz(tmp_path / "x.npz", columns), LOG)


def test_npz_with_episodes_instead_of_timeouts(tmp_path):
    fields = fields_of(LOG)
    del fields["timeouts"]
    np.savez(tmp_path / "x.npz", episode=as_columns(LOG)["episode"], **fields)
    assert_same(read_npz(tmp_path / "x.npz"), LOG)


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_tables(tmp_path, ending):
    path = write(tmp_path / f"x{ending}", as_columns(LOG))
    assert_same(read_table(path), LOG)
    assert_same(bcol.load_dataset(path), pair(LOG))


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_rows_in_any_order(tmp_path, ending):
    table = shuffled(as_columns(LOG))
    data = bcol.load_dataset(write(tmp_path / f"x{ending}", table))
    # Episodes come in the order they first appear; inside, everything is as it was.
    expected = pair(LOG)
    order = np.argsort(data.reward)
    for name in ("observation", "action", "reward", "next_observation", "next_action", "mask"):
        kept = expected.mask == 1 if name.startswith("next") else np.ones(len(expected), bool)
        np.testing.assert_array_equal(getattr(data, name)[order][kept], getattr(expected, name)[kept])


def test_episodes_with_names_and_other_columns(tmp_path):
    table = as_columns(LOG)
    table["trial"] = np.array([f"trial {e}" for e in table.pop("episode")])
    table = {name.replace("obs", "sensor").replace("act_0", "torque"): column for name, column in table.items()}
    table["comment"] = np.array(["ignored"] * len(LOG))
    columns = Columns(observation=("sensor_*",), action=("torque",), episode="trial")
    assert_same(read_table(write(tmp_path / "x.csv", table), columns), LOG)


def test_numbered_columns_count_by_number(tmp_path):
    log = rows("ssT", observations=np.arange(36.0).reshape(3, 12))
    read = read_table(write(tmp_path / "x.parquet", as_columns(log)))
    np.testing.assert_array_equal(read.observations, log.observations)


def test_columns_of_lists(tmp_path):
    table = {
        "observation": pa.array(LOG.observations.tolist()),
        "action": pa.FixedSizeListArray.from_arrays(pa.array(LOG.actions[:, 0]), 1),
        "reward": LOG.rewards,
        "terminated": LOG.terminals,
        "truncated": LOG.timeouts,
    }
    assert_same(read_table(write(tmp_path / "x.parquet", table)), LOG)


def test_a_missing_step_ends_the_run(tmp_path):
    table = as_columns(rows("sssssT"))
    table = {name: np.delete(column, 2) for name, column in table.items()}
    data = bcol.load_dataset(write(tmp_path / "x.csv", table))
    assert data.reward.tolist() == [0, 3, 4, 5]
    del table["episode"]
    assert bcol.load_dataset(write(tmp_path / "x.csv", table)).reward.tolist() == [0, 3, 4, 5]


def test_discrete_actions(tmp_path):
    table = as_columns(LOG)
    table["act_0"] = np.array([0, 1, 2, 0, 1, 2, 0, 1])
    data = bcol.load_dataset(write(tmp_path / "x.csv", table))
    assert data.action.dtype == np.int32
    assert data.spec.num_actions == 3


def refused(path, match, columns=None):
    with pytest.raises(bcol.InputError, match=match) as caught:
        bcol.load_dataset(path, columns=columns)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_bad_tables(tmp_path, ending):
    path, good = tmp_path / f"x{ending}", as_columns(LOG)

    def with_column(**columns):
        return write(path, {name: c for name, c in {**good, **columns}.items() if c is not None})

    for missing in ("reward", "terminal"):
        refused(with_column(**{missing: None}), f"no column for the {missing}")
    refused(with_column(act_0=None), "no column for the action")
    refused(with_column(obs_0=None, obs_1=None), "no column for the observation")
    refused(with_column(obs_3=good["obs_0"]), "with holes")
    refused(with_column(), "no column 'nothing'", Columns(reward="nothing"))
    refused(with_column(reward=["word"] * 8), "rewards has dtype")
    refused(with_column(reward=pa.array([1.0, None] * 4)), "'reward' is empty at row 1")
    refused(with_column(reward=[np.inf] + [0.0] * 7), "rewards holds NaN, inf")
    refused(with_column(reward=[np.nan] + [0.0] * 7), "rewards holds NaN|is empty at row 0")
    refused(with_column(step=[0] * 8), "repeats step 0")
    refused(with_column(step=np.arange(8) + 0.5), "step column")
    terminal = good["terminal"].copy()
    terminal[0] = True
    refused(with_column(terminal=terminal), "row 0 .* terminal but its episode goes on")


def test_bad_lists(tmp_path):
    table = {**as_columns(LOG), "observation": pa.array([[1.0]] * 7 + [[1.0, 2.0]])}
    refused(write(tmp_path / "x.parquet", table), "lists of different lengths")
    table["observation"] = pa.array([[1.0]] * 7 + [[None]])
    refused(write(tmp_path / "x.parquet", table), "empty places")


def test_bad_npz(tmp_path):
    def npz(**fields):
        np.savez(tmp_path / "x.npz", **{**fields_of(LOG), **fields})
        return tmp_path / "x.npz"

    refused(npz(rewards=np.zeros(5)), "rewards has 5 rows")
    refused(npz(rewards=np.zeros(5), episode=np.zeros(8, int)), "shape")
    refused(npz(episode=np.zeros((8, 2))), "episode column has shape")
    refused(npz(step=np.zeros(3, int)), "step column")
    both = Columns(observation=("observations", "rewards"))
    assert read_npz(npz(), both).observations.shape == (8, 3)
    refused(npz(rewards=np.zeros(5)), "differ in length", both)


def test_no_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.csv", None)
    (tmp_path / "x.csv").write_text("a\n")
    refused(tmp_path / "x.csv", r"pip install 'bcol\[tables\]'")
