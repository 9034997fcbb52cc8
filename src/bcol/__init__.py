"""bcol: offline reinforcement learning with a hard budget on deviation.

Names are imported when first used, so that what needs no JAX does not load it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bcol import budget as budget
    from bcol import data as data
    from bcol import tabular as tabular
    from bcol.data.load import load_dataset as load_dataset
    from bcol.data.transitions import Transitions as Transitions
    from bcol.errors import InputError as InputError

__version__ = "0.1.0"

# Public name -> the module that holds it; a name that maps to itself is a module.
_PUBLIC = {
    "budget": "bcol.budget",
    "data": "bcol.data",
    "tabular": "bcol.tabular",
    "load_dataset": "bcol.data.load",
    "InputError": "bcol.errors",
    "Transitions": "bcol.data.transitions",
}
__all__ = ["InputError", "Transitions", "__version__", "budget", "data", "load_dataset", "tabular"]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'bcol' has no attribute {name!r}")
    module = import_module(_PUBLIC[name])
    return module if module.__name__ == f"bcol.{name}" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
