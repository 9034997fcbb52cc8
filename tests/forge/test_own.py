"""Datasets of a user's own environment: other bounds, other shapes, ends of its own, wrappers of its own."""

import numpy as np
import pytest
from test_make import contents

import bcol
from bcol.data import check, read_d4rl
from bcol.data.load import read_log
from bcol.errors import InputError
from bcol.evaluate import evaluate
from bcol.forge.behaviour import read_behaviour
from bcol.forge.cards import lines, read_card, table
from bcol.forge.crew import Space
from bcol.forge.make import forge
from bcol.forge.rungs import Rung, halved, write_rung
from bcol.nets import make_actor

ENV = "point_world:Plane-v0"
SPACE = Space(2, np.array([-3, -3], np.float32), np.array([1, 1], np.float32))


@pytest.fixture
def policies(tmp_path, monkeypatch):
    """Two policies for the plane; and a cache that is empty."""
    monkeypatch.setenv("BCOL_DATA", str(tmp_path / "cache"))
    paths = [tmp_path / f"{seed}.safetensors" for seed in range(2)]
    for seed, path in enumerate(paths):
        actor = make_actor(np.random.default_rng(seed), 2, 2, (8, 8))
        write_rung(path, Rung(ENV, seed, 100, SPACE, halved(actor)))
    return paths


def test_the_rows_are_the_worlds(policies, tmp_path):
    alone, pair = (
        forge("mine", env=ENV, policy=policies, rows=12_000, workers=workers, out=tmp_path / f"{workers}.hdf5")
        for workers in (1, 2)
    )
    assert contents(alone) == contents(pair)
    log, task = read_log(alone)
    assert task is None
    assert (log.env_id, log.action_low.tolist(), log.action_high.tolist()) == (ENV, [-3, -3], [1, 1])
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
    inside = np.arctanh((log.actions.astype(np.float64) + 1) / 2)
    # Written out for a = -1 + 2 tanh(x): the density of x over |da/dx| = 2 (1 - tanh(x)^2).
    density = np.exp(-0.5 * ((inside - mean) / np.exp(log_std)) ** 2) / (np.exp(log_std) * np.sqrt(2 * np.pi))
    density /= 2 * (1 - np.tanh(inside) ** 2)
    clear = np.abs(log.actions + 1).max(axis=1) < 1.98
    assert clear.mean() > 0.5
    np.testing.assert_allclose(log.infos["action_log_probs"][clear], np.log(density).sum(1)[clear], atol=1e-3)


def test_it_is_known_by_its_name_and_trains_where_it_was_recorded(policies, tmp_path):
    path = forge("mine", env=ENV, policy=policies, rows=2000)
    data = bcol.load_dataset("forge/mine")
    assert (data.spec.env_id, data.spec.source, data.spec.task) == (ENV, "forge/mine", None)
    assert forge("mine", env=ENV, policy=policies, rows=2000) == path
    with pytest.raises(InputError, match="exists already and is another dataset"):
        forge("mine", env=ENV, policy=policies, rows=3000)
    card = read_card(path.with_suffix(".json"))
    assert card["environment"] == ENV
    assert dict(lines(card))["policies"] == "0.safetensors, 1.safetensors"
    assert "| - |" in table([card])
    run = bcol.train(data, bcol.BC(hidden=(8,), batch_size=16), steps=20, out=tmp_path / "run", progress=False)
    assert len(run.scores()) > 0  # played in the environment that the file names
    assert evaluate(run.policy(), ENV, episodes=2, workers=0).lengths.max() <= 20


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policy": []}, "forge/mine is your own: give the policies to sample"),
        ({"env": None}, "unknown dataset 'forge/mine'.* or give env and policy"),
        ({"name": "hopper-medium"}, "forge/hopper-medium is made in Hopper-v4: leave out --env"),
        ({"name": "a/b"}, "name must be made of letters"),
        ({"env": "point_world:None-v0"}, "cannot make the environment"),
        ({"env": "Pendulum-v1"}, "2 observations and 2 actions, which Pendulum-v1 has not"),
        ({"env": "CartPole-v1"}, "must have box observations and actions"),
    ],
)
def test_bad_input(policies, options, message):
    with pytest.raises(InputError, match=message):
        forge(**({"name": "mine", "env": ENV, "policy": policies, "rows": 100, "workers": 1} | options))


def test_a_policy_of_normalised_states_is_refused(policies, tmp_path):
    data = bcol.load_dataset(forge("mine", env=ENV, policy=policies, rows=2000))
    agent = bcol.OfflineSAC(hidden=(8,), batch_size=16, normalize_states=True)
    run = bcol.train(data, agent, steps=2, eval_every=0, out=tmp_path / "run", progress=False)
    with pytest.raises(InputError, match="acts on normalised states"):
        read_behaviour(run.path / "seed0")
