import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import bcol
from bcol.data.log import make_log
from bcol.data.transitions import pair
from bcol.monitor import Monitor, diagnosis
from bcol.program import Programs, on_device
from bcol.runs import RunError, checkpoints, read_checkpoint, read_rows, write_atomically
from bcol.train import _evaluations

SMALL = {"hidden": (8, 8), "batch_size": 16}
AGENTS = [bcol.BCOLSAC, bcol.BCOLTD3, bcol.OfflineSAC, bcol.OfflineTD3, bcol.BC, bcol.TD3BC, bcol.CDC]


def random_data(seed=0, rows=200, scale=1.0):
    random = np.random.default_rng(seed)
    ends = np.arange(rows) % 20 == 19
    return pair(
        make_log(
            observations=random.normal(size=(rows, 3)),
            actions=random.uniform(-2, 2, (rows, 2)),
            rewards=scale * random.normal(size=rows),
            terminals=ends & (np.arange(rows) % 40 == 39),
            timeouts=ends & (np.arange(rows) % 40 == 19),
            action_bounds=(-2.0, 2.0),
        )
    )


@pytest.fixture(scope="module")
def data():
    return random_data()


def weights(path):
    return load_file(checkpoints(path)[-1])


@pytest.mark.parametrize("agent_class", AGENTS)
def test_every_agent_trains_is_kept_and_deploys(agent_class, data, tmp_path):
    run = bcol.train(data, agent_class(**SMALL), steps=20, seeds=(3,), out=tmp_path / "run")
    policy = bcol.load_policy(run.path)
    policy.reset(4)
    assert policy.act(data.observation[:4]).action.shape == (4, 2)
    rows = read_rows(run.path / "seed3" / "metrics.jsonl")
    assert rows[-1]["step"] == 20
    assert all(np.isfinite(v) for v in rows[-1].values())
    assert policy.spec.normalization is not None if agent_class().normalize_states else True


def test_runs_side_by_side_equal_the_same_runs_alone(data, tmp_path):
    agent = bcol.BCOLSAC(budget=2, **SMALL)
    together = bcol.train(data, agent, steps=30, seeds=(0, 1), sweep={"omega": (0.5, 5.0)}, out=tmp_path / "all")
    assert [m.name for m in together.members] == [f"omega={o},seed{s}" for o in ("0.5", "5") for s in (0, 1)]
    for omega, seed in ((0.5, 1), (5.0, 0)):
        alone = bcol.train(data, replace(agent, omega=omega), steps=30, seeds=(seed,), out=tmp_path / f"{omega}")
        a, b = weights(together.path / f"omega={omega:g},seed{seed}"), weights(alone.path / f"seed{seed}")
        for name in a:
            np.testing.assert_allclose(a[name], b[name], rtol=1e-3, atol=1e-5, err_msg=name)


def test_a_sweep_over_budgets_equals_the_same_runs_alone(data, tmp_path):
    agent = bcol.BCOLSAC(budget=2, **SMALL)
    sweep = {"budget": (0, 2), "omega": (0.5, 5.0)}
    together = bcol.train(data, agent, steps=30, seeds=(1,), sweep=sweep, checkpoint_every=10, out=tmp_path / "all")
    assert [m.name for m in together.members] == [f"budget={b},omega={o},seed1" for b in (0, 2) for o in ("0.5", "5")]
    for budget in (0, 2):
        alone = bcol.train(
            data, replace(agent, budget=budget, omega=5.0), steps=30, seeds=(1,), out=tmp_path / str(budget)
        )
        a, b = weights(together.path / f"budget={budget},omega=5,seed1"), weights(alone.path / "seed1")
        for name in a:
            np.testing.assert_allclose(a[name], b[name], rtol=1e-3, atol=1e-5, err_msg=name)
    assert bcol.load_policy(together.path / "budget=0,omega=5,seed1").rule.budget == 0
    more = bcol.train(data, agent, steps=35, seeds=(1,), sweep=sweep, out=tmp_path / "all")
    assert all(int(read_rows(m / "metrics.jsonl")[-1]["step"]) == 35 for m in more.members)


def test_a_checkpoint_waits_for_the_evaluations_before_it(tmp_path):
    written = []
    with Monitor(tmp_path, [], 0, 10, None, 1, None, progress=False) as monitor:
        monitor._pending = [SimpleNamespace(step=5, futures=[Future()])]
        monitor.save(4, lambda: written.append(4))
        monitor.save(5, lambda: written.append(5))
        assert written == [4]
        monitor._pending.clear()
        monitor.tick(6)
        assert written == [4, 5]


def test_the_log_says_how_products_are_computed(data, tmp_path, capsys):
    bcol.train(data, bcol.BCOLSAC(budget=1, **SMALL), steps=2, out=tmp_path / "run")
    assert "run: on cpu, float32" in capsys.readouterr().err
    assert json.loads((tmp_path / "run" / "seed0" / "run.json").read_text())["machine"] == "cpu, float32"


