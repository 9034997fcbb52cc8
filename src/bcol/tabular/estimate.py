"""From logged episodes to the empirical MDP and behaviour."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from jaxtyping import Bool, Float, Int

from bcol.errors import InputError
from bcol.tabular.mdp import MDP

Unvisited = Literal["pessimistic", "optimistic", "refuse"]
"""What a decision that was never logged leads to: the worst, the best, or an error."""


class Episode(NamedTuple):
    """One logged episode of T decisions.

    Attributes:
        states: T+1 state indices, the last one reached but not acted in.
        actions: T action indices.
        rewards: T rewards.
        terminal: whether the last state ended the episode, rather than a time limit or the end of the log.
    """

    states: Sequence[int] | Int[np.ndarray, " T+1"]
    actions: Sequence[int] | Int[np.ndarray, " T"]
    rewards: Sequence[float] | Float[np.ndarray, " T"]
    terminal: bool = True


@dataclass(frozen=True)
class Estimate(MDP):
    """The maximum-likelihood MDP of a log.

    Attributes:
        counts: how often each decision was logged, [S, A].
        unvisited: decisions never logged in states that do not end the episode, [S, A].
        unknown: the added absorbing state that unvisited decisions lead to; None if there are none.
    """

    counts: Int[np.ndarray, "S A"]
    unvisited: Bool[np.ndarray, "S A"]
    unknown: int | None


def estimate(
    episodes: Iterable[Episode | tuple[Any, ...]],
    *,
    n_states: int | None = None,
    n_actions: int | None = None,
    unvisited: Unvisited = "pessimistic",
) -> Estimate:
    """Count logged episodes into P, r, mu and P_0.

    States that end an episode become absorbing and pay nothing. A decision that was never logged has no
    estimate, so one is chosen for it: by default ("pessimistic") it leads to an added absorbing state, the last
    one, that pays the lowest logged reward for ever, so that no plan goes there unless everything is as bad;
    "optimistic" pays the highest logged reward for ever instead; "refuse" raises an error that names the first
    such decision. mu(a|s) is 0 for it either way. In states without any logged decision mu is uniform.

    Args:
        episodes: `Episode`s, or plain tuples (states, actions, rewards[, terminal]).
        n_states: states are 0..n_states-1; by default up to the largest one logged.
        n_actions: the same for actions.
        unvisited: what decisions never logged lead to.

    Raises:
        InputError: an empty log, an index out of range, lengths that disagree, a reward that is not finite, or a
            state that both ends one episode and is acted in elsewhere.
    """
    if unvisited not in ("pessimistic", "optimistic", "refuse"):
        raise InputError(f"unvisited must be 'pessimistic', 'optimistic' or 'refuse': got {unvisited!r}")
    log = [_checked(episode, i) for i, episode in enumerate(episodes)]
    if not log:
        raise InputError("episodes is empty: at least one logged episode is needed")
    s = np.concatenate([e.states[:-1] for e in log])
    a = np.concatenate([e.actions for e in log])
    r = np.concatenate([e.rewards for e in log])
    s_next = np.concatenate([e.states[1:] for e in log])
    n_s = _size(n_states, int(max(s.max(), s_next.max())), "n_states")
    n_a = _size(n_actions, int(a.max()), "n_actions")

    counts = np.zeros((n_s, n_a), np.int64)
    np.add.at(counts, (s, a), 1)
    ends = np.zeros(n_s, bool)
    for i, episode in enumerate(log):
        last = episode.states[-1]
        if episode.terminal and counts[last].any():
            raise InputError(
                f"state {last} ends episode {i} but is acted in elsewhere: give ends of episodes a state of their own"
            )
        ends[last] |= bool(episode.terminal)
    missing = (counts == 0) & ~ends[:, None]
    if unvisited == "refuse" and missing.any():
        state, action = (int(i) for i in np.argwhere(missing)[0])
        raise InputError(
            f"state {state}, action {action} was never logged ({missing.sum()} such pairs): "
            "choose unvisited='pessimistic' or 'optimistic'"
        )

    unknown = n_s if missing.any() else None
    size = n_s + (unknown is not None)
    counts, missing = (np.pad(x, ((0, size - n_s), (0, 0))) for x in (counts, missing))
    absorbing = np.pad(ends, (0, size - n_s), constant_values=True)
    total_reward = np.zeros((size, n_a))
    np.add.at(total_reward, (s, a), r)
    reward = total_reward / np.maximum(counts, 1)
    if unknown is not None:
        reward[missing | (np.arange(size) == unknown)[:, None]] = r.min() if unvisited == "pessimistic" else r.max()

    pair = np.arange(size * n_a)
    stay = pair[np.repeat(absorbing, n_a)]
    rows = np.concatenate([s * n_a + a, stay, pair[missing.ravel()]])
    columns = np.concatenate([s_next, stay // n_a, np.full(missing.sum(), size - 1)])
    transition = sp.csr_array((np.ones(len(rows)), (rows, columns)), shape=(size * n_a, size))
    transition.data /= np.repeat(transition.sum(axis=1), np.diff(transition.indptr))

    visits = counts.sum(axis=1, keepdims=True)
    behavior = np.where(visits > 0, counts / np.maximum(visits, 1), 1 / n_a)
    initial = np.bincount([e.states[0] for e in log], minlength=size) / len(log)
    return Estimate(transition, reward, behavior, initial, counts, missing, unknown)


def _checked(episode: Any, i: int) -> Episode:
    """The episode with arrays for sequences, or InputError that names it and the step."""
    if not isinstance(episode, tuple) or not 3 <= len(episode) <= 4:
        raise InputError(f"episodes[{i}] must be an Episode or a tuple (states, actions, rewards[, terminal])")
    states, actions, rewards = (np.asarray(x) for x in episode[:3])
    if len(actions) == 0 or states.shape != (len(actions) + 1,) or rewards.shape != actions.shape:
        raise InputError(
            f"episodes[{i}] must have T >= 1 actions, T rewards and T+1 states: "
            f"got {actions.size}, {rewards.size} and {states.size}"
        )
    for name, index in (("states", states), ("actions", actions)):
        if index.dtype.kind not in "iu" or index.min() < 0:
            raise InputError(f"episodes[{i}].{name} must be whole numbers, 0 or more: got {index.tolist()[:5]}...")
    if rewards.dtype.kind not in "biuf" or not np.isfinite(rewards).all():
        step = int(np.argmin(np.isfinite(rewards))) if rewards.dtype.kind == "f" else 0
        raise InputError(f"episodes[{i}].rewards must be finite numbers: step {step} is {rewards[step]!r}")
    return Episode(states, actions, rewards.astype(float), bool(episode[3]) if len(episode) == 4 else True)


def _size(declared: int | None, largest: int, name: str) -> int:
    if declared is not None and declared <= largest:
        raise InputError(f"{name} must exceed every index in the log: got {declared}, but {largest} was logged")
    return largest + 1 if declared is None else declared
