import io
import json

import pytest
from rich.console import Console

from bcol.agents import BCOLSAC, BCOLTD3, TD3BC
from bcol.bench import report as reports
from bcol.bench.cases import CPU, GPU, Case
from bcol.bench.measure import seconds_per_step
from bcol.bench.report import bench
from bcol.bench.table import show
from bcol.cli import main
from bcol.errors import InputError

TINY = {"hidden": (8,), "batch_size": 4}
CASES = (
    Case("sac", BCOLSAC(budget=1, samples=1, **TINY)),
    Case("td3-bc", TD3BC(**TINY)),
    Case("td3-bc-x2", TD3BC(**TINY), runs=2),
)
QUICK = {"cases": CASES, "rows": 50, "peak_size": 16, "seconds": 0.002, "rounds": 1, "device": "cpu"}


def shown(report) -> str:
    out = io.StringIO()
    show(report, Console(file=out, width=120))
    return out.getvalue()


@pytest.fixture
def no_torch(monkeypatch):
    monkeypatch.setattr(reports, "_has_torch", lambda: False)


def test_every_case_is_a_row_of_numbers_and_dashes_without_torch(no_torch):
    heard = []
    report = bench(["td3-bc", "td3-bc-x2"], **QUICK, say=heard.append)
    text = shown(report)
    assert [row.name for row in report.rows] == ["td3-bc", "td3-bc-x2"]
    for row, line in zip(report.rows, text.splitlines()[2:], strict=False):
        assert line.startswith(row.name)
        assert line.split()[-2:] == ["-", "-"]
        assert row.microseconds > 0
        assert row.minutes_per_million == pytest.approx(row.microseconds / 60)
        assert row.flop_per_second == pytest.approx(row.flop_per_step / row.microseconds * 1e6)
        assert row.share_of_peak == pytest.approx(row.flop_per_second / report.peak_flop_per_second)
    assert "pip install torch" in text
    assert "per run and step" in text
    assert any("td3-bc-x2" in what for what in heard)


def test_a_case_that_fails_loses_no_other(no_torch, monkeypatch):
    def our_step(agent, runs, *rest):
        if runs == 2:
            raise RuntimeError("out of memory\nand a long trace")
        return 1.0

    monkeypatch.setattr(reports, "our_step", our_step)
    report = bench(**QUICK)
    assert [row.microseconds for row in report.rows] == [1e6, 1e6, None]
    assert "td3-bc-x2: RuntimeError: out of memory" in report.notes
    assert "long trace" not in shown(report)


def test_peers_stand_beside_the_cases_that_have_one(monkeypatch):
    def torch_step(agent, data, how, *rest):
        if agent.name == "td3-bc" and how == "compiled":
            raise RuntimeError("no compiler")
        return {"eager": 2e-6, "compiled": 1e-6}[how]

    monkeypatch.setattr(reports, "_has_torch", lambda: True)
    monkeypatch.setattr(reports, "version", lambda name: "0")
    monkeypatch.setattr(reports, "our_step", lambda *arguments: 1e-6)
    monkeypatch.setattr(reports, "torch_step", torch_step)
    report = bench(**QUICK)
    assert [row.torch_eager_microseconds for row in report.rows] == pytest.approx([2, 2, None])
    assert [row.torch_compiled_microseconds for row in report.rows] == [None, None, None]  # unasked, on a CPU
    report = bench(**QUICK, compile_all=True)
    assert [row.torch_compiled_microseconds for row in report.rows] == pytest.approx([1, None, None])
    assert report.notes == ["td3-bc, PyTorch compiled: RuntimeError: no compiler"]


@pytest.mark.parametrize("agent", [BCOLSAC(budget=1, **TINY), BCOLTD3(budget=1, **TINY), TD3BC(**TINY)])
def test_the_peers_step(agent):
    pytest.importorskip("torch")
    from bcol.bench.measure import random_data, torch_step

    assert torch_step(agent, random_data(20), "eager", seconds=0.002, rounds=1) > 0


def test_the_command_writes_all_numbers(no_torch, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(reports.suite, "CPU", CASES)
    monkeypatch.setattr(reports, "our_step", lambda *arguments: 3e-6)
    monkeypatch.setattr(reports, "matrix_peak", lambda *arguments: 1e12)
    path = tmp_path / "new" / "bench.json"
    main(["bench", "--device", "cpu", "--cases", "sac", "td3-bc", "--output", str(path)])
    assert "td3-bc" in capsys.readouterr().out
    saved = json.loads(path.read_text())
    assert [row["name"] for row in saved["rows"]] == ["sac", "td3-bc"]
    assert saved["rows"][0]["microseconds"] == pytest.approx(3)
    assert saved["rows"][0]["agent"]["budget"] == 1
    assert saved["peak_flop_per_second"] == 1e12
    assert saved["machine"]["cores"] >= 1
    assert "jax" in saved["versions"]
    assert "torch" not in saved["versions"]


def test_bad_input_is_one_line(capsys):
    with pytest.raises(InputError, match="cases here are sac, td3-bc, td3-bc-x2: got 'dqn'"):
        bench(["dqn"], **QUICK)
    with pytest.raises(SystemExit) as stop:
        main(["bench", "--output", "bench.csv"])
    assert stop.value.code == 2
    assert "output must end in .json" in capsys.readouterr().err


def test_nothing_measured_is_a_failure(no_torch, monkeypatch):
    monkeypatch.setattr(reports, "our_step", lambda *arguments: 1 / 0)
    monkeypatch.setattr(reports, "matrix_peak", lambda *arguments: 1e12)
    with pytest.raises(SystemExit) as stop:
        main(["bench", "--device", "cpu"])
    assert stop.value.code == 1


def test_names_of_cases_differ_and_their_agents_are_sound():
    for cases in (GPU, CPU):
        assert len({case.name for case in cases}) == len(cases)
        for case in cases:
            case.agent.check()


def test_steps_are_counted_until_they_take_long_enough(monkeypatch):
    now, counts = [0.0], []

    def advance(n):
        counts.append(n)
        now[0] += n * 0.01

    monkeypatch.setattr("bcol.bench.measure.time.perf_counter", lambda: now[0])
    assert seconds_per_step(advance, warm_up=3, seconds=1.0, rounds=2) == pytest.approx(0.01)
    assert counts == [3, 1, 4, 16, 64, 100, 100]
