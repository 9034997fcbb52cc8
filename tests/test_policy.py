import subprocess
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bcol import BC, BCOLSAC, BCOLTD3, CDC, InputError, OfflineSAC, Policy, nets
from bcol.data.transitions import Normalization, Spec
from bcol.policy import Rule

SPEC = Spec(3, 2, None, (-2.0, 0.0), (2.0, 1.0), None, "test", "sha256:0")


def make_policy(agent, spec=SPEC, seed=0):
    state = agent.init(np.random.default_rng(seed), 3, 2)
    # Larger weights than at the start: values then differ enough for decisions to differ.
    networks = jax.tree.map(lambda x: np.asarray(2 * x, np.float32), agent.deployed(state))
    return Policy(spec, Rule(**agent.policy()), networks)


def small(agent_class, **options):
    return agent_class(hidden=(16, 16), **options)


@pytest.mark.parametrize("follow", ["best", "mode", "sample"])
@pytest.mark.parametrize("components", [1, 3])
def test_numpy_decides_as_jax_does(follow, components):
    """The same rule with JAX arrays, for every budget left, on the same random draws."""
    policy = make_policy(small(BCOLSAC, budget=3, follow=follow, behavior_components=components))
    on_device = jax.tree.map(jnp.asarray, policy.networks)
    rows = np.random.default_rng(1).normal(size=(40, 3)).astype(np.float32)
    left = np.arange(40) % 4
    policy.reset(40, left, seed=5)
    candidates = policy._candidates(rows)
    policy.reset(40, left, seed=5)
    decision = policy.act(rows)

    low, high = np.array(SPEC.action_low), np.array(SPEC.action_high)
    for i in range(40):
        b, s = int(left[i]), jnp.asarray(rows[i : i + 1])

        def q(action, head, s=s):
            x = nets.features(on_device["critic"], s, jnp.asarray(action)[None, None])
            return float(nets.mix(nets.all_heads(on_device["critic"], x), policy.rule.min_weight)[0, 0, head])

        values = [q(a, b) for a in candidates[i]]
        action, value = candidates[i][int(np.argmax(values))], max(values)
        np.testing.assert_allclose(decision.follow_value[i], value, atol=1e-5)
        if b > 0:
            proposal = np.tanh(np.asarray(nets.gaussian(on_device["actor"], s)[0])[0, b - 1])
            np.testing.assert_allclose(decision.deviate_value[i], q(proposal, b - 1), atol=1e-5)
            if abs(q(proposal, b - 1) - value) > 1e-4:
                assert decision.deviated[i] == (q(proposal, b - 1) > value)
            action = proposal if decision.deviated[i] else action
        else:
            assert not decision.deviated[i]
            assert np.isnan(decision.deviate_value[i])
        np.testing.assert_allclose(decision.action[i], low + (action + 1) * (high - low) / 2, atol=1e-5)
    np.testing.assert_array_equal(decision.budget_left, left - decision.deviated)
    assert 0 < decision.deviated[left > 0].mean() < 1  # both happen, so the test sees both


def test_literal_heads_ask_the_next_head():
    policy = make_policy(small(BCOLSAC, budget=2, heads="literal", follow="mode"))
    rows = np.random.default_rng(1).normal(size=(30, 3)).astype(np.float32)
    policy.reset(30, 1)
    decision = policy.act(rows)
    head_one = np.tanh(nets.gaussian(policy.networks["actor"], rows)[0][:, 1])
    expected = np.array([-2, 0]) + (head_one + 1) * np.array([4, 1]) / 2
    np.testing.assert_allclose(decision.action[decision.deviated], expected[decision.deviated], atol=1e-5)


@given(st.data())
@settings(max_examples=40)
def test_no_sequence_of_inputs_makes_it_overspend(data):
    policy = make_policy(small(BCOLSAC, budget=4), seed=data.draw(st.integers(0, 3)))
    for _ in range(data.draw(st.integers(1, 3))):
        n = data.draw(st.integers(1, 4))
        given_budget = data.draw(st.one_of(st.none(), st.lists(st.integers(0, 4), min_size=n, max_size=n)))
        policy.reset(n, given_budget)
        limit = np.array([4] * n if given_budget is None else given_budget)
        spent = np.zeros(n, int)
        for _ in range(data.draw(st.integers(1, 8))):
            scale = data.draw(st.sampled_from([0.0, 1.0, 1e3, 1e30, float("nan")]))
            rows = np.full((n, 3), scale, np.float32) * np.arange(1, 4, dtype=np.float32)
            try:
                decision = policy.act(rows)
            except InputError:
                continue  # refused before anything was spent
            spent += decision.deviated
            np.testing.assert_array_equal(decision.budget_left, limit - spent)
            assert (spent <= limit).all()


