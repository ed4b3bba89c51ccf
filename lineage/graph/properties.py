"""What the facets of datasets and jobs say of them now: owners, tier, columns, SQL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from waybill.facets.standard import read_standard

from .elements import as_json

if TYPE_CHECKING:
    from waybill.facets.standard import SchemaField

    from .elements import Ask


_PROPERTIES: Final = """
SELECT node, key, value, last_us, digest FROM all_property
WHERE node IN (SELECT value FROM json_each(?)) AND key IN (SELECT value FROM json_each(?))
"""
_TIER: Final = "tier"


def properties_of(ask: Ask, numbers: Iterable[int], *keys: str) -> dict[tuple[int, str], str]:
    """By node and key, the facet that was told last, as JSON."""
    rows = sorted(ask(_PROPERTIES, (as_json(numbers), as_json(keys))), key=itemgetter(3, 4))
    return {(node, key): value for node, key, value, *_ in rows}


def owners_in(facet: str) -> tuple[str, ...]:
    """The owners that the facet `ownership` names."""
    return tuple(owner.name for owner in read_standard(facet).owners or ())


def tier_in(facet: str) -> str | None:
    """The value of the tag `tier` in the facet `tags`; None: there is none."""
    tags = read_standard(facet).tags or ()
    return next((tag.text for tag in tags if tag.key == _TIER and not tag.field), None)


def tags_in(facet: str) -> tuple[str, ...]:
    """The tags in the facet `tags`, ``key:value``, of the node and not of a column."""
    tags = read_standard(facet).tags or ()
    return tuple(f"{tag.key}:{tag.text}".rstrip(":") for tag in tags if not tag.field)


def description_in(facet: str) -> str:
    """The text in the facet `documentation`; empty: there is none."""
    return read_standard(facet).description or ""


def columns_in(facet: str) -> tuple[str, ...]:
    """The columns that the facet `schema` names; one in another is joined to it by a dot."""
    return tuple(types_in(facet))


def types_in(facet: str) -> dict[str, str]:
    """By column that the facet `schema` names, its type; empty: it has none."""
    return dict(_typed(read_standard(facet).fields or (), ""))


def sql_in(facet: str) -> str:
    """The text in the facet `sql`; empty: there is none."""
    return read_standard(facet).query or ""


def is_drop(facet: str) -> bool:
    """Whether the facet `lifecycleStateChange` says that the dataset was dropped."""
    return (read_standard(facet).change or "").upper() == "DROP"


def _typed(fields: Iterable[SchemaField], above: str) -> Iterator[tuple[str, str]]:
    for field in fields:
        yield f"{above}{field.name}", field.type or ""
        yield from _typed(field.fields or (), f"{above}{field.name}.")
