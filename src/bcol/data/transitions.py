"""From logged rows to (s, a, r, s', a', mask): the one type that training sees.

The successor of row i is row i+1 of the raw log, and so is its action: both are taken *before* any row is
dropped. A row is kept if the world ended there (its successor is masked) or if its successor is known; so
every row with mask 1 has a true s' and a true a'. The last row of a timed-out episode has no a' and is
dropped.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float32, Float64, Int32

from bcol.data.log import Log, bad_values, episode_ends
from bcol.data.tasks import Task
from bcol.errors import InputError


@dataclass(frozen=True)
class Normalization:
    """Observations were replaced by (observation - mean) / std; `std` already holds the epsilon."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True)
class Spec:
    """What a policy must know about the data it came from; goes into the run folder as JSON.

    Attributes:
        observation_dim: numbers in an observation.
        action_dim: numbers in an action; None if the actions are discrete.
        num_actions: how many discrete actions there are; None if they are continuous.
        action_low: lower bound of each action dimension (empty if discrete).
        action_high: upper bound of each.
        normalization: how observations were normalised; None if they were not.
        source: the name or path the data was loaded from.
        checksum: SHA-256 of the transitions as they are, after all transformations.
        transformations: what was done to the data, in order, with parameters.
        task: the task's name, if known.
        env_id: the environment to score policies in, if known.
        reference: the returns that score 0 and 100, if known.
        episode_limit: steps after which an episode times out, if known.
    """

    observation_dim: int
    action_dim: int | None
    num_actions: int | None
    action_low: tuple[float, ...]
    action_high: tuple[float, ...]
    normalization: Normalization | None
    source: str
    checksum: str
    transformations: tuple[dict[str, Any], ...] = ()
    task: str | None = None
    env_id: str | None = None
    reference: tuple[float, float] | None = None
    episode_limit: int | None = None

    @property
    def discrete(self) -> bool:
        """Whether the actions are integers."""
        return self.num_actions is not None

    def to_json(self) -> str:
        """The spec as JSON; `Spec.from_json` gives back an equal one."""
        return json.dumps(asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str) -> "Spec":
        """The spec that `to_json` wrote."""
        try:
            fields = json.loads(text)
            for name in ("action_low", "action_high", "transformations", "reference"):
                fields[name] = None if fields[name] is None else tuple(fields[name])
            if fields["normalization"] is not None:
                stats = fields["normalization"]
                fields["normalization"] = Normalization(tuple(stats["mean"]), tuple(stats["std"]))
            return cls(**fields)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"not a data spec ({error}); give the text that Spec.to_json wrote") from error


@dataclass(frozen=True, eq=False)
class Transitions:
    """Rows ready for training: float32, contiguous, one copy away from the accelerator.

    Where `mask` is 0 there is no future, and `next_observation` and `next_action` are placeholders.

    Attributes:
        observation: s.
        action: a; int32 [rows] if discrete.
        reward: r.
        next_observation: s'.
        next_action: a', the action that was logged in s'.
        mask: 1 where the value of s' counts, 0 at terminals.
        episode: the episode of each row, non-decreasing; it indexes the two arrays below.
        episode_return: the sum of each episode's rewards, dropped rows included.
        episode_length: the number of each episode's rows, dropped rows included.
        draft: the spec but for its checksum, which `spec` adds when first asked.
    """

    observation: Float32[np.ndarray, "rows obs"]
    action: Float32[np.ndarray, "rows act"] | Int32[np.ndarray, " rows"]
    reward: Float32[np.ndarray, " rows"]
    next_observation: Float32[np.ndarray, "rows obs"]
    next_action: Float32[np.ndarray, "rows act"] | Int32[np.ndarray, " rows"]
    mask: Float32[np.ndarray, " rows"]
    episode: Int32[np.ndarray, " rows"]
    episode_return: Float64[np.ndarray, " episodes"]
    episode_length: Int32[np.ndarray, " episodes"]
    draft: Spec

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.reward)

    @property
    def first_rows(self) -> np.ndarray:
        """The row each episode starts in (episodes whose only row was dropped have none)."""
        return np.flatnonzero(np.diff(self.episode, prepend=-1))

    @cached_property
    def spec(self) -> Spec:
        """Dimensions, bounds, normalisation, source, checksum and what was done to the data."""
        digest = hashlib.sha256()
        for name in ("observation", "action", "reward", "next_observation", "next_action", "mask", "episode"):
            array = getattr(self, name)
            digest.update(f"{name} {array.dtype} {array.shape};".encode())
            digest.update(array)
        return replace(self.draft, checksum=f"sha256:{digest.hexdigest()}")


