"""Worlds we own, as Gymnasium environments. Importing this module makes their ids known to `gymnasium.make`.

Nothing heavy is imported until an environment is made: the registry only holds the name of its class.
"""

import gymnasium

from bcol.envs.maze import MAZES

__all__ = ["register"]


def register() -> None:
    """Make `bcol/Junction-v0`, `bcol/AntMaze-{umaze,medium,large}-v0` and `bcol/AntDirections-v0` known, once."""
    known: dict[str, tuple[str, int, dict[str, str]]] = {
        "bcol/Junction-v0": ("bcol.envs.junction:Junction", 100, {}),
        "bcol/AntDirections-v0": ("bcol.envs.directions:AntDirectionsEnv", 1000, {}),
    }
    for name, maze in MAZES.items():
        known[f"bcol/AntMaze-{name}-v0"] = ("bcol.envs.antmaze:AntMazeEnv", maze.max_steps, {"maze": name})
    for env_id, (entry_point, steps, options) in known.items():
        if env_id not in gymnasium.registry:
            gymnasium.register(env_id, entry_point=entry_point, max_episode_steps=steps, kwargs=options)


register()
