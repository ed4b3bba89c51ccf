# ruff: noqa: N815 - the client serialises attributes by their name, which in a facet is camelCase.
"""The input dataset facet that says which content a run has read.

It is among the `inputFacets`, because it is a fact of this run: the dataset is the flow that the file arrived
by, which has many files. Its JSON Schema is beside that of `waybill.facets.delta_file`.
"""

from __future__ import annotations

import re

import attrs
from openlineage.client.generated.base import InputDatasetFacet

from .own_facet import OwnFacet

_FINGERPRINT = re.compile(r"[a-z0-9-]+:[0-9a-f]{16,128}")


def _check_fingerprint(_facet: object, attribute: attrs.Attribute[str], value: str) -> None:
    if not _FINGERPRINT.fullmatch(value):
        raise ValueError(
            f"{attribute.name} is {value!r}: write the algorithm, a colon and the digits, like xxh3-128:99aa…"
        )


@attrs.define(kw_only=True)
class WaybillFingerprintInputDatasetFacet(OwnFacet, InputDatasetFacet):
    """Which content the input had in this run; files with the same content have the same fingerprint.

    Raises:
        ValueError: the fingerprint or a size is not one that its schema allows.
    """

    fingerprint: str = attrs.field(validator=_check_fingerprint)
    """The algorithm, a colon, and the hash of the content in hexadecimal digits."""
    algorithm: str
    """The algorithm alone, for example ``xxh3-128``."""
    inputBytes: int = attrs.field(validator=attrs.validators.ge(0))
    """The size of the input as it was stored."""
    contentBytes: int = attrs.field(validator=attrs.validators.ge(0))
    """The size of the content, which is what the hash is of: of a compressed input, what is inside."""
    forced: bool | None = None
    """Whether the input is to be processed even if its content was processed before; absent if not."""
