"""Worlds we own, as Gymnasium environments. Importing this module makes their ids known to `gymnasium.make`."""

import gymnasium

if "bcol/Junction-v0" not in gymnasium.registry:
    gymnasium.register("bcol/Junction-v0", entry_point="bcol.envs.junction:Junction", max_episode_steps=100)
