"""Datasets of a user's own environment: other bounds, other shapes, ends of its own, wrappers of its own."""

import numpy as np
import pytest
from test_make import contents

import bcol
from bcol.data import check, read_d4rl
from bcol.data.load import read_log
from bcol.errors import InputError
from bcol.evaluate import evaluate
from bcol.film import film
from bcol.forge.behaviour import read_behaviour
from bcol.forge.cards import lines, read_card, table
from bcol.forge.make import forge
from bcol.forge.rungs import Rung, halved, write_rung
from bcol.forge.space import Space
from bcol.nets import make_actor
from bcol.runs import RunError

ENV = "point_world:Plane-v0"
LOW, HIGH = np.array([-3, -2], np.float32), np.array([1, 0.5], np.float32)


@pytest.fixture
def policies(tmp_path, monkeypatch):
    """Two policies for the plane; and a cache that is empty."""
    monkeypatch.setenv("BCOL_DATA", str(tmp_path / "cache"))
    paths = [tmp_path / f"{seed}.safetensors" for seed in range(2)]
    for seed, path in enumerate(paths):
        write_policy(path, seed, LOW, HIGH)
    return paths


def write_policy(path, seed, low, high):
    actor = make_actor(np.random.default_rng(seed), 2, 2, (8, 8))
    write_rung(path, Rung(ENV, seed, 100, Space(2, low, high), halved(actor)))


def test_the_rows_are_the_worlds(policies, tmp_path):
    alone, pair = (
        forge("mine", env=ENV, policy=policies, rows=12_000, workers=workers, out=tmp_path / f"{workers}.hdf5")
        for workers in (1, 2)
    )
    assert contents(alone) == contents(pair)
    log, task = read_log(alone)
    assert task is None
    assert (log.env_id, log.action_low.tolist(), log.action_high.tolist()) == (ENV, LOW.tolist(), HIGH.tolist())
    assert [p for p in check(log) if p.level != "note"] == []
    # What the world does to positions, its wrapper to rewards, and where an episode ends.
    moved = np.clip(log.observations + 0.05 * log.actions, -1, 1)
    np.testing.assert_allclose(log.next_observations, moved, atol=1e-6)
    np.testing.assert_allclose(log.rewards, 10 * moved[:, 0], atol=1e-5)
    np.testing.assert_array_equal(log.terminals, moved[:, 0] <= -1)
    starts = np.append(0, np.flatnonzero(log.terminals | log.timeouts)[:-1] + 1)
    lengths = np.diff(starts, append=len(log))
    left = (moved[:, 1] <= -1) & ~log.terminals  # the world itself truncates there; its limit is 20
    late = np.zeros(len(log), bool)
    late[starts + lengths - 1] = lengths == 20
    np.testing.assert_array_equal(log.timeouts, (left | late) & ~log.terminals)
    assert left.any()
    assert late.any()


def test_probabilities_are_those_of_the_actions(policies, tmp_path):
    log = read_d4rl(forge("mine", env=ENV, policy=policies[:1], rows=2000, out=tmp_path / "x.hdf5"))
    mean, log_std = read_behaviour(policies[0]).distribution(log.observations)
    unit = (log.actions.astype(np.float64) - [-1, -0.75]) / [2, 1.25]
    inside = np.arctanh(unit)
    # Written out for a = middle + half tanh(x): the density of x over |da/dx| = half (1 - tanh(x)^2).
    density = np.exp(-0.5 * ((inside - mean) / np.exp(log_std)) ** 2) / (np.exp(log_std) * np.sqrt(2 * np.pi))
    density /= np.array([2, 1.25]) * (1 - unit**2)
    clear = np.abs(unit).max(axis=1) < 0.99
    assert clear.mean() > 0.5
    np.testing.assert_allclose(log.infos["action_log_probs"][clear], np.log(density).sum(1)[clear], atol=1e-3)


