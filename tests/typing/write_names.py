"""Writes a program that uses every public name of every room, for mypy and pyright to judge; nothing runs it.

python tests/typing/write_names.py dist/typing/names.py
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGES = [
    "waybill",
    *(f"waybill.{path.parent.name}" for path in sorted(Path("src/waybill").glob("*/__init__.py"))),
]
UNTYPED = {"waybill.lineage.trace": "  # pyright: ignore"}
"""It asks for tables of pyarrow, which has no types."""


def uses() -> Iterator[str]:
    """Each public name, used as a value and, if it is a class, as a type; and a name that no room has."""
    for package in PACKAGES:
        yield f"import {package}"
    yield "def show(value: object) -> None: ..."
    for package in PACKAGES:
        module = importlib.import_module(package)
        yield f"show({package}.Traker)  # type: ignore[attr-defined]"
        for name in module.__all__:
            yield f"show({package}.{name}){UNTYPED.get(f'{package}.{name}', '')}"
            if isinstance(getattr(module, name), type):
                yield f"def take_{package.replace('.', '_')}_{name}(value: {package}.{name}) -> None: ..."


if __name__ == "__main__":
    written = Path(sys.argv[1])
    written.parent.mkdir(parents=True, exist_ok=True)
    written.write_text("\n".join([*uses(), ""]), encoding="utf-8")
