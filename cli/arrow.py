"""pyarrow without the other packages that it loads, in commands that only read."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from importlib.abc import MetaPathFinder
from typing import Final

_REFUSED: Final = frozenset({"numpy", "pandas"})


class _Refusing(MetaPathFinder):
    def find_spec(self, name: str, path: object = None, target: object = None) -> None:  # noqa: ARG002 - the protocol
        if name in _REFUSED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@contextlib.contextmanager
def arrow_alone() -> Iterator[None]:
    """Keep numpy and pandas out of this process, which pyarrow loads wherever they are installed.

    They would take longer to load than a whole command that only reads. Modules already loaded stay.
    """
    refusing = _Refusing()
    sys.meta_path.insert(0, refusing)
    try:
        yield
    finally:
        sys.meta_path.remove(refusing)