def test_actions_come_out_in_the_environments_units():
    for agent in (small(BCOLSAC), small(BCOLTD3), small(BC), small(OfflineSAC), small(CDC)):
        policy = make_policy(agent)
        policy.reset(200)
        action = policy.act(np.random.default_rng(0).normal(size=(200, 3)) * 10).action
        assert (action >= [-2, 0]).all()
        assert (action <= [2, 1]).all()
        assert action[:, 0].min() < -1.2
        assert action[:, 0].max() > 1.2


def test_normalisation_travels_with_the_policy():
    plain = make_policy(small(BC))
    shifted = make_policy(small(BC), replace(SPEC, normalization=Normalization((1.0, 2.0, 3.0), (2.0, 2.0, 2.0))))
    for policy in (plain, shifted):
        policy.reset(1)
    np.testing.assert_allclose(shifted.act([3.0, 2.0, 1.0]).action, plain.act([1.0, 0.0, -1.0]).action, atol=1e-6)


def test_one_observation_gives_a_plain_decision():
    policy = make_policy(small(BCOLSAC, budget=2))
    policy.reset()
    decision = policy.act(np.zeros(3))
    assert decision.action.shape == (2,)
    assert decision.deviated.shape == decision.gain.shape == ()
    assert decision.gain == decision.deviate_value - decision.follow_value


def test_unbudgeted_policies_say_so():
    policy = make_policy(small(OfflineSAC))
    policy.reset(2)
    decision = policy.act(np.zeros((2, 3)))
    assert decision.budget_left is None
    assert decision.deviated.all()
    cloned = make_policy(small(BC))
    cloned.reset(2)
    assert not cloned.act(np.zeros((2, 3))).deviated.any()
    with pytest.raises(InputError, match="keeps no budget"):
        policy.reset(1, budget=1)


def test_cdc_takes_its_best_sample():
    policy = make_policy(small(CDC))
    rows = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    policy.reset(5, seed=3)
    action = policy._unbudgeted(rows)
    policy.reset(5, seed=3)
    mean, log_std = nets.gaussian(policy.networks["actor"], rows)
    samples = np.tanh(mean + np.exp(log_std) * policy._normal(15, 2))
    best = policy._values(rows, samples)[..., 0].argmax(axis=1)
    np.testing.assert_allclose(action, samples[np.arange(5), best])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: p.act(np.zeros(3)), "call policy.reset"),
        (lambda p: p.reset(0), "n must be"),
        (lambda p: p.reset(2, budget=5), r"budget must lie in 0\.\.2"),
        (lambda p: p.reset(2, budget=-1), r"budget must lie in 0\.\.2"),
        (lambda p: p.reset(2, budget=1.5), "budget must be a whole number"),
        (lambda p: p.reset(2, seed=[1]), "seed must be one number or 2"),
        (lambda p: (p.reset(2), p.act(np.zeros((3, 3)))), r"observation must have shape \[2, 3\]: got \[3, 3\]"),
        (lambda p: (p.reset(1), p.act(np.zeros(4))), r"observation must have shape \[1, 3\]: got \[4\]"),
        (lambda p: (p.reset(1), p.act([0, np.inf, 0])), "observation must be finite: episode 0, column 1 is inf"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(InputError, match=message) as error:
        call(make_policy(small(BCOLSAC, budget=2)))
    assert "\n" not in str(error.value)


def test_loading_and_deciding_needs_no_jax():
    code = """
import sys
import numpy as np
from bcol import Policy, load_policy, evaluate, nets
from bcol.data.transitions import Spec
from bcol.policy import Rule
r = np.random.default_rng(0)
networks = {
    "actor": nets.make_actor(r, 3, 2, (8,), heads=2),
    "critic": nets.make_critic(r, 3, 2, (8,), heads=2),
    "behavior": nets.make_behavior(r, 3, 2, (8,)),
}
policy = Policy(Spec(3, 2, None, (-1.0, -1.0), (1.0, 1.0), None, "", ""), Rule(budget=1), networks)
policy.reset()
policy.act(np.zeros(3))
sys.exit("jax" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
