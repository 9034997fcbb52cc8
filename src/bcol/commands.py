"""`bcol demo`, `bcol train` and `bcol evaluate`: their fields are the flags."""

import json
from dataclasses import dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import Literal

import tyro
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from bcol.data.columns import Columns
from bcol.errors import InputError

AgentName = Literal["bcol-sac", "bcol-td3", "offline-sac", "offline-td3", "bc", "td3-bc", "cdc"]
Domain = Literal["mujoco", "antmaze"]


@dataclass(frozen=True)
class Demo:
    """The idea in two minutes, twice: solved exactly in a grid world, and learned from a log in the plane.

    examples:
      bcol demo
      bcol demo --output out
    """

    output: Path = Path("out")
    """folder for the pictures and the trained runs"""

    def run(self) -> None:
        """Run both halves and say what they show."""
        from bcol.demo import demo

        demo(self.output)


@dataclass(frozen=True)
class Train:
    """Train an agent on a log, and score its policy while training goes on.

    The same command given again resumes an interrupted run. Every hyper-parameter of the agent is a flag too: the list
    below is that of the agent named by --agent.

    examples:
      bcol train hopper-medium-v2 --agent bcol-sac --seeds 0 1 2
      bcol train logs.npz --agent bcol-td3 --budget 5 --steps 200000 --out runs/mine
      bcol train hopper-medium-v2 --agent td3-bc --device gpu
      bcol train hopper-medium-v2 --sweep omega=0,1,10 --seeds 0 1
    """

    data: tyro.conf.Positional[str]
    """a name (bcol data list), minari:NAME, or a file: .hdf5, .npz, .parquet, .csv"""
    agent: AgentName = "bcol-sac"
    """which algorithm"""
    preset: Domain | None = None
    """the paper's hyper-parameters for a domain; by default antmaze for AntMaze data, else mujoco"""
    steps: int = 1_000_000
    """gradient steps"""
    seeds: tuple[int, ...] = (0,)
    """one run each, trained side by side"""
    sweep: tuple[str, ...] = ()
    """values of hyper-parameters to train side by side, such as omega=0,10 or budget=1,10"""
    env: str | None = None
    """Gymnasium id to score in; known tasks bring theirs"""
    out: Path | None = None
    """run folder; by default runs/DATA-AGENT"""
    eval_every: int | None = None
    """steps between evaluations, a fifth of it in the last tenth; by default steps / 200, at least 500; 0 for none"""
    eval_episodes: int = 10
    """episodes per evaluation"""
    checkpoint_every: int | None = None
    """steps between checkpoints; by default steps / 20"""
    keep: int = 3
    """checkpoints that are kept"""
    workers: int | None = None
    """processes that evaluate; by default one per core"""
    device: Literal["cpu", "gpu"] | None = None
    """where to train; by default a GPU if there is one"""
    guards: bool = True
    """stop runs whose numbers show that they are lost"""
    tensorboard: bool = False
    """also write TensorBoard event files"""
    wandb: str | None = None
    """also log to this Weights & Biases project"""
    task: str | None = None
    """the task a file belongs to, if its name does not say"""
    columns: Columns = field(default_factory=Columns)
    """what the columns of an own log mean, where they do not have the usual names"""
    action_bounds: tuple[float, float] | None = None
    """the lowest and the highest that an action may be, if the data does not say"""

    def run(self) -> None:
        """Load, train, and print the final score."""
        import bcol
        from bcol.train import train

        options = {f.name: getattr(self, f.name) for f in fields(Train)}
        for used in ("data", "agent", "preset", "sweep", "task", "columns", "action_bounds"):
            del options[used]
        columns = None if self.columns == Columns() else self.columns
        data = bcol.load_dataset(self.data, task=self.task, columns=columns, action_bounds=self.action_bounds)
        sweep = dict(_swept(text) for text in self.sweep)
        hyper = self.hyper  # type: ignore[attr-defined]  # added by train_command
        run = train(data, hyper, sweep=sweep, **options)
        console = Console()
        if run.scores():
            table = Table(box=None, pad_edge=False, header_style="bold")
            for title in ("run", "score", "+-", "steps", "deviations"):
                table.add_column(title, justify="left" if title == "run" else "right")
            for member in run.members:
                rows = [row for row in run.scores() if row["run"] == member.name][-10:]
                mean, spread = run.final_score(member=member.name)
                lengths, spent = ([x for row in rows for x in row[k]] for k in ("lengths", "deviations"))
                table.add_row(
                    member.name,
                    f"{mean:.1f}",
                    f"{spread:.1f}",
                    f"{sum(lengths) / len(lengths):.0f}",
                    f"{sum(spent) / len(spent):.1f}",
                )
            console.print(table)
            console.print("Mean and deviation over the episodes of the last ten evaluations.")
        console.print(f"Run folder: {run.path}", soft_wrap=True, highlight=False, markup=False)


