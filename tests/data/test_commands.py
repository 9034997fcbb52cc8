"""The commands say what there is to say, and leave what they promise."""

import h5py
import numpy as np
import pytest
import tyro
from matplotlib.pyplot import imread

import bcol
from bcol.data import commands, pair, read_d4rl, write_d4rl
from bcol.data.download import cached_file
from conftest import assert_same, genuine, rows


def run(command, *arguments):
    tyro.cli(command, args=[str(argument) for argument in arguments]).run()


@pytest.fixture(autouse=True)
def wide(monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("BCOL_DATA", str(tmp_path / "cache"))


def test_names_are_whole_in_eighty_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    run(commands.List)
    printed = capsys.readouterr().out
    assert "forge/halfcheetah-medium-expert" in printed
    assert "…" not in printed


def test_list_shows_what_was_forged_here(capsys, tmp_path):
    (tmp_path / "cache" / "forge").mkdir(parents=True)
    write_d4rl(tmp_path / "cache" / "forge" / "mine.hdf5", rows("ssT", env_id="Robot-v0"))
    (tmp_path / "cache" / "forge" / "mine-too.hdf5").write_bytes(b"no HDF5")
    run(commands.List, "--contains", "mine")
    shown = capsys.readouterr().out.split()
    assert shown[-6:] == ["forge/mine-too", "damaged", "yes", "forge/mine", "Robot-v0", "yes"]


def test_list(capsys):
    path = cached_file(bcol.data.TASKS["hopper-medium-v2"])
    path.parent.mkdir(parents=True)
    path.touch()
    run(commands.List, "--contains", "hopper-medium-v")
    printed = capsys.readouterr().out
    assert "Hopper-v4" in printed
    assert printed.count("yes") == 1
    with pytest.raises(bcol.InputError, match="no name contains"):
        run(commands.List, "--contains", "nothing")


def test_info(capsys, tmp_path):
    write_d4rl(tmp_path / "x.hdf5", rows("ssTssOsT", infos={"qpos": np.zeros(8)}))
    run(commands.Info, tmp_path / "x.hdf5", "--histogram", tmp_path / "x.png")
    printed = " ".join(capsys.readouterr().out.split())
    for words in ("rows 8", "episodes 3", "terminals 2", "time-outs 1", "rewarded steps 7", "infos/qpos"):
        assert words in printed
    assert (tmp_path / "x.png").stat().st_size > 1000
    with pytest.raises(bcol.InputError, match="cannot write the picture"):
        run(commands.Info, tmp_path / "x.hdf5", "--histogram", tmp_path / "x.nonsense")


def test_the_picture_of_a_maze_shows_where_the_rows_lie(tmp_path):
    sizes = []
    for task in ("antmaze-umaze-v2", "hopper-medium-v2"):
        write_d4rl(tmp_path / "x.hdf5", rows("ssTssO"))
        run(commands.Info, tmp_path / "x.hdf5", "--task", task, "--histogram", tmp_path / "x.png")
        sizes.append(imread(tmp_path / "x.png").shape[1])
    assert sizes[0] > sizes[1]  # a third panel


def test_info_of_a_task(capsys):
    run(commands.Info, genuine("d4rl_rows/hopper_medium-v2.hdf5"))
    printed = capsys.readouterr().out
    assert "score" in printed
    assert "44.8" in printed
    run(commands.Info, genuine("d4rl_rows/antmaze-medium-diverse-v0.hdf5"))
    assert "100" in capsys.readouterr().out


def test_info_with_columns(capsys, tmp_path):
    log = rows("ssTsT")
    np.savez(tmp_path / "x.npz", s=log.observations, a=log.actions, reward=log.rewards, terminal=log.terminals)
    run(commands.Info, tmp_path / "x.npz", "--columns.observation", "s", "--columns.action", "a")
    assert "rows  5" in capsys.readouterr().out


def test_check(capsys, tmp_path):
    write_d4rl(tmp_path / "good.hdf5", rows("ssTssT"))
    run(commands.Check, tmp_path / "good.hdf5")
    assert "no problems" in capsys.readouterr().out
    write_d4rl(tmp_path / "bad.hdf5", rows("ssGssGsT"))
    with pytest.raises(SystemExit) as caught:
        run(commands.Check, tmp_path / "bad.hdf5", "--rows", "1")
    assert caught.value.code == 1
    printed = capsys.readouterr().out
    assert "rows 2 and 1 more" in printed
    assert "bcol ends the episode" in printed
    with pytest.raises(SystemExit):
        run(commands.Check, tmp_path / "good.hdf5", "--action-bounds", "0", "0.02")
    assert "actions outside the declared bounds" in capsys.readouterr().out


def test_convert(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    log = rows("ssGssGsT")
    write_d4rl(tmp_path / "x.hdf5", log)
    run(commands.Convert, tmp_path / "x.hdf5", "minari:test/x-v0")
    run(commands.Convert, "minari:test/x-v0", tmp_path / "y.hdf5")
    assert_same(pair(read_d4rl(tmp_path / "y.hdf5")), pair(log))
    with h5py.File(tmp_path / "y.hdf5") as file:
        assert np.flatnonzero(file["timeouts"][()]).tolist() == [2, 5]
    for out, words in ((tmp_path / "y.hdf5", "exists already"), (tmp_path / "y.zip", "cannot write")):
        with pytest.raises(bcol.InputError, match=words):
            run(commands.Convert, tmp_path / "x.hdf5", out)


def test_download(capsys, tmp_path):
    path = cached_file(bcol.data.TASKS["hopper-medium-v2"], tmp_path)
    path.parent.mkdir(parents=True)
    write_d4rl(path, rows("ssT"))
    run(commands.Download, "hopper-medium-v2", "--cache", tmp_path)
    assert str(path) in capsys.readouterr().out
    with pytest.raises(bcol.InputError, match="unknown task 'hoper'"):
        run(commands.Download, "hoper")
    with pytest.raises(bcol.InputError, match="nothing to download"):
        run(commands.Download)
