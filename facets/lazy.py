"""Lazy faces: a room offers names of its packages, and loads a package when a name is first used."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set as AbstractSet
from importlib import import_module


def lazily(room: str, packages: Mapping[str, AbstractSet[str]]) -> Callable[[str], object]:
    """Create the `__getattr__` of a room (PEP 562) from the names that it offers, by package."""

    def load(name: str) -> object:
        for package, names in packages.items():
            if name in names:
                return getattr(import_module(package), name)
        raise AttributeError(f"module {room!r} has no attribute {name!r}")

    return load
