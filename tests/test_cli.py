import os
import subprocess
import sys

import pytest

import bcol
from bcol.cli import main


def run(*arguments):
    return subprocess.run([sys.executable, "-m", "bcol", *arguments], capture_output=True, text=True, timeout=120)


def test_the_demo_shows_the_table_and_saves_the_picture(tmp_path, capsys):
    main(["demo", "--output", str(tmp_path)])
    shown = capsys.readouterr().out
    for row in ("the log", "budget 0", "budget 3", "no budget"):
        assert row in shown
    assert (tmp_path / "gridworld.png").exists()


def test_gridworld_takes_a_map(tmp_path, capsys):
    (tmp_path / "map.txt").write_text("S..G\n....\n\nway 9 S S E3 N\n")
    main(
        [
            "gridworld",
            "--map",
            str(tmp_path / "map.txt"),
            "--budget",
            "1",
            "--output",
            str(tmp_path / "g.svg"),
        ]
    )
    assert "budget 1" in capsys.readouterr().out
    assert (tmp_path / "g.svg").read_text().startswith("<?xml")


def test_version_and_help_run_as_a_user_runs_them():
    assert run("--version").stdout.strip() == f"bcol {bcol.__version__}"
    for arguments in ((), ("--help",), ("gridworld", "--help")):
        shown = run(*arguments)
        assert shown.returncode == 0
        assert "examples:" in shown.stdout


@pytest.mark.parametrize("arguments", [["--version"], ["demo", "--help"], ["data", "list"]])
def test_a_reader_that_leaves_early_is_no_error(arguments):
    # The pipe's only reader is closed before anything is written, as `head` does at some point.
    read, write = os.pipe()
    os.close(read)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with os.fdopen(write, "w") as gone:
        command = [sys.executable, "-m", "bcol", *arguments]
        done = subprocess.run(command, stdout=gone, stderr=subprocess.PIPE, text=True, timeout=120, env=environment)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--budget", "-1"], "budget must be a whole number"),
        (["--discount", "1"], "discount must lie in [0, 1)"),
        (["--noise", "2"], "noise must lie in [0, 1]"),
        (["--episodes", "0"], "episodes must be"),
        (["--output", "grid.pdf"], "output must end in .png or .svg"),
        (["--map", "no/such/file"], "cannot read 'no/such/file'"),
        (["--unvisited", "refuse"], "was never logged"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["gridworld", *arguments])
    assert stop.value.code == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.count("\n") == 1


def test_a_word_that_is_no_number_is_exit_code_2():
    assert run("gridworld", "--budget", "many").returncode == 2


def test_training_and_evaluating_an_own_log_by_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = ["trial,sensor_a,sensor_b,torque,reward,done"]
    for trial in range(3):
        rows += [f"{trial},{0.1 * t},{trial},{(-1) ** t * 0.5},{t},{int(t == 9)}" for t in range(10)]
    (tmp_path / "trials.csv").write_text("\n".join(rows) + "\n")
    mapping = ["--observation", "sensor_*", "--action", "torque", "--episode", "trial", "--terminal", "done"]
    small = ["--hidden", "8", "8", "--batch-size", "4", "--steps", "5", "--out", "runs/mine"]
    main(
        ["train", "trials.csv", "--agent", "bcol-td3", "--budget", "2", *mapping, "--action-bounds", "-2", "2", *small]
    )
    assert "runs/mine" in capsys.readouterr().out
    policy = bcol.load_policy("runs/mine")
    assert policy.max_budget == 2
    assert policy.spec.action_high == (2.0,)
    with pytest.raises(SystemExit) as stop:
        main(["evaluate", "runs/mine"])
    assert stop.value.code == 2
    assert "say which with --env" in capsys.readouterr().err
