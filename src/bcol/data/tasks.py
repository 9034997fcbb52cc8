"""The tasks we know by name: D4RL's files, where their policies are scored, and what scores mean."""

from dataclasses import dataclass, replace
from typing import Any

from bcol.errors import InputError

D4RL_BASE = "http://rail.eecs.berkeley.edu/datasets/offline_rl"
"""Where D4RL's authors serve their files; `BCOL_MIRRORS` or `mirrors=` name other places, laid out alike."""


@dataclass(frozen=True)
class Task:
    """A named dataset and the world its policies are scored in.

    Attributes:
        name: as D4RL calls it.
        file: the file, relative to the base address (and to the cache folder).
        env_id: the Gymnasium environment that scores policies. D4RL's simulator is gym -v2, succeeded by
            -v4; -v5 changed rewards and friction.
        reference: the returns that score 0 and 100.
        episode_limit: steps after which an episode times out.
        reward_shift: added to every reward before training (AntMaze: -1, so that shorter is better).
        ends_at_terminal: False where recording went on after terminals: AntMaze files label rows at the goal
            afterwards, in the middle of trajectories that only time-outs end.
        caveat: what is known to be wrong with the released file.
    """

    name: str
    file: str
    env_id: str
    reference: tuple[float, float]
    episode_limit: int
    reward_shift: float = 0.0
    ends_at_terminal: bool = True
    caveat: str | None = None


_MUJOCO = {
    # robot: (environment, returns that score 0 and 100)
    "halfcheetah": ("HalfCheetah-v4", (-280.178953, 12135.0)),
    "hopper": ("Hopper-v4", (-20.272305, 3234.3)),
    "walker2d": ("Walker2d-v4", (1.629008, 4592.3)),
}
_ANTMAZE = {
    # data: (maze, how D4RL's files call the maze, starts vary, goals vary)
    "umaze": ("umaze", "u-maze", False, False),
    "umaze-diverse": ("umaze", "u-maze", True, True),
    "medium-play": ("medium", "big-maze", True, False),
    "medium-diverse": ("medium", "big-maze", True, True),
    "large-play": ("large", "hardest-maze", True, False),
    "large-diverse": ("large", "hardest-maze", True, True),
}
_ANTMAZE_V0 = (
    "D4RL's AntMaze v0 files carry time-out flags that do not fit their trajectories "
    "(every 999 rows where trajectories have 1001); prefer the v2 file"
)


def _mujoco_file(robot: str, kind: str, version: int) -> str:
    if version > 0:
        return f"gym_mujoco_v{version}/{robot}_{kind.replace('-', '_')}-v{version}.hdf5"
    if kind == "medium-replay":  # called "mixed" then, and walker2d "walker"
        return f"gym_mujoco/{'walker' if robot == 'walker2d' else robot}_mixed.hdf5"
    return f"gym_mujoco/{robot}_{kind.replace('-', '_')}.hdf5"


def _registry() -> dict[str, Task]:
    tasks = []
    for version in (2, 1, 0):
        for robot, (env_id, reference) in _MUJOCO.items():
            for kind in ("medium", "medium-replay", "medium-expert"):
                name = f"{robot}-{kind}-v{version}"
                tasks.append(Task(name, _mujoco_file(robot, kind, version), env_id, reference, 1000))
    for version, folder, ending in ((2, "ant_maze_v2", "_fixed"), (0, "ant_maze_new", "")):
        for kind, (maze, label, starts, goals) in _ANTMAZE.items():
            file = f"{folder}/Ant_maze_{label}_noisy_multistart_{starts}_multigoal_{goals}_sparse{ending}.hdf5"
            tasks.append(
                Task(
                    f"antmaze-{kind}-v{version}",
                    file,
                    f"bcol/AntMaze-{maze}-v0",
                    (0.0, 1.0),
                    700 if maze == "umaze" else 1000,
                    reward_shift=-1.0,
                    ends_at_terminal=False,
                    caveat=_ANTMAZE_V0 if version == 0 else None,
                )
            )
    return {task.name: task for task in tasks}


TASKS: dict[str, Task] = _registry()
"""Every task by name."""


def _forged() -> dict[str, Task]:
    """What `bcol.forge` makes: like D4RL's newest tasks, but for the name, the file and what is wrong with it."""
    tasks = {}
    for task in TASKS.values():
        kind = task.name.removesuffix("-v2")
        if kind == task.name:
            continue
        names = [kind] if not kind.endswith("-medium") else [kind, f"d4rl-{kind}", f"d4rl-{kind[:-6]}expert"]
        for name in names:
            tasks[f"forge/{name}"] = replace(task, name=f"forge/{name}", file=f"forge/{name}.hdf5")
    return tasks


FORGED: dict[str, Task] = _forged()
"""Every dataset that can be made here, by name; `file` is relative to the cache folder."""

REFERENCES: dict[str, tuple[float, float]] = {task.env_id: task.reference for task in TASKS.values()}
"""The returns that score 0 and 100 in each environment."""


def task_of_file(filename: str) -> Task | None:
    """The task whose file has this name (D4RL's own, or the task's name with any ending), if any."""
    for task in TASKS.values():
        if filename == task.file.rsplit("/", 1)[1] or filename.rsplit(".", 1)[0] == task.name:
            return task
    return None


def normalized_score(task_or_env: str, episode_return: Any) -> Any:
    """D4RL's score, 100 (R - min) / (max - min), of a return or an array of them.

    Args:
        task_or_env: a task's name or an environment's id.
        episode_return: R, the sum of an episode's untransformed rewards.
    """
    if task_or_env in TASKS:
        low, high = TASKS[task_or_env].reference
    elif task_or_env in REFERENCES:
        low, high = REFERENCES[task_or_env]
    else:
        raise InputError(
            f"no reference returns for {task_or_env!r}; known: {', '.join(REFERENCES)} and `bcol data list`"
        )
    return 100.0 * (episode_return - low) / (high - low)