def test_a_compiler_that_refuses_the_options_of_a_gpu_is_said(data, monkeypatch):
    monkeypatch.setattr("bcol.program.platform", lambda: "gpu")
    program = Programs([bcol.BC(**SMALL)], [0], data, 10)
    assert "CUDA graph" not in program.route()
    monkeypatch.setattr("bcol.program._GPU_OPTIONS", {"xla_gpu_no_such_option": 1})
    program = Programs([bcol.BC(**SMALL)], [0], data, 10)
    assert "no CUDA graph: " in program.route()
    assert "xla_gpu_no_such_option" in program.route()
    program.advance(2, lambda step: None)


def test_how_steps_are_cut_into_dispatches_changes_nothing(data):
    agent = bcol.BCOLTD3(budget=2, **SMALL)
    one, many = (Programs([agent], [0], data, 40) for _ in range(2))
    one._programs[0]._steps_per_second = 1e9
    one.advance(40, lambda step: None)
    for until in (1, 2, 5, 40):
        many.advance(until, lambda step: None)
    for name, x in one.checkpoint(0)[0].items():
        np.testing.assert_array_equal(x, many.checkpoint(0)[0][name])


SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_train import random_data, SMALL
import bcol
if __name__ == "__main__":
    bcol.train(random_data(), bcol.BCOLSAC(budget=2, **SMALL), steps=4000, seeds=(0, 1), out=Path({out!r}),
               checkpoint_every=100)