def test_it_is_known_by_its_name_and_trains_where_it_was_recorded(policies, tmp_path):
    path = forge("mine", env=ENV, policy=policies, rows=2000)
    data = bcol.load_dataset("forge/mine")
    assert (data.spec.env_id, data.spec.source, data.spec.task) == (ENV, "forge/mine", None)
    assert forge("mine", env=ENV, policy=policies, rows=2000) == path
    with pytest.raises(InputError, match="exists already and is another dataset"):
        forge("mine", env=ENV, policy=policies, rows=3000)
    with pytest.raises(InputError, match="give the policies"):  # rather than what is there already
        forge("mine", env="Pendulum-v1")
    card = read_card(path.with_suffix(".json"))
    assert card["environment"] == ENV
    unit = np.abs((data.action - (HIGH + LOW) / 2) / ((HIGH - LOW) / 2))
    assert card["saturated_actions"] == pytest.approx(np.mean(unit > 0.99), abs=0.01)
    assert np.mean(np.abs(data.action) > 0.99) > 0.2  # in their own units, it does not count
    assert dict(lines(card))["policies"] == "0.safetensors, 1.safetensors"
    assert "| - |" in table([card])
    run = bcol.train(data, bcol.BC(hidden=(8,), batch_size=16), steps=20, out=tmp_path / "run", progress=False)
    assert len(run.scores()) > 0  # played in the environment that the file names
    assert evaluate(run.policy(), ENV, episodes=2, workers=0).lengths.max() <= 20
    assert not any(film(run.policy(), ENV, tmp_path / "strip.png"))


def test_a_name_of_one_of_d4rls_files_means_nothing_here(policies):
    forge("hopper-medium-v2", env=ENV, policy=policies[:1], rows=100)
    assert read_log("forge/hopper-medium-v2")[1] is None


def test_the_worlds_own_limit_stays(policies, tmp_path):
    log = read_d4rl(forge("short", env="point_world:Short-v0", policy=policies[:1], rows=100, out=tmp_path / "x.hdf5"))
    ends = np.flatnonzero(log.terminals | log.timeouts)
    assert np.diff(ends).max() == 5  # and not 20, which it is registered with


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ("point_world:Blind-v0", "the environment gave NaN or infinite observations or rewards"),
        ("point_world:Broken-v0", "the environment point_world:Broken-v0 failed: ValueError: the robot is broken"),
    ],
)
def test_a_world_that_fails_is_one_line(policies, tmp_path, env, message):
    path = policies[0]
    if "Broken" in env:
        space = Space(1, np.array([-3], np.float32), np.array([3], np.float32))
        write_rung(path, Rung(env, 0, 100, space, halved(make_actor(np.random.default_rng(0), 1, 1, (8,)))))
    with pytest.raises(RunError) as error:
        forge("bad", env=env, policy=[path], rows=100, workers=1, out=tmp_path / "x.hdf5")
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policy": []}, "forge/mine is your own: give the policies to sample"),
        ({"env": None}, "unknown dataset 'forge/mine'.* or give env and policy"),
        ({"name": "hopper-medium"}, "forge/hopper-medium is made in Hopper-v4: leave out --env"),
        ({"name": "a/b"}, "name must be made of letters"),
        ({"name": "d4rl-mine"}, "name must not begin with d4rl-"),
        ({"name": "hopper-medium-rows777"}, "or end like -rows100"),
        ({"env": ""}, "unknown dataset 'forge/mine'"),
        ({"env": "point_world:None-v0"}, "cannot make the environment"),
        ({"env": "Pendulum-v1"}, "2 observations and 2 actions, which Pendulum-v1 has not"),
        ({"env": "CartPole-v1"}, "must have box observations and actions"),
    ],
)
def test_bad_input(policies, options, message):
    with pytest.raises(InputError, match=message):
        forge(**({"name": "mine", "env": ENV, "policy": policies, "rows": 100, "workers": 1} | options))


def test_a_policy_with_other_bounds_is_refused(policies, tmp_path):
    write_policy(policies[0], 0, LOW / 2, HIGH / 2)
    with pytest.raises(InputError, match="0.safetensors acts within other bounds than those of point_world:Plane-v0"):
        forge("mine", env=ENV, policy=policies, rows=100)
    assert not list((tmp_path / "cache").rglob("*.parts"))


def test_actions_stay_in_the_box():
    space = Space(1, np.array([-0.3, -70.1], np.float32), np.array([0.1, 900.7], np.float32))
    for sign in (-1, 1):
        scaled = space.scaled(np.full((1, 2), sign, np.float32))
        assert ((space.low <= scaled) & (scaled <= space.high)).all()
    unit = Space(1, np.full(3, -1, np.float32), np.ones(3, np.float32))
    random = np.random.default_rng(0).uniform(-1, 1, (100, 3)).astype(np.float32)
    np.testing.assert_array_equal(unit.scaled(random), random)


def test_a_policy_of_normalised_states_is_refused(policies, tmp_path):
    data = bcol.load_dataset(forge("mine", env=ENV, policy=policies, rows=2000))
    agent = bcol.OfflineSAC(hidden=(8,), batch_size=16, normalize_states=True)
    run = bcol.train(data, agent, steps=2, eval_every=0, out=tmp_path / "run", progress=False)
    with pytest.raises(InputError, match="acts on normalised states"):
        read_behaviour(run.path / "seed0")
