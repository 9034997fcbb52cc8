"""Online SAC's arithmetic against NumPy and against hand-made numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bcol.errors import InputError
from bcol.forge.sac import SAC, Seen, sampled, unpack, values
from bcol.nets import gaussian


def some_rows(n: int = 6, s: int = 3, a: int = 2) -> np.ndarray:
    rows = np.random.default_rng(0).uniform(-0.9, 0.9, (n, 2 * s + a + 2)).astype(np.float32)
    rows[:, -1] = np.arange(n) % 2
    return rows


def test_rows_are_unpacked_in_their_order() -> None:
    row = np.arange(10, dtype=np.float32)[None]
    seen = unpack(jnp.asarray(row), 3)
    assert [x.tolist() for x in seen] == [[[0, 1, 2]], [[3, 4]], [5], [[6, 7, 8]], [9]]


def test_log_probability_is_the_density_of_the_action() -> None:
    """Integrated over all actions of one dimension, exp(log pi) is 1; checked by the histogram of the samples."""
    agent = SAC(hidden=(8,))
    actor = agent.init(np.random.default_rng(0), 1, 1).actor.net
    observation = jnp.full((200_000, 1), 0.3)
    action, log_probability = sampled(actor, observation, jax.random.key(0))
    # E 1/pi(a) over a ~ pi is the size of the set of actions: 2.
    assert float(jnp.exp(-log_probability).mean()) == pytest.approx(2, rel=0.03)
    mean, log_std = gaussian(actor, np.full((1, 1), 0.3, np.float32))
    row = int(jnp.abs(action[:, 0]).argmin())  # far from the bounds, where the action still tells what was inside
    inside = np.arctanh(np.asarray(action[row], np.float64))
    z = (inside - mean[0, 0]) / np.exp(log_std[0, 0])
    by_hand = -0.5 * z**2 - 0.5 * np.log(2 * np.pi) - log_std[0, 0] - np.log(1 - np.asarray(action[row]) ** 2)
    assert float(log_probability[row]) == pytest.approx(float(by_hand[0]), abs=1e-4)


@pytest.mark.parametrize("norm", ["none", "layer"])
def test_losses_equal_the_formulas(norm) -> None:
    agent = SAC(hidden=(8, 8), discount=0.9, first_temperature=0.5, critic_norm=norm)
    state = agent.init(np.random.default_rng(0), 3, 2)
    batch, key = unpack(jnp.asarray(some_rows()), 3), jax.random.key(3)
    after, metrics = jax.jit(agent.update)(state, batch, key)
    for_target, for_actor = jax.random.split(key)
    action, log_after = sampled(state.actor.net, batch.next_observation, for_target)
    q_after = np.asarray(values(state.target, batch.next_observation, action)).min(0)
    y = np.asarray(batch.reward) + 0.9 * np.asarray(batch.mask) * (q_after - 0.5 * np.asarray(log_after))
    q = np.asarray(values(state.critic.net, batch.observation, batch.action))
    assert float(metrics["critic_loss"]) == pytest.approx(float(((q - y) ** 2).mean(1).sum()), rel=1e-5)
    action, log_now = sampled(state.actor.net, batch.observation, for_actor)
    q_now = np.asarray(values(state.critic.net, batch.observation, action)).min(0)
    assert float(metrics["actor_loss"]) == pytest.approx(float((0.5 * np.asarray(log_now) - q_now).mean()), rel=1e-5)
    # More random than asked (entropy above -2): the temperature falls, by Adam's first step.
    assert float(metrics["entropy"]) > -2
    assert float(after.temperature.net) == pytest.approx(np.log(0.5) - agent.learning_rate, abs=1e-6)
    moved = jax.tree.map(lambda t, p: t + 0.005 * (p - t), state.target, after.critic.net)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6), after.target, moved)


def test_masked_futures_do_not_count() -> None:
    agent = SAC(hidden=(8,))
    state = agent.init(np.random.default_rng(0), 3, 2)
    seen = unpack(jnp.asarray(some_rows()), 3)._replace(mask=jnp.zeros(6))
    elsewhere = Seen(*seen[:3], seen.next_observation + 5, seen.mask)
    update = jax.jit(agent.update)
    losses = [float(update(state, batch, jax.random.key(0))[1]["critic_loss"]) for batch in (seen, elsewhere)]
    assert losses[0] == losses[1]


@pytest.mark.parametrize(
    "bad",
    [
        {"hidden": ()},
        {"discount": 1.0},
        {"batch_size": 0},
        {"learning_rate": 0.0},
        {"tau": 0.0},
        {"first_temperature": 0.0},
    ],
)
def test_bad_hyper_parameters(bad) -> None:
    with pytest.raises(InputError, match=next(iter(bad))):
        SAC(**bad).check()
