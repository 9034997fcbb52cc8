"""Logs made by hand, and the genuine D4RL files, where they are."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bcol.data import Log, make_log

GENUINE = Path(__file__).parents[2].parent / "shared" / "data"


def genuine(name: str) -> Path:
    path = GENUINE / name
    if not path.exists():
        pytest.skip(f"no genuine file {name}")
    return path


def rows(text: str, **more: Any) -> Any:
    """A log with one row per letter: s step, T terminal, O time-out, B both, G unmarked time-out.

    Observations count up by one within an episode and jump by 100 between episodes; row i's action is i/100
    and its reward i. With "G" in the text, next_observations are stored; otherwise only if asked for.
    """
    observation, after, now = [], [], 0.0
    for letter in text:
        observation.append([now, -now])
        after.append([now + 1, -now - 1])
        now = now + 1 if letter == "s" else np.floor(now / 100) * 100 + 100
    count = np.arange(len(text))
    fields: dict[str, Any] = {
        "observations": np.array(observation, np.float32),
        "actions": (count / 100).astype(np.float32)[:, None],
        "rewards": count.astype(np.float32),
        "terminals": np.array([letter in "TB" for letter in text]),
        "timeouts": np.array([letter in "OB" for letter in text]),
        "next_observations": np.array(after, np.float32) if "G" in text else None,
    }
    if more.pop("stored_next", False):
        fields["next_observations"] = np.array(after, np.float32)
    return make_log(**{**fields, **more})


def fields_of(log: Log) -> dict[str, Any]:
    names = ("observations", "actions", "rewards", "terminals", "timeouts", "next_observations")
    return {name: getattr(log, name) for name in names if getattr(log, name) is not None}


def assert_same(left: Any, right: Any) -> None:
    """Two logs, or two Transitions, hold the same numbers."""
    for name, value in vars(left).items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(value, getattr(right, name), err_msg=name)
