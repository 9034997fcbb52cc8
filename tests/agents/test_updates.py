"""One step of every agent against the same losses written with loops: values, and gradients through Adam's mean."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from naive import (
    actor_outputs,
    budgeted_critic_loss,
    budgeted_target,
    log_likelihood,
    q_bar,
    q_value,
    sac_action,
    td3_action,
)

from bcol.agents import BC, BCOLSAC, BCOLTD3, CDC, TD3BC, Batch, Clock, OfflineSAC, OfflineTD3
from bcol.agents.budgeted import td_target
from bcol.nets import squash_mean

N, S, A = 2, 2, 2
KEY = jax.random.key(7)


@pytest.fixture(scope="module")
def batch():
    random = np.random.default_rng(0)
    rows = [random.normal(size=s) for s in ((N, S), (N, A), N, (N, S), (N, A))]
    rows[1], rows[4] = np.tanh(rows[1]), np.tanh(rows[4])
    return Batch(*(jnp.asarray(x, jnp.float32) for x in (*rows, [1.0, 0.0])))


def make(agent):
    state = jax.tree.map(jnp.asarray, agent.init(np.random.default_rng(1), S, A))
    # Weights a few times larger than they start: values then differ enough for every max to matter.
    return jax.tree.map(lambda x: 3 * x if x.ndim > 1 else x, state)


def step(agent, state, batch, at=0):
    return jax.jit(agent.update)(state, batch, KEY, Clock(jnp.asarray(at), jnp.asarray(100)))


def assert_gradient(learner, expected):
    """Adam's first mean is a tenth of the gradient."""
    for got, want in zip(jax.tree.leaves(learner.adam.mu), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(10 * got, want, rtol=2e-3, atol=2e-5)


def small(agent_class, **options):
    return agent_class(hidden=(5, 4), precision="float32", **options)


def test_target_of_one_transition_by_hand():
    follow, best = jnp.array([1.0, 2.0, 3.0]), jnp.array([4.0, 1.0])
    np.testing.assert_allclose(td_target(jnp.float32(0.5), jnp.float32(1), 0.5, follow, best), [1.0, 2.5, 2.0])
    np.testing.assert_allclose(td_target(jnp.float32(0.5), jnp.float32(0), 0.5, follow, best), [0.5, 0.5, 0.5])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"heads": "literal", "omega": 0.0},
        {"critic_norm": "layer", "head_layers": 1, "std": "free"},
        {"budget": 0},
    ],
    ids=str,
)
def test_bcol_sac(batch, options):
    agent = small(BCOLSAC, **({"budget": 2, "omega": 10.0, "samples": 2} | options))
    state = make(agent)
    new, metrics = step(agent, state, batch)
    budgets = range(agent.budget + 1)
    _, for_target, for_actor = jax.random.split(KEY, 3)
    noise = jax.random.normal(for_actor, (N, agent.budget + 1, A))
    next_noise = jax.random.normal(for_target, (N, agent.samples, agent.budget, A))

    def proposals(i, b):
        head = b - 1 if agent.heads == "remaining" else b
        s = batch.next_observation[i]
        return (
            [sac_action(state.actor.net, head, s, next_noise[i, k, b - 1]) for k in range(agent.samples)] if b else []
        )

    y = [[budgeted_target(agent, state.target, batch, i, b, proposals(i, b)) for b in budgets] for i in range(N)]
    proposed = [[sac_action(state.actor.net, b, batch.observation[i], noise[i, b]) for b in budgets] for i in range(N)]

    loss, gradient = jax.value_and_grad(lambda c: budgeted_critic_loss(agent, c, batch, y, proposed))(state.critic.net)
    np.testing.assert_allclose(metrics["critic_loss"] + agent.omega * metrics["penalty"], loss, rtol=1e-4)
    assert_gradient(new.critic, gradient)
    assert (metrics["penalty"] > 0) == (agent.omega > 0 and agent.budget > 0)

    def actor_loss(actor):
        total = 0.0
        for i in range(N):
            s = batch.observation[i]
            for b in budgets:
                action = sac_action(actor, b, s, noise[i, b])
                total -= q_bar(state.critic.net, b, s, action, agent.min_weight) / N
        return total

    loss, gradient = jax.value_and_grad(actor_loss)(state.actor.net)
    np.testing.assert_allclose(metrics["actor_loss"], loss, rtol=1e-4)
    assert_gradient(new.actor, gradient)
    moved = jax.tree.map(lambda t, p: t + agent.tau * (p - t), state.target, new.critic.net)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), new.target, moved)