"""


def test_a_killed_run_resumes_to_the_same_weights(data, tmp_path):
    options = {"steps": 4000, "seeds": (0, 1), "checkpoint_every": 100}
    whole = bcol.train(data, bcol.BCOLSAC(budget=2, **SMALL), out=tmp_path / "whole", **options)
    out = tmp_path / "killed"
    code = SCRIPT.format(tests=str(Path(__file__).parent), out=str(out))
    for wanted in (1, 3):  # kill it twice, at moments that no step decides
        process = subprocess.Popen([sys.executable, "-c", code])
        deadline = time.monotonic() + 120
        while len(checkpoints(out / "seed1")) < wanted and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.02)
        time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
    resumed = bcol.train(data, bcol.BCOLSAC(budget=2, **SMALL), out=out, **options)
    for seed in ("seed0", "seed1"):
        a, b = weights(whole.path / seed), weights(resumed.path / seed)
        assert a.keys() == b.keys()
        for name in a:
            np.testing.assert_array_equal(a[name], b[name])
        steps = [row["step"] for row in read_rows(out / seed / "metrics.jsonl")]
        assert steps == sorted(set(steps))
        assert steps[-1] == 4000


def test_the_same_command_on_a_finished_run_does_nothing_and_more_steps_go_on(data, tmp_path):
    agent = bcol.BC(**SMALL)
    run = bcol.train(data, agent, steps=20, out=tmp_path / "run")
    before = weights(run.path / "seed0")
    bcol.train(data, agent, steps=20, out=tmp_path / "run")
    for name, x in weights(run.path / "seed0").items():
        np.testing.assert_array_equal(x, before[name])
    bcol.train(data, agent, steps=30, out=tmp_path / "run")
    assert checkpoints(run.path / "seed0")[-1].stem == "step_000000030"


def test_checkpoints_are_pruned_and_chosen_by_step(data, tmp_path):
    run = bcol.train(data, bcol.BC(**SMALL), steps=50, checkpoint_every=10, keep=2, out=tmp_path / "run")
    assert [p.stem for p in checkpoints(run.path / "seed0")] == ["step_000000040", "step_000000050"]
    bcol.load_policy(run.path, step=40)
    with pytest.raises(bcol.InputError, match=r"kept are the steps \[40, 50\]"):
        bcol.load_policy(run.path, step=10)


def test_the_evaluation_schedule_is_the_papers():
    schedule = sorted(_evaluations(1_000_000, 5000))
    assert len(schedule) == 280
    assert schedule[:2] == [5000, 10_000]
    assert schedule[179:181] == [900_000, 901_000]
    assert schedule[-1] == 1_000_000


def test_actions_are_learned_in_units_of_their_bounds(data):
    rows = on_device(data)
    np.testing.assert_allclose(rows.action, data.action / 2, atol=1e-6)
    np.testing.assert_allclose(rows.next_action, data.next_action / 2, atol=1e-6)


class TestGuards:
    def test_exploding_values_stop_the_run_and_keep_its_checkpoint(self, data, tmp_path):
        agent = bcol.OfflineSAC(critic_lr=100.0, discount=0.5, **SMALL)
        with pytest.raises(RunError, match="seed0 stopped: at step .* values have reached") as error:
            bcol.train(data, agent, steps=50, checkpoint_every=1, out=tmp_path / "run")
        assert "\n" not in str(error.value)
        policy = bcol.load_policy(tmp_path / "run")
        policy.reset()
        assert np.isfinite(policy.act(np.zeros(3)).action).all()
        assert "lost" in read_rows(tmp_path / "run" / "seed0" / "metrics.jsonl")[-1]

    def test_one_lost_run_does_not_stop_the_others(self, data, tmp_path):
        agent = bcol.OfflineSAC(discount=0.5, **SMALL)
        with pytest.raises(RunError, match="critic_lr=100,seed0 stopped"):
            bcol.train(data, agent, steps=300, sweep={"critic_lr": (1e-3, 100.0)}, out=tmp_path / "run")
        assert checkpoints(tmp_path / "run" / "critic_lr=0.001,seed0")[-1].stem == "step_000000300"

    def test_diagnoses(self):
        assert diagnosis({"critic_loss": 1.0, "q_size": 5.0, "actor_spread": 0.1}, 10.0) is None
        assert "critic_loss is nan" in diagnosis({"critic_loss": float("nan")}, 10.0)
        assert "rewards allow 10" in diagnosis({"q_size": 1001.0}, 10.0)
        assert "same in every state" in diagnosis({"actor_spread": 0.0}, 10.0)


class TestRefusals:
    def refuse(self, message, data, path, agent=None, **options):
        with pytest.raises(bcol.InputError, match=message) as error:
            bcol.train(data, agent or bcol.BC(**SMALL), **({"steps": 10, "out": path} | options))
        assert "\n" not in str(error.value)

    @pytest.fixture
    def run(self, data, tmp_path):
        return bcol.train(data, bcol.BC(**SMALL), steps=10, out=tmp_path / "run").path

    def test_other_data(self, run):
        self.refuse("was trained on other data", random_data(seed=1), run)

    def test_another_configuration(self, run, data):
        self.refuse("another actor_lr", data, run, bcol.BC(actor_lr=1e-2, **SMALL))
        self.refuse("another", data, run, bcol.TD3BC(**SMALL))

    def test_a_folder_of_another_version(self, run, data):
        config = json.loads((run / "config.json").read_text())
        (run / "config.json").write_text(json.dumps(config | {"format": 99}))
        self.refuse("another version", data, run)

    def test_a_folder_that_is_no_run(self, data, tmp_path):
        (tmp_path / "photos").mkdir()
        (tmp_path / "photos" / "cat.jpg").write_bytes(b"cat")
        self.refuse("is not a run folder", data, tmp_path / "photos")

    def test_options(self, data, tmp_path):
        self.refuse("steps must be at least 1", data, tmp_path / "r", steps=0)
        self.refuse("seeds must be at least 1", data, tmp_path / "r", seeds=())
        self.refuse("must differ", data, tmp_path / "r", seeds=(1, 1))
        self.refuse("numbers only", data, tmp_path / "r", sweep={"hidden": (1.0,)})
        self.refuse("omega must be 0 or more", data, tmp_path / "r", bcol.BCOLSAC(omega=-1.0))
        self.refuse("hidden must be", data, tmp_path / "r", bcol.BCOLSAC(hidden=()))
        self.refuse("cannot make the environment 'Nowhere-v0'", data, tmp_path / "r", env="Nowhere-v0")
        self.refuse("choose the environment that the data came from", data, tmp_path / "r2", env="Pendulum-v1")

    def test_damaged_and_foreign_checkpoints(self, run, tmp_path):
        last = checkpoints(run / "seed0")[-1]
        whole = last.read_bytes()
        for damaged in (b"", b"junk", whole[: len(whole) // 2], whole[:8] + b"{" * 50 + whole[58:]):
            last.write_bytes(damaged)
            with pytest.raises(bcol.InputError, match="cannot read the checkpoint"):
                bcol.load_policy(run)
        save_file({"x": np.zeros(3)}, last)
        with pytest.raises(bcol.InputError, match="not a checkpoint of bcol"):
            bcol.load_policy(run)
        with pytest.raises(bcol.InputError, match="there is no checkpoint"):
            bcol.load_policy(tmp_path / "nothing")

    def test_a_checkpoint_of_another_format(self, run):
        last = checkpoints(run / "seed0")[-1]
        tensors, meta = read_checkpoint(last)
        save_file(tensors, last, {"bcol": json.dumps(meta | {"format": 0, "bcol": "0.0.1"})})
        with pytest.raises(bcol.InputError, match="written by bcol 0.0.1 in format 0"):
            bcol.load_policy(run)


def test_a_full_disk_is_said_and_loses_nothing(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match="No space left on device") as error:
        write_atomically(path, b"new")
    assert "\n" not in str(error.value)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_tensorboard_files_are_written(data, tmp_path):
    run = bcol.train(data, bcol.BC(**SMALL), steps=10, out=tmp_path / "run", tensorboard=True)
    assert list((run.path / "seed0").glob("events.*"))