def pair(log: Log, task: Task | None = None) -> Transitions:
    """Pair every usable row with its successor.

    Args:
        log: rows as read; values that training cannot use raise an `InputError` with the row.
        task: what is known about the data: action bounds, episode limit, whether terminals end episodes.
    """
    log = _with_bounds(log, task)
    for what, rows in bad_values(log):
        raise InputError(
            f"{log.source}: {what} at row {rows[0]} ({len(rows)} rows in all); "
            "`bcol data check` lists them, mend or drop them"
        )
    ends = episode_ends(log, task)
    keep = log.terminals | ~ends
    if not keep.any():
        raise InputError(f"{log.source}: no row has a successor, so nothing can be learned; record longer episodes")
    starts = np.flatnonzero(np.concatenate([[True], ends[:-1]]))
    episode = np.cumsum(ends, dtype=np.int32) - ends
    after = log.next_observations
    return Transitions(
        observation=_rows(log.observations, keep),
        action=_rows(log.actions, keep),
        reward=_rows(log.rewards, keep),
        next_observation=_rows(after, keep) if after is not None else _successors(log.observations, keep),
        next_action=_successors(log.actions, keep),
        mask=_rows(1 - log.terminals.astype(np.float32), keep),
        episode=_rows(episode, keep),
        episode_return=np.add.reduceat(log.rewards, starts, dtype=np.float64),
        episode_length=np.diff(starts, append=len(log)).astype(np.int32),
        draft=_draft(log, task),
    )


def _rows(array: np.ndarray, keep: np.ndarray) -> np.ndarray:
    return array if keep.all() else np.compress(keep, array, axis=0)


def _successors(array: np.ndarray, keep: np.ndarray) -> np.ndarray:
    # Only a terminal can be the last row; what follows it is masked, so it stands for itself.
    return np.take(array, np.flatnonzero(keep) + 1, axis=0, mode="clip")


def _with_bounds(log: Log, task: Task | None) -> Log:
    """The log with the bounds its actions must keep, as declared, else as its task or its values say."""
    if log.discrete:
        return log if log.num_actions is not None else replace(log, num_actions=max(int(log.actions.max()) + 1, 1))
    if log.action_low is not None:
        return log
    dims = log.actions.shape[1:]
    low, high = np.full(dims, -1, np.float32), np.full(dims, 1, np.float32)
    if task is None and (log.actions.min() < -1 or log.actions.max() > 1):
        low, high = log.actions.min(axis=0), log.actions.max(axis=0)
    return replace(log, action_low=low, action_high=high)


def _draft(log: Log, task: Task | None) -> Spec:
    return Spec(
        observation_dim=log.observations.shape[1],
        action_dim=None if log.discrete else log.actions.shape[1],
        num_actions=log.num_actions,
        action_low=() if log.action_low is None else tuple(log.action_low.tolist()),
        action_high=() if log.action_high is None else tuple(log.action_high.tolist()),
        normalization=None,
        source=log.source,
        checksum="",
        task=None if task is None else task.name,
        env_id=log.env_id if task is None else task.env_id,
        reference=None if task is None else task.reference,
        episode_limit=None if task is None else task.episode_limit,
    )
