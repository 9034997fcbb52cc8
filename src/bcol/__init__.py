"""bcol: offline reinforcement learning with a hard budget on deviation."""

from typing import TYPE_CHECKING

from bcol._lazy import export

if TYPE_CHECKING:
    from bcol import budget as budget
    from bcol import tabular as tabular
    from bcol.errors import InputError as InputError

__version__ = "0.1.0"
__all__ = ["InputError", "__version__", "budget", "tabular"]

export(
    __name__,
    {
        "InputError": "bcol.errors",
        "budget": "bcol.budget",
        "tabular": "bcol.tabular",
    },
)