def train_command(arguments: list[str]) -> type:
    """The train command with the hyper-parameters of the agent that the arguments name as flags of its own."""
    from bcol.agents import AGENTS

    name = _value_of("--agent", arguments) or "bcol-sac"
    if name not in AGENTS:
        return Train  # tyro then says which agents there are
    where = _value_of("--preset", arguments) or ("antmaze" if any("antmaze" in a for a in arguments[:1]) else "mujoco")
    agent = AGENTS[name]
    defaults = agent(**agent.presets.get(where, {}))
    command = make_dataclass("Train", [("hyper", agent, field(default=defaults))], bases=(Train,), frozen=True)
    command.__doc__ = Train.__doc__
    return command


@dataclass(frozen=True)
class Evaluate:
    """Score a trained policy over whole episodes.

    examples:
      bcol evaluate runs/hopper-medium-v2-bcol-sac
      bcol evaluate runs/mine --env Hopper-v4 --episodes 100 --budget 3
      bcol evaluate runs/mine/seed1 --frames out/strip.png
    """

    run_folder: tyro.conf.Positional[Path]
    """a run folder, one of its seeds, or a checkpoint file"""
    env: str | None = None
    """Gymnasium id; by default that of the data"""
    episodes: int = 10
    """episodes per seed"""
    budget: int | None = None
    """deviations per episode; by default all the policy was trained for"""
    seed: int = 0
    """of the episodes; the same seed gives the same scores"""
    workers: int | None = None
    """processes; by default one per core"""
    frames: Path | None = None
    """also save a strip of frames (.png) or an animation (.gif) of one episode, with deviating steps marked"""
    json: bool = False
    """print one JSON object per seed instead of a table"""

    def run(self) -> None:
        """Play, and print the table."""
        from bcol.evaluate import evaluate
        from bcol.policy import load_policy
        from bcol.runs import Run

        found = Run(self.run_folder).members if (self.run_folder / "config.json").exists() else []
        members = found or [self.run_folder]
        table = Table(box=None, pad_edge=False, header_style="bold")
        for title in ("run", "score", "+-", "return", "+-", "steps", "deviations", "share"):
            table.add_column(title, justify="left" if title == "run" else "right")
        with Progress(transient=True, console=Console(stderr=True)) as bar:
            task = bar.add_task("playing", total=self.episodes * len(members))
            for member in members:
                policy = load_policy(member)
                env = self.env or policy.spec.env_id
                if env is None:
                    raise InputError("the data names no environment: say which with --env")
                scores = evaluate(
                    policy,
                    env,
                    self.episodes,
                    seed=self.seed,
                    budget=self.budget,
                    workers=self.workers,
                    finished=lambda n: bar.advance(task, n),
                )
                if self.json:
                    print(json.dumps({"run": str(member), **scores.to_json()}))
                normal = scores.normalized
                table.add_row(
                    member.name,
                    f"{normal.mean():.1f}" if scores.reference else "",
                    f"{normal.std():.1f}" if scores.reference else "",
                    f"{scores.returns.mean():.2f}",
                    f"{scores.returns.std():.2f}",
                    f"{scores.lengths.mean():.0f}",
                    f"{scores.deviations.mean():.1f}",
                    f"{scores.deviations.sum() / scores.lengths.sum():.1%}",
                )
        if not self.json:
            Console().print(table)
        if self.frames is not None:
            from bcol.film import film

            film(load_policy(members[0]), str(env), self.frames, seed=self.seed, budget=self.budget)
            Console().print(f"Frames: {self.frames}", soft_wrap=True, highlight=False, markup=False)


def _value_of(flag: str, arguments: list[str]) -> str | None:
    for i, argument in enumerate(arguments):
        if argument.startswith(f"{flag}="):
            return argument.removeprefix(f"{flag}=")
        if argument == flag and i + 1 < len(arguments):
            return arguments[i + 1]
    return None


def _swept(text: str) -> tuple[str, tuple[float, ...]]:
    name, _, values = text.partition("=")
    try:
        return name.replace("-", "_"), tuple(float(v) for v in values.split(","))
    except ValueError:
        raise InputError(f"sweep must read name=value,value, such as omega=0,10: got {text!r}") from None
