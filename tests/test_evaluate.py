import os
import sys
import time

import gymnasium
import numpy as np
import pytest

import bcol
from bcol import evaluate as evaluate_function
from bcol.data.transitions import Spec
from bcol.evaluate import make_environment
from bcol.film import film
from bcol.runs import RunError
from test_policy import make_policy, small

WALK = Spec(2, 2, None, (-1.0, -1.0), (1.0, 1.0), None, "junction", "sha256:0", env_id="bcol/Junction-v0")
SWING = Spec(3, 1, None, (-2.0,), (2.0,), None, "pendulum", "sha256:0", env_id="Pendulum-v1")


class Crashes(gymnasium.Env):
    """Raises, dies or hangs in its third step."""

    observation_space = gymnasium.spaces.Box(-1, 1, (3,))
    action_space = gymnasium.spaces.Box(np.float32([-2, 0]), np.float32([2, 1]))

    def __init__(self, how):
        self.how, self.t = how, 0

    def reset(self, *, seed=None, options=None):
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.t += 1
        if self.t == 3:
            if self.how == "raises":
                raise ValueError("the robot is on fire")
            if self.how == "dies":
                os._exit(1)
            time.sleep(3600)
        return np.zeros(3, np.float32), 1.0, False, False, {}


for how in ("raises", "dies", "hangs"):
    if f"{how}-v0" not in gymnasium.registry:
        gymnasium.register(f"{how}-v0", entry_point=f"test_evaluate:{Crashes.__name__}", kwargs={"how": how})


@pytest.fixture
def on_path(monkeypatch):
    """Worker processes import this file to find its environments."""
    monkeypatch.setenv("PYTHONPATH", os.path.dirname(__file__))


def walker(spec=WALK, **options):
    from dataclasses import replace

    import jax

    from bcol.policy import Policy, Rule

    agent = small(bcol.BCOLSAC, budget=3, **options)
    networks = agent.deployed(agent.init(np.random.default_rng(0), spec.observation_dim, spec.action_dim))
    return Policy(spec, Rule(**replace(agent).policy()), jax.tree.map(np.asarray, networks))


def test_scores_depend_on_the_seed_alone():
    policy = walker(SWING)
    here = bcol.evaluate(policy, "Pendulum-v1", 7, seed=4, workers=0)
    for workers in (1, 2):
        there = bcol.evaluate(policy, "Pendulum-v1", 7, seed=4, workers=workers)
        np.testing.assert_array_equal(here.returns, there.returns)
        np.testing.assert_array_equal(here.lengths, there.lengths)
        np.testing.assert_array_equal(here.deviations, there.deviations)
    other = bcol.evaluate(policy, "Pendulum-v1", 7, seed=5, workers=0)
    assert not np.array_equal(here.returns, other.returns)
    assert here.deviations.max() <= 3


def test_the_budget_is_kept():
    for budget in (0, 1):
        scores = bcol.evaluate(walker(), "bcol/Junction-v0", 5, budget=budget, workers=0)
        assert scores.deviations.max() <= budget


def test_scores_are_normalised_by_the_environments_reference():
    scores = bcol.Scores(np.array([-20.272305, 3234.3]), np.array([1, 1]), np.array([0, 0]), (-20.272305, 3234.3))
    np.testing.assert_allclose(scores.normalized, [0, 100])
    np.testing.assert_allclose(bcol.Scores(np.array([7.0]), np.array([1]), np.array([0]), None).normalized, [7.0])


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ("test_evaluate:raises-v0", "the robot is on fire"),
        ("test_evaluate:dies-v0", "died"),
        ("test_evaluate:hangs-v0", "hangs"),
    ],
)
def test_environments_that_fail_are_reported(env, message, on_path, monkeypatch):

    module = sys.modules["bcol.evaluate"]
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 15.0 if "hangs" in env else 120.0)
    with pytest.raises(RunError, match=message) as error:
        evaluate_function(make_policy(small(bcol.BC)), env, 2, workers=1)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("env", "options", "message"),
    [
        ("Nowhere-v0", {}, "cannot make the environment 'Nowhere-v0'"),
        ("CartPole-v1", {}, "must have box observations and actions"),
        ("Pendulum-v1", {}, "the policy is for 2 observations and 2 actions, Pendulum-v1 has 3 and 1"),
        ("bcol/Junction-v0", {"episodes": 0}, "episodes must be at least 1"),
        ("bcol/Junction-v0", {"budget": 9}, r"budget must lie in 0\.\.3"),
    ],
)
def test_bad_input(env, options, message):
    with pytest.raises(bcol.InputError, match=message) as error:
        bcol.evaluate(walker(), env, workers=0, **options)
    assert "\n" not in str(error.value)


class Painted(gymnasium.Env):
    """Twenty frames of one colour."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Box(-1, 1, (2,))
    render_mode = "rgb_array"

    def __init__(self, render_mode=None):
        self.t = 0

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.zeros(2, np.float32), 0.0, self.t == 20, False, {}

    def render(self):
        return np.full((40, 30, 3), 10 * self.t, np.uint8)


if "painted-v0" not in gymnasium.registry:
    gymnasium.register("painted-v0", entry_point="test_evaluate:Painted")


def test_films_mark_the_steps_that_deviate(tmp_path):
    from PIL import Image

    deviated = film(walker(follow="mode"), "painted-v0", tmp_path / "strip.png")
    with Image.open(tmp_path / "strip.png") as image:
        strip = np.asarray(image)
    frames = strip.reshape(40, -1, 30, 3).swapaxes(0, 1)
    marked = [(frame[0, 0] == [44, 140, 74]).all() for frame in frames]
    assert sum(marked) == min(sum(deviated), 12)
    film(walker(follow="mode"), "painted-v0", tmp_path / "all.gif")
    with Image.open(tmp_path / "all.gif") as animation:
        assert animation.n_frames == 20
    with pytest.raises(bcol.InputError, match="frames must end in"):
        film(walker(), "painted-v0", tmp_path / "all.mp4")


def test_halfcheetah_says_nothing_about_its_mass(capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where MuJoCo would also write a log
    make_environment("HalfCheetah-v4").close()
    assert capfd.readouterr().err == ""
    assert list(tmp_path.iterdir()) == []
