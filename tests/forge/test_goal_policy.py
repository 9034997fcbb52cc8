"""The goal-reaching policy: features, arithmetic, files."""

from pathlib import Path

import numpy as np
import pytest

from bcol.errors import InputError
from bcol.forge.goal_policy import GoalPolicy, goal_arrays, goal_features, load_goal_policy
from bcol.nets import gaussian, make_actor


def random_arrays(hidden: int = 16) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    sizes = {
        "fc0": (hidden, 29),
        "fc1": (hidden, hidden),
        "last_fc": (8, hidden),
        "last_fc_log_std": (8, hidden),
    }
    arrays = {f"{name}.weight": rng.normal(size=size) * 0.1 for name, size in sizes.items()}
    arrays |= {f"{name}.bias": rng.normal(size=size[0]) * 0.1 for name, size in sizes.items()}
    return {name: array.astype(np.float32) for name, array in arrays.items()}


def test_features_drop_the_place_and_scale_the_direction() -> None:
    observation = np.arange(29.0)
    features = goal_features(observation, np.array([-0.3, 0.4]))
    np.testing.assert_allclose(features[:27], observation[2:])
    np.testing.assert_allclose(features[27:], [-6, 8])
    assert np.isfinite(goal_features(observation, np.zeros(2))).all()


def test_action_equals_the_formula() -> None:
    arrays = random_arrays()
    features = np.random.default_rng(1).normal(size=29)
    action = GoalPolicy.from_arrays(arrays)(features, np.random.default_rng(2))
    hidden = np.maximum(arrays["fc0.weight"] @ features + arrays["fc0.bias"], 0)
    hidden = np.maximum(arrays["fc1.weight"] @ hidden + arrays["fc1.bias"], 0)
    mean = arrays["last_fc.weight"] @ hidden + arrays["last_fc.bias"]
    std = np.exp(arrays["last_fc_log_std.weight"] @ hidden + arrays["last_fc_log_std.bias"])
    expected = np.tanh(mean + std * np.random.default_rng(2).standard_normal(8))
    np.testing.assert_allclose(action, expected, rtol=1e-5)


def test_file_round_trip(tmp_path: Path) -> None:
    arrays = random_arrays()
    np.savez(tmp_path / "policy.npz", **arrays)  # type: ignore[arg-type]
    features = np.ones(29)
    loaded = load_goal_policy(tmp_path / "policy.npz")(features, np.random.default_rng(0))
    np.testing.assert_array_equal(loaded, GoalPolicy.from_arrays(arrays)(features, np.random.default_rng(0)))


def test_bad_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no goal-reaching policy at"):
        load_goal_policy(tmp_path / "none.npz")
    (tmp_path / "text.npz").write_text("not an archive")
    with pytest.raises(InputError, match="with the layers of a goal-reaching policy"):
        load_goal_policy(tmp_path / "text.npz")
    np.save(tmp_path / "one.npy", np.zeros(3))
    with pytest.raises(InputError, match="with the layers of a goal-reaching policy"):
        load_goal_policy(tmp_path / "one.npy")
    with pytest.raises(InputError, match="with the layers of a goal-reaching policy"):
        load_goal_policy(tmp_path)


def test_trained_actors_become_goal_policies(tmp_path: Path) -> None:
    actor = make_actor(np.random.default_rng(0), 29, 8, (16, 16))
    np.savez(tmp_path / "ant.npz", **goal_arrays(actor))  # type: ignore[arg-type]
    policy, features = load_goal_policy(tmp_path / "ant.npz"), np.random.default_rng(1).normal(size=29)
    mean, log_std = gaussian(actor, features[None].astype(np.float32))
    expected = np.tanh(mean[0, 0] + np.exp(log_std[0, 0]) * np.random.default_rng(2).standard_normal(8))
    np.testing.assert_allclose(policy(features, np.random.default_rng(2)), expected, rtol=1e-4)
    assert policy.checksum == GoalPolicy.from_actor(actor).checksum
    with pytest.raises(InputError, match="two hidden layers"):
        GoalPolicy.from_actor(make_actor(np.random.default_rng(0), 29, 8, (16,)))


@pytest.mark.parametrize("name", ["fc0.weight", "fc1.bias", "last_fc.weight"])
def test_bad_arrays(name: str) -> None:
    arrays = random_arrays()
    shorter = {key: array for key, array in arrays.items() if key != name}
    with pytest.raises(InputError, match=f"no array {name}"):
        GoalPolicy.from_arrays(shorter)
    with pytest.raises(InputError, match="has shapes"):
        GoalPolicy.from_arrays(arrays | {name: arrays[name][..., :-1]})
