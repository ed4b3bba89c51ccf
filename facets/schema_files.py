"""The JSON Schemas of our facets, as the package brings them.

A file in the folder `schemas` is named after the facet's class and the version; its `$id` is this name after
`FACET_URN`. A released version never changes: a new one is a further file.
"""

from __future__ import annotations

import functools
from importlib.resources import files

from .event import FACET_URN

_SUFFIX = ".json"


@functools.cache
def read_facet_schemas() -> dict[str, bytes]:
    """Return every version of every schema by its name, such as ``WaybillDeltaFileRunFacet-1-0-0``."""
    folder = files(__package__).joinpath("schemas")
    by_name = {path.name.removesuffix(_SUFFIX): path.read_bytes() for path in folder.iterdir()}
    return dict(sorted(by_name.items()))


def find_facet_schema(name: str) -> bytes | None:
    """Return the schema with this name, or that a facet's `_schemaURL` names; None if it is none of ours."""
    return read_facet_schemas().get(name.removeprefix(FACET_URN).partition("#")[0])
