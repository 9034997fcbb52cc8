"""One episode as pictures, with the steps that deviate marked."""

from pathlib import Path
from typing import Any

import numpy as np

from bcol.errors import InputError
from bcol.evaluate import check_environment, make_environment
from bcol.policy import Policy

_MARK = np.array([44, 140, 74], np.uint8)
_MARK_WIDTH = 8
_STRIP_FRAMES = 12


def film(policy: Policy, env: str, path: Path, seed: int = 0, budget: int | None = None) -> list[bool]:
    """Play one episode and save it: a .png strip of a dozen frames, or a .gif of all; deviating frames have a frame.

    Returns:
        Whether each step deviated.
    """
    if path.suffix not in (".png", ".gif"):
        raise InputError(f"frames must end in .png or .gif: got {str(path)!r}")
    check_environment(policy, env)
    world = make_environment(env, render_mode="rgb_array")
    policy.reset(1, budget, seed)
    observation, _ = world.reset(seed=seed)
    frames, deviated, over = [], [], False
    try:
        while not over:
            decision = policy.act(np.reshape(observation, -1))
            frames.append(_marked(world.render(), bool(decision.deviated)))
            deviated.append(bool(decision.deviated))
            observation, _, terminated, truncated, _ = world.step(decision.action.reshape(world.action_space.shape))
            over = terminated or truncated
    finally:
        world.close()
    path.parent.mkdir(parents=True, exist_ok=True)
    _save(frames, deviated, path)
    return deviated


def _marked(frame: Any, deviated: bool) -> np.ndarray:
    frame = np.array(frame, np.uint8)
    if deviated:
        for edge in (np.s_[:_MARK_WIDTH], np.s_[-_MARK_WIDTH:], np.s_[:, :_MARK_WIDTH], np.s_[:, -_MARK_WIDTH:]):
            frame[edge] = _MARK
    return frame


def _save(frames: list[np.ndarray], deviated: list[bool], path: Path) -> None:
    from PIL import Image

    if path.suffix == ".gif":
        first, *rest = (Image.fromarray(frame) for frame in frames)
        first.save(path, save_all=True, append_images=rest, duration=40, loop=0)
        return
    # The steps that deviate come first: they are what one wants to see; the rest is spread evenly.
    evenly = np.linspace(0, len(frames) - 1, min(_STRIP_FRAMES, len(frames))).astype(int)
    spent = np.flatnonzero(deviated)[:_STRIP_FRAMES]
    chosen = sorted({*spent, *evenly[: max(0, _STRIP_FRAMES - len(spent))]})
    Image.fromarray(np.concatenate([frames[i] for i in chosen], axis=1)).save(path)
