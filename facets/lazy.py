"""Lazy faces: a package offers what it imports for type checkers, and loads a module on first use of a name.

The imports are read from the package's own source, so that each name stands in one place.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.abc import InspectLoader
from typing import cast


def lazily(package: str) -> Callable[[str], object]:
    """Create the `__getattr__` of a package (PEP 562) from its imports of names from its own modules.

    It also gives `__all__`, the names that they import.
    """
    modules = functools.cache(functools.partial(_read_modules, package))

    def load(name: str) -> object:
        if name == "__all__":
            return list(modules())
        if (module := modules().get(name)) is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(module, package), name)

    return load


def _read_modules(package: str) -> dict[str, str]:
    """The module of each name that a package imports, for type checkers or at once."""
    spec = sys.modules[package].__spec__
    source = None if spec is None else cast("InspectLoader", spec.loader).get_source(package)
    if source is None:
        raise ImportError(f"the source of {package} is missing; install Waybill with its .py files")
    return {
        alias.name: "." * node.level + (node.module or "")
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name or (node.level and alias.asname is None)
    }