def test_drawn_budgets_are_unbiased(batch):
    agent = small(BCOLSAC, budget=6, budget_samples=3)
    total = np.zeros(7)
    for i in range(300):
        budgets, weight = agent.drawn_budgets(jax.random.key(i))
        assert budgets[0] == 0
        assert len(set(budgets.tolist())) == 3
        total[budgets] += weight
    np.testing.assert_allclose(total / 300, 1, atol=0.25)
    _, metrics = step(agent, make(agent), batch)
    assert np.isfinite(metrics["critic_loss"])


@pytest.mark.parametrize("options", [{}, {"heads": "literal", "omega": 0.0}], ids=str)
def test_bcol_td3(batch, options):
    agent = small(BCOLTD3, **({"budget": 2, "omega": 10.0} | options))
    state = make(agent)
    state = state._replace(target_actor=jax.tree.map(lambda x: x * 1.1, state.actor.net))
    new, metrics = step(agent, state, batch)
    budgets = range(3)
    noise = jnp.clip(0.2 * jax.random.normal(jax.random.split(KEY)[1], (N, 2, A)), -0.5, 0.5)

    def proposals(i, b):
        head = b - 1 if agent.heads == "remaining" else b
        s = batch.next_observation[i]
        return [jnp.clip(td3_action(state.target_actor, head, s) + noise[i, b - 1], -1, 1)] if b else []

    y = [[budgeted_target(agent, state.target, batch, i, b, proposals(i, b)) for b in budgets] for i in range(N)]
    proposed = [[td3_action(state.actor.net, b, batch.observation[i]) for b in budgets] for i in range(N)]
    loss, gradient = jax.value_and_grad(lambda c: budgeted_critic_loss(agent, c, batch, y, proposed))(state.critic.net)
    np.testing.assert_allclose(metrics["critic_loss"] + agent.omega * metrics["penalty"], loss, rtol=1e-4)
    assert_gradient(new.critic, gradient)

    def actor_loss(actor):
        total = 0.0
        for b in budgets:
            q = jnp.stack(
                [q_bar(state.critic.net, b, s, td3_action(actor, b, s), agent.min_weight) for s in batch.observation]
            )
            total -= q.mean() / jax.lax.stop_gradient(jnp.abs(q).mean())
        return total

    assert_gradient(new.actor, jax.grad(actor_loss)(state.actor.net))


@pytest.mark.parametrize("agent_class", [BCOLTD3, OfflineTD3, TD3BC])
def test_td3_waits_with_actor_and_targets(batch, agent_class):
    agent = small(agent_class)
    state = make(agent)
    new, _ = step(agent, state, batch, at=1)
    for name in ("actor", "target", "target_actor"):
        jax.tree.map(np.testing.assert_array_equal, getattr(new, name), getattr(state, name))
    assert not np.array_equal(new.critic.net.action, state.critic.net.action)


def test_no_budget_is_sarsa_on_the_behaviour(batch):
    agent = small(BCOLSAC, budget=0)
    state = make(agent)
    y = agent.targets(state.target, batch, jnp.zeros((N, agent.samples, 0, A)), np.arange(1))
    for i in range(N):
        q = q_bar(state.target, 0, batch.next_observation[i], batch.next_action[i], agent.min_weight)
        np.testing.assert_allclose(y[i, 0], batch.reward[i] + agent.discount * batch.mask[i] * q, rtol=1e-5)


def test_an_unlimited_budget_is_offline_sac(batch):
    """With every head the same, b-1 = b: infinity. Where a' is no better than the proposals the targets agree."""
    budgeted, offline = small(BCOLSAC, budget=3, samples=4), small(OfflineSAC, samples=4)
    state = make(offline)
    repeat = lambda x, axis: jnp.repeat(x, 4, axis=axis)  # noqa: E731
    head = tuple(repeat(x, 1) for x in state.target.head)
    proposed = offline.sampled(state.actor.net, batch.next_observation, KEY, 4)
    worst = jnp.stack(
        [
            p[np.argmin([q_bar(state.target, 0, s, a, 0.75) for a in p])]
            for s, p in zip(batch.next_observation, proposed, strict=True)
        ]
    )
    batch = batch._replace(next_action=worst)
    y = budgeted.targets(
        state.target._replace(head=head), batch, repeat(proposed[:, :, None], 2)[:, :, :3], np.arange(4)
    )
    expected = offline.targets(state, batch, KEY)
    for b in (1, 2, 3):
        np.testing.assert_allclose(y[:, b], expected, rtol=1e-5)


