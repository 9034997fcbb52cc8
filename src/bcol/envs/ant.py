"""D4RL's ant: the robot of the `ogbench` package with D4RL's contact margins and reset noise."""

from typing import Any

import mujoco
import numpy as np
from jaxtyping import Float

from bcol.errors import InputError

try:
    from ogbench.locomaze.ant import AntEnv
except ModuleNotFoundError as error:
    raise InputError("AntMaze needs the ogbench package: run pip install 'bcol[antmaze]'") from error

RESET_NOISE = 0.1


class Ant(AntEnv):
    """The robot on open ground; worlds that have more in them add it in `furnish`."""

    def __init__(self, render_mode: str | None = None, **kwargs: Any) -> None:
        """Build the world.

        Args:
            render_mode: one of Gymnasium's modes for MuJoCo, or None.
            kwargs: what else Gymnasium's `MujocoEnv` takes, such as `width` and `height`.
        """
        super().__init__(render_mode=render_mode, reset_noise_scale=RESET_NOISE, **kwargs)

    def furnish(self, spec: mujoco.MjSpec) -> None:
        """Add what the world has beside the robot and the floor: nothing."""

    def _initialize_simulation(self) -> tuple[mujoco.MjModel, mujoco.MjData]:
        """Build the model: ogbench's ant, what `furnish` adds, and D4RL's contact margins."""
        spec = mujoco.MjSpec.from_file(self.fullpath)
        self.furnish(spec)
        # MuJoCo up to 3 took the larger margin of two geoms in contact (0.01), 4 adds them (0.02). With all
        # of it on the robot's side both give D4RL's 0.01.
        for geom in spec.worldbody.geoms:
            geom.margin = 0.0
        model = spec.compile()
        model.vis.global_.offwidth = max(model.vis.global_.offwidth, self.width)
        model.vis.global_.offheight = max(model.vis.global_.offheight, self.height)
        return model, mujoco.MjData(model)

    def reset_model(self) -> Float[np.ndarray, "29"]:
        """The robot at the origin, every `qpos` moved by U(-0.1, 0.1) and every `qvel` by 0.1 N(0, 1)."""
        qpos = self.init_qpos + self.np_random.uniform(-RESET_NOISE, RESET_NOISE, self.model.nq)
        qvel = self.init_qvel + RESET_NOISE * self.np_random.standard_normal(self.model.nv)
        # Older MuJoCo did this on its own, and D4RL's first rows show it.
        qpos[3:7] /= np.linalg.norm(qpos[3:7])
        self.set_state(qpos, qvel)
        return self.get_ob()


def upside_down(qpos: Float[np.ndarray, "*rows 15"]) -> Any:
    """Where the torso's z axis points down; the ant does not get up from there."""
    return qpos[..., 4] ** 2 + qpos[..., 5] ** 2 > 0.5
