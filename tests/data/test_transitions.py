"""Around every kind of episode end, s', a' and the mask are exactly right."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import bcol
from bcol.data import TASKS, Spec, make_log, pair
from bcol.data.log import breaks, episode_ends, with_timeouts
from conftest import rows


def broken(log):
    found = breaks(log)
    assert found is not None
    return np.flatnonzero(found).tolist()


def kept(data):
    """The raw rows that were kept: rewards number them."""
    return data.reward.astype(int).tolist()


def test_terminal_rows_stay_and_are_masked():
    data = pair(rows("ssTssT"))
    assert kept(data) == [0, 1, 2, 3, 4, 5]
    assert data.mask.tolist() == [1, 1, 0, 1, 1, 0]
    assert data.episode.tolist() == [0, 0, 0, 1, 1, 1]
    assert data.next_observation[:, 0][data.mask == 1].tolist() == [1, 2, 101, 102]
    np.testing.assert_allclose(data.next_action[data.mask == 1, 0], [0.01, 0.02, 0.04, 0.05])


def test_timed_out_rows_are_dropped_and_are_not_terminal():
    data = pair(rows("ssOssOsT"))
    assert kept(data) == [0, 1, 3, 4, 6, 7]
    assert data.mask.tolist() == [1, 1, 1, 1, 1, 0]
    assert data.episode.tolist() == [0, 0, 1, 1, 2, 2]


def test_next_action_comes_from_the_raw_rows():
    # The row before a time-out is followed by the action of the dropped row. Rolling after dropping gives the
    # first action of the next episode instead.
    data = pair(rows("ssOssO"))
    np.testing.assert_allclose(data.next_action[:, 0], [0.01, 0.02, 0.04, 0.05])
    rolled = np.roll(data.action[:, 0], -1)
    assert not np.isclose(rolled[1], data.next_action[1, 0])


@pytest.mark.parametrize("text", ["ssTssOssGsT", "TTT", "OsT", "sGsGsT", "ssBssO", "ssssss", "sO", "GsT", "ssTs"])
@pytest.mark.parametrize("stored_next", [False, True])
def test_against_one_row_at_a_time(text, stored_next):
    log = rows(text, stored_next=stored_next)
    data = pair(log)
    expected = []
    for i, letter in enumerate(text):
        if letter in "TB":
            expected.append((i, 0))
        elif letter == "s" and i + 1 < len(text):
            expected.append((i, 1))
    assert kept(data) == [i for i, _ in expected]
    assert data.mask.tolist() == [mask for _, mask in expected]
    for row, (i, mask) in enumerate(expected):
        if mask:
            np.testing.assert_array_equal(data.next_observation[row], log.observations[i + 1])
            np.testing.assert_array_equal(data.next_action[row], log.actions[i + 1])
        elif log.next_observations is not None:
            np.testing.assert_array_equal(data.next_observation[row], log.next_observations[i])


def test_both_flags_count_as_terminal():
    data = pair(rows("ssBsT"))
    assert kept(data) == [0, 1, 2, 3, 4]
    assert data.mask.tolist() == [1, 1, 0, 1, 0]


def test_neither_flag_leaves_one_episode_whose_last_row_has_no_successor():
    data = pair(rows("ssss"))
    assert kept(data) == [0, 1, 2]
    assert data.episode_length.tolist() == [4]


def test_the_last_state_alone_does_not_save_a_row_without_next_action():
    assert kept(pair(rows("sss", stored_next=True))) == [0, 1]
    assert kept(pair(rows("ssO", stored_next=True))) == [0, 1]


def test_unmarked_timeouts_show_as_gaps():
    log = rows("ssGssGsT")
    assert broken(log) == [2, 5, 7]
    assert kept(pair(log)) == [0, 1, 3, 4, 6, 7]
    assert np.flatnonzero(np.asarray(with_timeouts(log).timeouts)).tolist() == [2, 5]


def test_gaps_are_found_without_any_timeouts_array():
    log = replace(rows("ssGsT"), timeouts=None)
    assert kept(pair(log)) == [0, 1, 3, 4]


def test_rounding_is_no_gap():
    log = rows("sssT", stored_next=True)
    log = replace(log, next_observations=log.next_observations * np.float32(1 + 1e-6))
    assert kept(pair(log)) == [0, 1, 2, 3]


def test_gaps_are_found_across_comparison_blocks():
    count = (1 << 16) + 10
    after = np.arange(1, count + 1, dtype=np.float32)[:, None] / 1024
    before = after - np.float32(1 / 1024)
    cut = (1 << 16) - 1
    after[[7, cut]] += 5
    log = make_log(before, np.zeros((count, 1)), np.zeros(count), np.zeros(count, bool), None, after)
    assert broken(log) == [7, cut, count - 1]


def test_without_timeouts_a_known_limit_ends_episodes():
    task = replace(TASKS["hopper-medium-v2"], episode_limit=3)
    log = replace(rows("sssssTss"), timeouts=None)
    # 0 1 2 | 3 4 5 | 6 7, of which 5 is terminal
    assert np.flatnonzero(episode_ends(log, task)).tolist() == [2, 5, 7]
    assert kept(pair(log, task)) == [0, 1, 3, 4, 5, 6]


def test_antmaze_trajectories_go_on_after_terminals():
    log = rows("sTTsOsO", observations=np.arange(7.0)[:, None])
    data = pair(log, TASKS["antmaze-umaze-v2"])
    assert data.mask.tolist() == [1, 0, 0, 1, 1]
    assert data.episode.tolist() == [0, 0, 0, 0, 1]
    assert data.episode_return.tolist() == [10, 11]


def test_simulator_state_after_the_step_is_evidence():
    log = rows("s" * 30)
    after = np.roll(log.observations, -1, axis=0)
    after[13] += 7
    log = replace(log, infos={"qpos": after[:, :1].astype(np.float64), "qvel": after[:, 1:]})
    assert broken(log) == [13, 29]
    # ... but not where it is the state before the step.
    before = replace(log, infos={"qpos": log.observations[:, :1], "qvel": log.observations[:, 1:]})
    assert breaks(before) is None


def test_returns_and_lengths_count_dropped_rows():
    data = pair(rows("ssOsT"))
    assert data.episode_return.tolist() == [3, 7]
    assert data.episode_length.tolist() == [3, 2]
    assert data.first_rows.tolist() == [0, 2]


def test_an_episode_of_one_timed_out_row_leaves_no_row():
    data = pair(rows("OsT"))
    assert data.episode.tolist() == [1, 1]
    assert data.first_rows.tolist() == [0]


def test_arrays_are_float32_and_contiguous():
    data = pair(rows("ssOsT"))
    for name in ("observation", "action", "reward", "next_observation", "next_action", "mask"):
        array = getattr(data, name)
        assert array.dtype == np.float32
        assert array.flags.c_contiguous


def test_discrete_actions():
    data = pair(rows("ssTsT", actions=np.array([0, 2, 1, 1, 0])))
    assert data.action.dtype == np.int32
    assert data.next_action.tolist()[:2] == [2, 1]
    assert data.spec.discrete
    assert (data.spec.action_dim, data.spec.num_actions) == (None, 3)


def test_spec_goes_through_json():
    data = bcol.data.normalize_states(pair(rows("ssTsT"), TASKS["hopper-medium-v2"]))
    spec = data.spec
    assert Spec.from_json(spec.to_json()) == spec
    assert spec.env_id == "Hopper-v4"
    with pytest.raises(bcol.InputError, match="not a data spec"):
        Spec.from_json("{}")


def test_checksum_is_of_the_content():
    assert pair(rows("ssTsT")).spec.checksum == pair(rows("ssTsT", source="elsewhere")).spec.checksum
    assert pair(rows("ssTsT")).spec.checksum != pair(rows("ssTsO")).spec.checksum
    assert pair(rows("sT")).spec.checksum.startswith("sha256:8748d9d0")


def test_undeclared_bounds():
    assert pair(rows("ssT")).spec.action_high == (1.0,)
    wide = pair(rows("ssT", actions=np.array([[-2.0], [0], [3]]))).spec
    assert (wide.action_low, wide.action_high) == ((-2.0,), (3.0,))


def test_data_needs_no_jax():
    code = "import sys, bcol; bcol.load_dataset; bcol.data.commands; sys.exit('jax' in sys.modules)"
    code = code.replace("bcol.data.commands", "__import__('bcol.data.commands')")
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