def test_offline_sac(batch):
    agent = small(OfflineSAC, samples=3)
    state = make(agent)
    new, metrics = step(agent, state, batch)
    for_target, for_actor = jax.random.split(KEY)
    next_noise = jax.random.normal(for_target, (N, 3, A))
    noise = jax.random.normal(for_actor, (N, 1, A))

    def y(i):
        s = batch.next_observation[i]
        q = [q_bar(state.target, 0, s, sac_action(state.actor.net, 0, s, next_noise[i, k]), 0.75) for k in range(3)]
        return batch.reward[i] + agent.discount * batch.mask[i] * max(q)

    targets = [y(i) for i in range(N)]

    def critic_loss(critic):
        return sum(
            (q_value(critic, c, 0, batch.observation[i], batch.action[i]) - targets[i]) ** 2 / N
            for c in range(2)
            for i in range(N)
        )

    def actor_loss(actor):
        return -sum(
            q_bar(state.critic.net, 0, s, sac_action(actor, 0, s, noise[i, 0]), 0.75) / N
            for i, s in enumerate(batch.observation)
        )

    np.testing.assert_allclose(metrics["critic_loss"], critic_loss(state.critic.net), rtol=1e-4)
    np.testing.assert_allclose(metrics["actor_loss"], actor_loss(state.actor.net), rtol=1e-4)
    assert_gradient(new.critic, jax.grad(critic_loss)(state.critic.net))
    assert_gradient(new.actor, jax.grad(actor_loss)(state.actor.net))


@pytest.mark.parametrize("alpha", [None, 2.5])
def test_offline_td3_and_td3_bc(batch, alpha):
    agent = small(OfflineTD3) if alpha is None else small(TD3BC, alpha=alpha)
    state = make(agent)
    new, metrics = step(agent, state, batch)
    noise = jnp.clip(0.2 * jax.random.normal(KEY, (N, A)), -0.5, 0.5)
    targets = []
    for i in range(N):
        s = batch.next_observation[i]
        a = jnp.clip(td3_action(state.target_actor, 0, s) + noise[i], -1, 1)
        targets.append(batch.reward[i] + agent.discount * batch.mask[i] * q_bar(state.target, 0, s, a, 1.0))

    def critic_loss(critic):
        return sum(
            (q_value(critic, c, 0, batch.observation[i], batch.action[i]) - targets[i]) ** 2 / N
            for c in range(2)
            for i in range(N)
        )

    def actor_loss(actor):
        q = jnp.stack([q_value(new.critic.net, 0, 0, s, td3_action(actor, 0, s)) for s in batch.observation])
        value = -q.mean() / jax.lax.stop_gradient(jnp.abs(q).mean())
        if alpha is None:
            return value
        acted = jnp.stack([td3_action(actor, 0, s) for s in batch.observation])
        return alpha * value + ((acted - batch.action) ** 2).mean()

    np.testing.assert_allclose(metrics["critic_loss"], critic_loss(state.critic.net), rtol=1e-4)
    assert_gradient(new.critic, jax.grad(critic_loss)(state.critic.net))
    assert_gradient(new.actor, jax.grad(actor_loss)(state.actor.net))


