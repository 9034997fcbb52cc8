"""Minari datasets: read local or downloaded ones, write our own.

A Minari episode has one observation more than it has steps, so the state after the last step is always known.
"""

import warnings
from typing import Any

import numpy as np

from bcol.data.d4rl import Progress
from bcol.data.log import Log, episode_ends, make_log, with_timeouts
from bcol.data.tasks import Task
from bcol.errors import InputError

# Kept in the dataset's metadata when the log had no next_observations: each episode's extra observation is
# then a copy of its last one, and reading back drops it again.
_COPIED = "bcol_last_observation_is_a_copy"
_ENV_ID = "bcol_env_id"


def read_minari(dataset_id: str, *, download: bool = True, progress: Progress | None = None) -> Log:
    """The rows of a Minari dataset; an episode that ends without a terminal ends with a time-out.

    Args:
        dataset_id: as Minari calls it, such as `mujoco/hopper/medium-v0`.
        download: fetch it through Minari if it is not on this machine.
        progress: told how far reading is.
    """
    dataset = _load(dataset_id, download)
    source = f"minari:{dataset_id}"
    if dataset.total_episodes == 0:
        raise InputError(f"{source}: has no episodes; record at least one")
    parts: dict[str, list[np.ndarray]] = {
        name: [] for name in ("observations", "next_observations", "actions", "rewards", "terminals", "timeouts")
    }
    for index, episode in enumerate(dataset.iterate_episodes()):
        steps = len(episode.rewards)
        if steps == 0:
            raise InputError(f"{source}: episode {episode.id} has no steps; delete it from the dataset")
        seen = _matrix(source, "observations", episode.observations)
        if len(seen) != steps + 1:
            raise InputError(
                f"{source}: episode {episode.id} has {len(seen)} observations for {steps} steps; "
                "it needs one more than steps"
            )
        truncated = np.asarray(episode.truncations, dtype=bool).copy()
        if not episode.terminations[-1]:
            truncated[-1] = True
        parts["observations"].append(seen[:-1])
        parts["next_observations"].append(seen[1:])
        parts["actions"].append(_matrix(source, "actions", episode.actions))
        parts["rewards"].append(episode.rewards)
        parts["terminals"].append(np.asarray(episode.terminations, dtype=bool))
        parts["timeouts"].append(truncated)
        if progress is not None:
            progress((index + 1) / dataset.total_episodes)
    # Joined one by one, each list let go before the next: the peak is one array above the final ones.
    joined: dict[str, Any] = {name: np.concatenate(parts.pop(name)) for name in tuple(parts)}
    about = dataset.storage.metadata
    if about.get(_COPIED):
        del joined["next_observations"]
    spec = dataset.env_spec
    return make_log(
        **joined,
        source=source,
        env_id=spec.id if spec is not None else about.get(_ENV_ID),
        **_declared(dataset.action_space),
    )


def write_minari(
    dataset_id: str,
    log: Log,
    *,
    task: Task | None = None,
    author: str = "bcol",
    description: str = "Written by bcol.",
) -> None:
    """Write rows as a new local Minari dataset.

    Args:
        dataset_id: such as `hopper/forged-v0`; it must not exist yet.
        log: the rows.
        task: what is known about where its episodes end.
        author: for the dataset's metadata.
        description: for the dataset's metadata.
    """
    minari = _minari()
    from gymnasium import spaces
    from minari.data_collector import EpisodeBuffer

    if dataset_id in minari.list_local_datasets():
        raise InputError(f"minari:{dataset_id} exists already; choose another name or delete it with `minari delete`")
    log = with_timeouts(log, task)
    assert log.timeouts is not None
    last = np.flatnonzero(episode_ends(log, task))
    after = log.observations if log.next_observations is None else log.next_observations
    buffers = []
    for start, end in zip(np.append(0, last[:-1] + 1), last, strict=True):
        rows = slice(start, end + 1)
        buffers.append(
            EpisodeBuffer(
                observations=np.concatenate([log.observations[rows], after[end : end + 1]]),
                actions=log.actions[rows].astype(np.int64) if log.discrete else log.actions[rows],
                rewards=log.rewards[rows],
                terminations=log.terminals[rows],
                truncations=log.timeouts[rows],
            )
        )
    if log.discrete:
        count = int(log.actions.max()) + 1 if log.num_actions is None else log.num_actions
        action_space: Any = spaces.Discrete(count)
    else:
        low = log.actions.min(axis=0) if log.action_low is None else log.action_low
        high = log.actions.max(axis=0) if log.action_high is None else log.action_high
        action_space = spaces.Box(low, high, dtype=np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Minari warns about every metadata field that is left out
        dataset = minari.create_dataset_from_buffers(
            dataset_id,
            buffers,
            observation_space=spaces.Box(-np.inf, np.inf, log.observations.shape[1:], dtype=np.float32),
            action_space=action_space,
            author=author,
            description=description,
        )
    notes: dict[str, Any] = {_COPIED: log.next_observations is None}
    if log.env_id is not None:
        notes[_ENV_ID] = log.env_id
    dataset.storage.update_metadata(notes)


def _minari() -> Any:
    try:
        import minari
    except ImportError as error:
        raise InputError("Minari datasets need minari; run pip install 'bcol[minari]'") from error
    return minari


def _load(dataset_id: str, download: bool) -> Any:
    minari = _minari()
    try:
        return minari.load_dataset(dataset_id, download=download)
    except Exception as error:  # no network, no such dataset, damaged files: Minari has no error type of its own
        reason = " ".join(str(error).split())[:120]
        raise InputError(
            f"minari:{dataset_id} cannot be loaded ({reason}); "
            "check the name with `minari list local` or `minari list remote`"
        ) from error


def _matrix(source: str, name: str, value: Any) -> np.ndarray:
    """Rows of one space's values; the parts of a dict are set side by side in the order of its keys."""
    if isinstance(value, dict):
        return np.concatenate([_matrix(source, f"{name}.{key}", value[key]) for key in sorted(value)], axis=1)
    array = np.asarray(value)
    if array.dtype.kind not in "biuf" or array.ndim > 2:
        raise InputError(f"{source}: {name} are {array.dtype} {list(array.shape)}; only vectors of numbers can be used")
    if array.ndim == 1 and array.dtype.kind not in "iu":
        return array[:, None]
    return array


def _declared(space: Any) -> dict[str, Any]:
    """What an action space declares, as far as it is finite."""
    if hasattr(space, "n"):
        return {"num_actions": int(space.n)}
    low, high = getattr(space, "low", None), getattr(space, "high", None)
    if low is None or high is None or not (np.isfinite(low).all() and np.isfinite(high).all()):
        return {}
    return {"action_bounds": (np.ravel(low), np.ravel(high))}
