"""Public names that are imported when first used, so that what needs no JAX does not load it."""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


def export(package: str, public: dict[str, str]) -> None:
    """Let `package` offer the names in `public`, each from the module given for it.

    A name whose module is `package.name` and that this module does not define is the module itself.
    """

    class Package(ModuleType):
        def __getattr__(self, name: str) -> Any:
            if name not in public:
                raise AttributeError(f"module {package!r} has no attribute {name!r}")
            module = import_module(public[name])
            return getattr(module, name, module)

        def __setattr__(self, name: str, value: Any) -> None:
            # Python sets an imported submodule on its package; that must not hide a function of the same name.
            if not (name in public and isinstance(value, ModuleType) and hasattr(value, name)):
                super().__setattr__(name, value)

        def __dir__(self) -> list[str]:
            return sorted({*super().__dir__(), *public})

    sys.modules[package].__class__ = Package
