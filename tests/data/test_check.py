"""`check` finds what is there, with rows, and nothing else."""

from dataclasses import replace

import numpy as np
import pytest

from bcol.data import TASKS, check, read_log
from conftest import genuine, rows

HOPPER = TASKS["hopper-medium-v2"]


def found(log, task=None):
    return {problem.what.split(":")[0]: problem for problem in check(log, task)}


def test_nothing_wrong():
    assert not any(problem.level != "note" for problem in check(rows("ssTssOsT")))


def test_every_bad_value_is_listed():
    log = rows("sssssT", action_bounds=(-0.025, 1))
    log.observations[1] = np.nan
    log.rewards[[2, 4]] = np.inf
    log.actions[3] = -0.5
    problems = check(log)
    assert [problem.level for problem in problems[:3]] == ["error"] * 3
    assert [problem.rows for problem in problems[:3]] == [(1,), (2, 4), (3,)]


def test_bounds_of_a_task():
    log = rows("ssT", actions=np.array([[0], [2.0], [0]]))
    assert found(log, HOPPER)["actions outside -1..1, the task's bounds"].rows == (1,)
    assert found(log)["actions go beyond -1..1 and no bounds are declared"].level == "note"


def test_unmarked_timeouts():
    assert found(rows("s" * 30 + "G" + "sT"))["unmarked time-outs"].rows == (30,)


def test_disagreeing_next_observations():
    log = rows("s" * 9 + "T", stored_next=True)
    log = replace(log, next_observations=log.next_observations * 3 + 50)
    assert "next_observations rarely equals the next row's observation" in found(log)


def test_misplaced_timeouts():
    log = rows("sssssT", stored_next=True)
    log.timeouts[2] = True
    assert found(log)["wrong time-out flags"].rows == (2,)


def test_terminals_that_end_nothing():
    log = rows("sssssT", stored_next=True)
    log.terminals[2] = True
    assert found(log)["terminals after which the trajectory goes on in the next row"].rows == (2,)


def test_no_timeouts_and_no_evidence():
    log = replace(rows("ssssT"), timeouts=None)
    assert "no time-outs are stored and nothing shows where they were (no next_observations)" in found(log)
    assert "no time-outs are stored and nothing shows where they were (no next_observations)" not in found(log, HOPPER)


def test_both_flags():
    assert found(rows("sBsT"))["terminal and time-out at once"].rows == (1,)


def test_limits_of_a_task():
    task = replace(HOPPER, episode_limit=4)
    assert found(rows("ssOssT"), task)["time-outs before the task's limit of 4 steps"].rows == (2,)
    assert found(rows("s" * 7 + "T"), task)["episodes longer than the task's limit of 4 steps"].rows == (7,)


def test_antmaze_v0_pattern_without_any_evidence():
    log = rows(("s" * 998 + "O") * 2)
    problems = found(log, TASKS["antmaze-medium-play-v0"])
    assert any("every 999 rows" in what for what in problems)
    assert problems["time-outs before the task's limit of 1000 steps"].rows == (998, 1997)


def test_no_signal():
    problems = found(rows("ssT", rewards=np.ones(3), observations=np.ones((3, 2))))
    assert problems["all rewards are 1"].level == "warning"
    assert problems["constant observation columns"].level == "note"


def test_no_successor():
    assert found(rows("OO"))["no row has a successor"].level == "error"


@pytest.mark.parametrize("robot", ["hopper", "halfcheetah", "walker2d"])
def test_genuine_medium_files_are_clean(robot):
    log, task = read_log(genuine(f"d4rl_rows/{robot}_medium-v2.hdf5"))
    assert not any(problem.level != "note" for problem in check(log, task))
