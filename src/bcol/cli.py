"""The command line: one thin layer over the library.

Every command is a frozen dataclass whose fields are its options and whose `run` does the work; the rooms that have
commands of their own keep them in their `commands.py`.
"""

import os
import sys
from typing import Annotated, Any

import tyro

import bcol
from bcol import commands
from bcol.bench import commands as bench
from bcol.data import commands as data
from bcol.errors import InputError
from bcol.forge import commands as forge
from bcol.runs import RunError
from bcol.tabular import commands as tabular

_DESCRIPTION = """Offline reinforcement learning with a hard budget on deviation.

examples:
  bcol demo                                          the idea in tables and pictures
  bcol data info logs.parquet                        what is in a log
  bcol train hopper-medium-v2 --agent bcol-sac       train, and score while training
  bcol evaluate runs/hopper-medium-v2-bcol-sac       score a trained policy
  bcol bench                                         how fast training is on this machine
  bcol COMMAND --help                                options and examples of a command
"""


def _union(named: dict[str, tuple[Any, str]]) -> Any:
    """The commands as tyro wants them: a union of classes, each with its name and one line about it."""
    union: Any = None
    for name, (command, line) in named.items():
        member: Any = Annotated[command, tyro.conf.subcommand(name, description=line)]
        union = member if union is None else union | member
    return union


_DATA = {
    "list": (data.List, "datasets known by name"),
    "info": (data.Info, "what is in a dataset"),
    "check": (data.Check, "every problem in a dataset, with row numbers"),
    "convert": (data.Convert, "write a dataset in another format"),
    "download": (data.Download, "fetch a dataset into the cache"),
    "forge": (forge.Forge, "make datasets here, without a download"),
    "train-behaviour": (forge.TrainBehaviour, "train the policies that datasets are made with"),
}
_COMMANDS = {
    "demo": (commands.Demo, "the idea in two minutes"),
    "gridworld": (tabular.GridWorld, "the paper's grid world, exactly solved"),
    "train": (commands.Train, "train an agent on a log"),
    "evaluate": (commands.Evaluate, "score a trained policy"),
    "bench": (bench.Bench, "how fast training is on this machine"),
}


def main(arguments: list[str] | None = None) -> None:
    """Run `bcol ...`: exit code 0, 2 for bad input, or 1 for what failed while running; one line says why."""
    try:
        try:
            _run(sys.argv[1:] if arguments is None else arguments)
        finally:
            sys.stdout.flush()  # here, where it can be told that nobody reads any more
    except BrokenPipeError:
        # `bcol ... | head`: the reader has gone, and what is still buffered must not be tried again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _run(arguments: list[str]) -> None:
    if arguments == ["--version"]:
        print(f"bcol {bcol.__version__}")
        return
    try:
        _parse(arguments).run()
    except InputError as error:
        _stop(error, 2)
    except RunError as error:
        _stop(error, 1)
    except KeyboardInterrupt:
        sys.exit(130)


def _parse(arguments: list[str]) -> Any:
    """The command that was asked for, as an object.

    The command itself is chosen here, so that a group of commands, or one whose options depend on its arguments, is
    only built when it is asked for.
    """
    first, rest = (arguments or ["--help"])[0], arguments[1:]
    if first == "data" and rest and rest[0] in _DATA:
        return _cli(_DATA[rest[0]][0], rest[1:], f"bcol data {rest[0]}", None)
    if first == "data":
        return _cli(
            _union(_DATA),
            rest or ["--help"],
            "bcol data",
            "Logged decisions: look at them, check them, convert them, make them.",
        )
    if first == "train":
        return _cli(commands.train_command(rest), rest or ["--help"], "bcol train", None)
    if first in _COMMANDS:
        return _cli(_COMMANDS[first][0], rest, f"bcol {first}", None)
    group = {"data": (data.List, "look at, check, convert, fetch and make datasets")}
    return _cli(_union(_COMMANDS | group), arguments or ["--help"], "bcol", _DESCRIPTION)


def _cli(command: Any, arguments: list[str], prog: str, description: str | None) -> Any:
    flat = (tyro.conf.OmitSubcommandPrefixes, tyro.conf.OmitArgPrefixes)
    return tyro.cli(command, prog=prog, description=description, args=arguments, config=flat)


def _stop(error: Exception, code: int) -> None:
    print(f"bcol: {error}", file=sys.stderr)
    sys.exit(code)