def test_cdc(batch):
    agent = small(CDC, critics=3, samples=2, eta=2.0, coef=0.7)
    state = make(agent)
    new, metrics = step(agent, state, batch)
    for_actor, for_target, for_penalty = jax.random.split(KEY, 3)
    noise = jax.random.normal(for_actor, (N, 1, A))

    def likelihood(actor, s, a):
        mean, log_std = actor_outputs(actor, 0, s)
        z = (jnp.arctanh(a) - mean) / jnp.exp(log_std)
        return (-0.5 * z**2 - log_std - 0.5 * jnp.log(2 * jnp.pi) - jnp.log(1 - a**2)).sum()

    def actor_loss(actor):
        total = 0.0
        for i, s in enumerate(batch.observation):
            total -= q_bar(state.critic.net, 0, s, sac_action(actor, 0, s, noise[i, 0]), 0.75) / N
            total -= 0.7 * likelihood(actor, s, batch.action[i]) / N
        return total

    np.testing.assert_allclose(metrics["actor_loss"], actor_loss(state.actor.net), rtol=1e-4)
    assert_gradient(new.actor, jax.grad(actor_loss)(state.actor.net))

    next_noise = jax.random.normal(for_target, (N, 2, A))
    unlogged = jax.random.normal(for_penalty, (N, 2, A))
    actor = new.actor.net  # the actor goes first

    def critic_loss(critic):
        total = 0.0
        for i, s in enumerate(batch.observation):
            after = batch.next_observation[i]
            future = [
                q_bar(state.target, 0, after, sac_action(actor, 0, after, next_noise[i, k]), 0.75) for k in range(2)
            ]
            y = batch.reward[i] + agent.discount * batch.mask[i] * max(future)
            for c in range(3):
                total += (q_value(critic, c, 0, s, batch.action[i]) - y) ** 2 / N
                best = jnp.stack(
                    [q_value(critic, c, 0, s, sac_action(actor, 0, s, unlogged[i, k])) for k in range(2)]
                ).max()
                for k in range(3):
                    total += 2.0 * jnp.maximum(best - q_value(critic, k, 0, s, batch.action[i]), 0) ** 2 / N / 9
        return total

    np.testing.assert_allclose(metrics["critic_loss"], critic_loss(state.critic.net), rtol=1e-4)
    assert_gradient(new.critic, jax.grad(critic_loss)(state.critic.net))


@pytest.mark.parametrize(
    "agent", [small(BC, behavior_components=3), small(BCOLSAC, budget=1)], ids=["mixture", "bcol-sac"]
)
def test_behaviour_is_maximum_likelihood(batch, agent):
    state = make(agent)
    new, metrics = step(agent, state, batch)

    def loss(behavior):
        return -sum(log_likelihood(behavior, s, a) for s, a in zip(batch.observation, batch.action, strict=True)) / N

    np.testing.assert_allclose(metrics["behavior_loss"], loss(state.behavior.net), rtol=1e-4)
    assert_gradient(new.behavior, jax.grad(loss)(state.behavior.net))


def test_the_actor_rate_decays_as_a_cosine():
    agent = BCOLSAC(actor_lr=2.0, actor_schedule="cosine")
    rates = [float(agent.actor_rate(Clock(jnp.asarray(t), jnp.asarray(100)))) for t in (0, 50, 100)]
    np.testing.assert_allclose(rates, [2.0, 1.0, 0.0], atol=1e-6)


@pytest.mark.parametrize("agent_class", [BCOLSAC, BCOLTD3, OfflineSAC, OfflineTD3, BC, TD3BC, CDC])
def test_bf16_is_near_float32_and_keeps_float32_weights(batch, agent_class):
    exact, rough = (small(agent_class), replace(small(agent_class), precision="bf16"))
    state = make(exact)
    (_, a), (new, b) = step(exact, state, batch), step(rough, state, batch)
    for name in a:
        np.testing.assert_allclose(a[name], b[name], rtol=0.1, atol=0.1)
    assert {x.dtype.name for x in jax.tree.leaves(new)} <= {"float32", "int32"}


def test_presets_are_the_papers():
    assert (BCOLSAC().budget, BCOLSAC().omega, BCOLSAC().hidden) == (10, 10.0, (256, 256, 256))
    maze = BCOLSAC.preset("antmaze")
    assert (maze.budget, maze.omega, maze.actor_lr, maze.actor_schedule, maze.std) == (50, 0.0, 1e-4, "cosine", "free")
    assert (BCOLTD3().budget, BCOLTD3().omega, BCOLTD3().normalize_states) == (50, 10.0, True)
    assert BCOLTD3.preset("antmaze").omega == 0.0
    assert (TD3BC().alpha, TD3BC.preset("antmaze").alpha) == (2.5, 3.0)


def test_an_actor_at_its_bounds_still_has_a_gradient():
    for mean in (5.0, 20.0, 200.0):
        slope = jax.grad(lambda x: jnp.tanh(squash_mean(x)))(jnp.float32(mean))
        assert slope > 1e-9
        assert jnp.tanh(squash_mean(jnp.float32(mean))) > 0.9993
    inside = jnp.linspace(-4, 4, 9)
    np.testing.assert_array_equal(squash_mean(inside), inside)
