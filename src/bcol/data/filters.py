"""What the paper and its baselines do to data before training; each is recorded in the spec."""

from dataclasses import replace

import numpy as np

from bcol.data.transitions import Normalization, Spec, Transitions
from bcol.errors import InputError


def top_fraction(data: Transitions, fraction: float | int) -> Transitions:
    """Only the episodes with the highest returns (10%BC: `fraction=0.1`); at least one is kept.

    Episodes are renumbered from 0; the earlier of two equal ones goes first.
    """
    if not 0 < fraction <= 1:
        raise InputError(f"fraction is {fraction}; it must be above 0 and at most 1")
    # Episodes whose only row had no successor have nothing to keep, so they do not count.
    present = np.unique(data.episode)
    count = max(1, int(np.ceil(round(fraction * len(present), 9))))
    best = np.sort(present[np.argsort(-data.episode_return[present], kind="stable")[:count]])
    number = np.full(len(data.episode_return), -1, dtype=np.int32)
    number[best] = np.arange(len(best), dtype=np.int32)
    keep = number[data.episode] >= 0
    rows = {
        name: np.compress(keep, getattr(data, name), axis=0)
        for name in ("observation", "action", "reward", "next_observation", "next_action", "mask")
    }
    return Transitions(
        **rows,
        episode=number[data.episode[keep]],
        episode_return=data.episode_return[best],
        episode_length=data.episode_length[best],
        draft=_noted(data, "top_fraction", fraction=fraction),
    )


def normalize_states(data: Transitions, eps: float | int = 1e-3) -> Transitions:
    """Observations with mean 0 and deviation 1: (s - mean) / (std + eps), the same for next observations.

    The statistics go into the spec and travel with every policy trained on the data.
    """
    if not eps >= 0:
        raise InputError(f"eps is {eps}; it must not be negative")
    if data.draft.normalization is not None:
        raise InputError("the observations are normalised already; normalise once")
    mean = data.observation.mean(axis=0, dtype=np.float64)
    std = data.observation.std(axis=0, dtype=np.float64) + eps
    constant = np.flatnonzero(std == 0)
    if len(constant):
        raise InputError(f"observation column {constant[0]} is constant; normalise with eps above 0")
    stats = Normalization(tuple(mean.astype(np.float32).tolist()), tuple(std.astype(np.float32).tolist()))
    shift, scale = np.array(stats.mean, np.float32), np.array(stats.std, np.float32)
    return replace(
        data,
        observation=(data.observation - shift) / scale,
        next_observation=(data.next_observation - shift) / scale,
        draft=replace(_noted(data, "normalize_states", eps=eps), normalization=stats),
    )


def transform_reward(data: Transitions, *, scale: float | int = 1.0, shift: float | int = 0.0) -> Transitions:
    """Rewards become scale * r + shift, and returns follow (AntMaze: `shift=-1`)."""
    if not (np.isfinite(scale) and np.isfinite(shift) and scale != 0):
        raise InputError(f"scale is {scale} and shift is {shift}; both must be finite, and the scale not 0")
    return replace(
        data,
        reward=np.float32(scale) * data.reward + np.float32(shift),
        episode_return=scale * data.episode_return + shift * data.episode_length,
        draft=_noted(data, "transform_reward", scale=scale, shift=shift),
    )


def _noted(data: Transitions, name: str, **parameters: float | int) -> Spec:
    return replace(data.draft, transformations=(*data.draft.transformations, {"name": name, **parameters}))
