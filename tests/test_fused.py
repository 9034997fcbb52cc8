"""The kernels against the plain way, interpreted on a CPU; on a GPU the compiled kernels are tested as well."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bcol.fused import fused_values, obstacle, platform, resolved, route, values
from bcol.kernels import How
from bcol.nets import features, make_critic, one_head

N, S, A = 64, 5, 3
HEADS = {"one": [np.arange(4)], "two": [np.arange(4), np.array([1, 2, 3, 3])], "drawn": [jnp.array([2, 0, 0, 1])]}
# On a GPU, products of float32 are in tf32.
TOLERANCE = 1e-5 if platform() == "cpu" else 3e-2
INTERPRETED = [True] if platform() != "gpu" else [True, False]


def plain(critic, observation, action, heads):
    x = features(critic, observation, action)
    return jnp.stack([one_head(critic, x, h) for h in heads])


def case(layers, width=64, seed=0):
    random = np.random.default_rng(seed)
    critic = make_critic(random, S, A, (width,) * layers, heads=4)
    observation, action = random.normal(size=(N, S)), np.tanh(random.normal(size=(N, 4, A)))
    return jax.tree.map(partial(jnp.asarray, dtype=jnp.float32), (critic, observation, action))


def error(found, wanted):
    return float(jnp.linalg.norm(found - wanted) / jnp.linalg.norm(wanted))


@pytest.mark.parametrize("interpret", INTERPRETED)
@pytest.mark.parametrize("heads", HEADS.values(), ids=HEADS)
@pytest.mark.parametrize("layers", [2, 3])
def test_kernels_agree_with_the_plain_way(layers, heads, interpret):
    critic, observation, action = case(layers)
    weight = jax.random.normal(jax.random.key(1), (len(heads), 2, N, 4))

    def loss(way, critic, action):
        return (way(critic, observation, action, heads) * weight).sum()

    def fused(toward):
        return partial(fused_values, How(64, jnp.float32, toward, interpret))

    assert (
        error(fused("nothing")(critic, observation, action, heads), plain(critic, observation, action, heads))
        < TOLERANCE
    )
    to_critic, to_action = jax.grad(partial(loss, plain), argnums=(0, 1))(critic, action)
    assert error(jax.grad(partial(loss, fused("action")), argnums=1)(critic, action), to_action) < TOLERANCE
    found = jax.grad(partial(loss, fused("weights")))(critic, action)
    for (path, x), y in zip(jax.tree_util.tree_flatten_with_path(found)[0], jax.tree.leaves(to_critic), strict=True):
        assert error(x, y) < TOLERANCE, jax.tree_util.keystr(path)


@pytest.mark.parametrize("interpret", INTERPRETED)
def test_packed_runs_equal_single_runs(interpret):
    cases = [case(3, seed=seed) for seed in range(3)]
    packed = jax.tree.map(lambda *xs: jnp.stack(xs), *cases)

    def climb(critic, observation, action):
        how = How(64, jnp.bfloat16, "action", interpret)
        return jax.grad(lambda action: fused_values(how, critic, observation, action, HEADS["two"]).sum())(action)

    together = jax.vmap(climb)(*packed)
    for one, alone in zip(together, cases, strict=True):
        np.testing.assert_allclose(one, climb(*alone), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("toward", ["nothing", "critic", "action"])
def test_gradients_flow_one_way_only(toward):
    critic, observation, action = case(2)

    def loss(critic, action):
        return values(critic, observation, action, HEADS["one"], precision="float32", toward=toward).sum()

    to_critic, to_action = jax.grad(loss, argnums=(0, 1))(critic, action)
    assert bool(jnp.any(to_action != 0)) == (toward == "action")
    assert any(bool(jnp.any(x != 0)) for x in jax.tree.leaves(to_critic)) == (toward == "critic")


def test_bf16_is_as_rough_as_documented():
    critic, observation, action = case(3, width=256)
    exact = values(critic, observation, action, HEADS["two"], precision="float32", toward="nothing")
    rough = values(critic, observation, action, HEADS["two"], precision="bf16", toward="nothing")
    assert 1e-5 < error(rough, exact) < 1e-2


def test_the_reason_for_the_plain_way_is_said(monkeypatch):
    critic, *_ = case(3)
    if platform() == "cpu":
        assert "GPU" in obstacle(critic, N, "bf16")
        assert resolved("auto") == "float32"
    monkeypatch.setattr("bcol.fused.platform", lambda: "gpu")
    monkeypatch.setattr("bcol.fused.capability", lambda: "8.9")
    assert "Hopper" in obstacle(critic, N, "auto")
    assert "bf16, fused kernels not used: they have been tried on Hopper" in route(critic, N, "auto")
    monkeypatch.setattr("bcol.fused.capability", lambda: "9.0")
    random = np.random.default_rng(0)
    assert obstacle(critic, N, "auto") is None
    assert route(critic, N, "auto") == "bf16, fused kernels"
    assert "tf32" in obstacle(critic, N, "tf32")
    assert "batches" in obstacle(critic, N + 1, "bf16")
    assert "LayerNorm" in obstacle(make_critic(random, S, A, (64, 64), norm="layer"), N, "bf16")
    for hidden in ((64,), (64, 128), (32, 32), (64, 64, 64, 64)):
        assert "hidden layers" in obstacle(make_critic(random, S, A, hidden), N, "bf16")
