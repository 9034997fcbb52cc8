"""Worlds we own, as Gymnasium environments. Importing this module makes their ids known to `gymnasium.make`.

Nothing heavy is imported until an environment is made: the registry only holds the name of its class.
"""

import gymnasium

from bcol.envs.maze import MAZES

__all__ = ["register"]


def register() -> None:
    """Make `bcol/AntMaze-umaze-v0`, `-medium-v0` and `-large-v0` known to Gymnasium; safe to call again."""
    for name, maze in MAZES.items():
        env_id = f"bcol/AntMaze-{name}-v0"
        if env_id not in gymnasium.registry:
            gymnasium.register(
                env_id,
                entry_point="bcol.envs.antmaze:AntMazeEnv",
                max_episode_steps=maze.max_steps,
                kwargs={"maze": name},
            )


register()
