"""`bcol data forge | train-behaviour`, one class each: its fields are the flags."""

from dataclasses import dataclass, fields
from pathlib import Path

import tyro
from rich.console import Console

from bcol.data.tasks import FORGED, REFERENCES
from bcol.errors import InputError
from bcol.nets import Norm


@dataclass(frozen=True)
class Forge:
    """Make datasets here, by D4RL's recipes, without a download. The same command continues what was interrupted.

    A dataset of your own is any name with --env and --policy: as many rows by each policy, sampled.

    examples:
        bcol data forge hopper-medium
        bcol data forge antmaze-umaze antmaze-medium-play --workers 8
        bcol data forge d4rl-hopper-medium --policy hopper_medium-v2.hdf5
        bcol data forge walker2d-medium --rows 20000 --seed 1 --out small.hdf5
        bcol data forge my-robot --env my_package:MyRobot-v0 --policy runs/my-robot/rung_*.safetensors --rows 100000
    """

    names: tyro.conf.Positional[tuple[str, ...]]
    """What to make: names from `bcol data list --contains forge`, with or without `forge/`; or one of your own."""
    env: str | None = None
    """Gymnasium id of the environment, for a dataset of your own."""
    policy: tuple[Path, ...] = ()
    """Files to take policies from, instead of the shipped ones: a D4RL v2 file, or a checkpoint of ours."""
    rows: int | None = None
    """About how many rows, instead of D4RL's number (a million for datasets of your own)."""
    seed: int = 0
    """Seed of all draws."""
    workers: int | None = None
    """Processes; by default one per core. It does not change the data."""
    out: Path | None = None
    """The file to write, for a single name; by default one in the cache (`BCOL_DATA`)."""

    def run(self) -> None:
        """Make them one after the other."""
        from bcol.forge.make import forge

        if not self.names:
            raise InputError("nothing to forge; give names from `bcol data list --contains forge`")
        if self.out is not None and len(self.names) > 1:
            raise InputError(f"--out is for one dataset: got {len(self.names)} names")
        options = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "names"}
        for name in self.names if self.env is None else ():
            if f"forge/{name.removeprefix('forge/')}" not in FORGED:
                raise InputError(
                    f"unknown dataset {name!r}; `bcol data list --contains forge` shows the names; "
                    "for one of your own, give --env and --policy"
                )
        for name in self.names:
            path = forge(name, **options)
            shown = name.removeprefix("forge/") if self.out else path.stem
            Console().print(f"forge/{shown}  {path}", highlight=False, markup=False, soft_wrap=True)


@dataclass(frozen=True)
class TrainBehaviour:
    """Train policies by online SAC, and keep a ladder of them from random to expert, with the returns each reaches.

    For forging datasets of your own environments: every rung is a checkpoint that `bcol data forge --policy`,
    `bcol evaluate` and `bcol.load_policy` read. The same command resumes an interrupted run.

    examples:
        bcol data train-behaviour Hopper-v4
        bcol data train-behaviour Walker2d-v4 --seeds 0 1 --updates-per-step 0.5 --out runs/walker
        bcol data train-behaviour bcol/AntDirections-v0 --steps 2000000
        bcol data train-behaviour my_package:MyRobot-v0 --steps 300000 --hidden 128 128
    """

    env: tyro.conf.Positional[str]
    """Gymnasium id of an environment with box observations and bounded box actions."""
    steps: int = 1_000_000
    """Environment steps of each run."""
    seeds: tuple[int, ...] = (0,)
    """One run each, side by side."""
    hidden: tuple[int, ...] = (256, 256)
    """Sizes of the hidden layers of every network."""
    discount: float = 0.99
    """gamma."""
    batch_size: int = 256
    """Transitions per gradient step."""
    learning_rate: float = 3e-4
    """Of actor, critics and temperature."""
    tau: float = 0.005
    """How far the target network moves towards the critics per step."""
    first_temperature: float = 1.0
    """alpha before it is learned."""
    critic_norm: Norm = "none"
    """LayerNorm in the critics, or none."""
    updates_per_step: float = 1.0
    """Gradient steps per environment step."""
    envs: int = 16
    """Environments per run."""
    round_steps: int = 32
    """Steps of each environment between changes of the weights it acts by."""
    random_steps: int = 10_000
    """Steps with random actions, before learning begins."""
    replay: int = 1_000_000
    """Transitions that are remembered."""
    rung_every: int = 5_000
    """Steps between rungs; from 25 times as many on, 4% of the steps so far."""
    rung_episodes: int = 5
    """Episodes with the mode, and as many with sampled actions, that measure a rung."""
    checkpoint_every: int = 100_000
    """Steps between checkpoints."""
    workers: int | None = None
    """Processes that step environments; by default one per core, but one."""
    evaluators: int = 1
    """Processes that measure rungs."""
    seconds: float | None = None
    """Stop after this much time."""
    out: Path | None = None
    """The run folder; by default runs/ENV."""

    def run(self) -> None:
        """Train, draw the learning curve, and say what the ladder reaches."""
        from bcol.forge.folder import rung_files
        from bcol.forge.online import train_behaviour
        from bcol.forge.rungs import read_rung
        from bcol.forge.sac import SAC
        from bcol.forge.watch import draw_curve

        options = {field.name: getattr(self, field.name) for field in fields(self)}
        agent = SAC(**{field.name: options.pop(field.name) for field in fields(SAC)})
        folder = train_behaviour(agent=agent, **options)
        best = max(map(read_rung, rung_files(folder)), key=lambda rung: rung.score())
        reached = "score" if self.env in REFERENCES else "return"
        Console().print(
            f"{folder}: the best rung is seed {best.seed}, step {best.step:,}, with a {reached} of {best.score():.1f}\n"
            f"Learning curve: {draw_curve(folder)}",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
