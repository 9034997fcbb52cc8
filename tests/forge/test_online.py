"""Training behaviour policies: it learns, it resumes exactly, it leaves a ladder, and it says what is wrong."""

import json
from pathlib import Path

import numpy as np
import pytest

import bcol
from bcol.cli import main
from bcol.errors import InputError
from bcol.forge.behaviour import read_behaviour
from bcol.forge.folder import rung_files
from bcol.forge.online import rung_steps, train_behaviour
from bcol.forge.rungs import Rung, read_ladder, read_rung, thinned, write_ladder
from bcol.forge.sac import SAC
from bcol.runs import RunError, read_checkpoint

AGENT = SAC(hidden=(32, 32), batch_size=64, learning_rate=3e-3, discount=0.9)
SMALL = {
    "envs": 4,
    "round_steps": 16,
    "random_steps": 128,
    "replay": 512,
    "checkpoint_every": 256,
    "rung_every": 400,
    "rung_episodes": 2,
    "workers": 1,
}


def rungs_of(folder: Path) -> list[Rung]:
    return [read_rung(path) for path in rung_files(folder)]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("online") / "run"
    return train_behaviour("point_world:Point-v0", AGENT, steps=1024, seeds=(0, 1), out=out, **SMALL)


def test_it_learns(run) -> None:
    """Random policies reach about -13 here, perfect ones -2; every seed has to get there."""
    for seed in (0, 1):
        mine = [rung for rung in rungs_of(run) if rung.seed == seed]
        first, last = (float(np.mean(rung.measured.mode)) for rung in (mine[0], mine[-1]) if rung.measured)
        assert last > -4
        assert last > first + 2


def test_the_ladder(run, tmp_path) -> None:
    rungs = rungs_of(run)
    assert [(r.seed, r.step) for r in rungs] == [(s, n) for s in (0, 1) for n in (0, 448, 832, 1024)]
    assert all(r.measured is not None and len(r.measured.mode) == len(r.measured.sampled) == 2 for r in rungs)
    write_ladder(tmp_path / "ladder.safetensors", rungs[:4], {"seed": 0})
    again, about = read_ladder(tmp_path / "ladder.safetensors")
    assert about == {"seed": 0}
    for one, other in zip(rungs[:4], again, strict=True):
        assert (one.env, one.step, one.measured) == (other.env, other.step, other.measured)
        np.testing.assert_array_equal(one.actor.mean[0], other.actor.mean[0])
    assert [r.step for r in thinned(rungs[:4], 3)][::2] == [0, 1024]
    with pytest.raises(InputError, match="no ladder"):
        read_ladder(rung_files(run)[0])
    with pytest.raises(InputError, match="no rung"):
        read_rung(tmp_path / "ladder.safetensors")


def test_a_rung_is_a_policy(run) -> None:
    """`load_policy` gives the mode in the environment's own units; `read_behaviour` the distribution."""
    path = rung_files(run)[-1]
    policy, behaviour = bcol.load_policy(path), read_behaviour(path)
    policy.reset(3)
    seen = np.array([[-1.0], [0.2], [1.0]], np.float32)
    mean, log_std = behaviour.distribution(seen)
    np.testing.assert_allclose(policy.act(seen).action, 3 * np.tanh(mean), rtol=1e-5)
    assert log_std.shape == (3, 1)


def test_the_curve(run) -> None:
    rows = [json.loads(line) for line in (run / "curve.jsonl").read_text().splitlines()]
    assert {row["seed"] for row in rows} == {0, 1}
    learning = [row for row in rows if "critic_loss" in row]
    assert learning
    assert all(np.isfinite(row["critic_loss"]) for row in learning)
    assert any("sampled" in row for row in rows)


def test_interrupted_is_as_uninterrupted(run, tmp_path) -> None:
    """Stopped at a checkpoint and begun again: the same networks to the last bit, and the same ladder."""
    for steps in (512, 1024):
        train_behaviour("point_world:Point-v0", AGENT, steps=steps, seeds=(0, 1), out=tmp_path / "run", **SMALL)
    one, other = (read_checkpoint(folder / "step_000001024.safetensors") for folder in (run, tmp_path / "run"))
    assert one[1] == other[1]
    for name, tensor in one[0].items():
        np.testing.assert_array_equal(tensor, other[0][name], err_msg=name)
    final = [[r for r in rungs_of(folder) if r.step == 1024] for folder in (run, tmp_path / "run")]
    assert [r.measured for r in final[0]] == [r.measured for r in final[1]]


def test_a_finished_run_is_left_alone(run) -> None:
    before = {path: path.stat().st_mtime_ns for path in rung_files(run)}
    train_behaviour("point_world:Point-v0", AGENT, steps=1024, seeds=(0, 1), out=run, **SMALL)
    assert before == {path: path.stat().st_mtime_ns for path in rung_files(run)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"env": "Nothing-v0"}, "cannot make the environment"),
        ({"env": "CartPole-v1"}, "must have box observations and actions"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"updates_per_step": 0.0}, "updates_per_step must be positive"),
        ({"seeds": (1, 1)}, "seeds must be different"),
        ({"agent": SAC(tau=2.0)}, "tau must be in"),
    ],
)
def test_bad_input(options, message, tmp_path) -> None:
    with pytest.raises(InputError, match=message):
        train_behaviour(**({"env": "point_world:Point-v0", "out": tmp_path / "run"} | options))


def test_another_run_in_the_folder_is_refused(run, tmp_path) -> None:
    with pytest.raises(InputError, match="another agent"):
        train_behaviour("point_world:Point-v0", SAC(), steps=1024, seeds=(0, 1), out=run, **SMALL)
    (tmp_path / "thing").write_text("")
    with pytest.raises(InputError, match="not a run folder"):
        train_behaviour("point_world:Point-v0", AGENT, steps=64, out=tmp_path)
    with pytest.raises(InputError, match="cannot make the folder"):
        train_behaviour("point_world:Point-v0", AGENT, steps=64, out=tmp_path / "thing" / "run")


def test_a_broken_environment_is_one_line(tmp_path) -> None:
    with pytest.raises(RunError, match="^the environment failed: ValueError: the robot is broken$"):
        train_behaviour("point_world:Broken-v0", AGENT, steps=64, out=tmp_path / "run", **SMALL)


def test_rungs_are_close_at_first_and_far_later() -> None:
    steps = rung_steps(1_000_000, 5_000)
    gaps = np.diff(steps)
    assert steps[0] == 0
    assert steps[-1] == 1_000_000
    assert gaps[0] == 5_000
    assert 30_000 < gaps[-2] <= 40_000
    assert len(steps) < 96


def test_the_command_trains_draws_and_says_what_it_reached(tmp_path, capsys) -> None:
    options = "--steps 256 --hidden 8 8 --envs 4 --round-steps 16 --random-steps 64 --batch-size 16 --workers 1"
    out = tmp_path / "run"
    main(["data", "train-behaviour", "point_world:Plane-v0", *options.split(), "--out", str(out)])
    said = capsys.readouterr().out
    assert "the best rung is seed 0, step " in said
    assert str(out / "curve.png") in said.replace("\n", "")
    assert (out / "curve.png").stat().st_size > 10_000
