"""Which open files meet a query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from waybill.exporter import Query
from waybill.exporter.query import CONDITIONS, InvalidQueryError, has_name

if TYPE_CHECKING:
    from waybill.facets import AnnotationRule

    from ..index import OpenFile

_OF_BOTH: Final = (
    *(condition.field for condition in CONDITIONS if condition.is_of_open),
    *("dids", "parent_dids", "filename_dids", "literal", "other_names"),
)
"""Conditions that an open file can meet as a record can: one that has not ended ends after any `since_ms`."""


def check_open(query: Query) -> None:
    """Raise an `InvalidQueryError` for a condition that only a file which has ended can meet."""
    none = Query()
    for condition in CONDITIONS:
        value = getattr(query, condition.field)
        if not condition.is_of_open and value != getattr(none, condition.field):
            what = (
                "is a condition that open files do not have yet; leave it out, or do not ask for open files"
            )
            raise InvalidQueryError(condition.field, ",".join(condition.tell(value)), what)


def can_be_open(query: Query) -> bool:
    """Whether a file that has not ended can meet a query; the order and the first records do not matter."""
    kept = {name: getattr(query, name) for name in _OF_BOTH}
    return msgspec.structs.replace(query, oldest_first=False, after=None, limit=None) == Query(**kept)


def meets(file: OpenFile, query: Query, rule: AnnotationRule) -> bool:
    """Whether an open file meets the conditions of a query that an open file can meet."""
    # What a record would not have is not asked for here either.
    if query.annotations.items() - (rule.kept(file.annotations) or {}).items():
        return False
    if query.created_since_ms is not None and file.began_ms < query.created_since_ms:
        return False
    if query.created_until_ms is not None and file.began_ms >= query.created_until_ms:
        return False
    texts = (
        (query.did, file.did),
        (query.parent_did, file.parent_did),
        (query.system_name, file.system_name),
    )
    if any(asked is not None and asked != told for asked, told in texts):
        return False
    sets = (query.dids, file.did), (query.parent_dids, file.parent_did)
    if any(asked is not None and told not in asked for asked, told in sets):
        return False
    is_named = file.did in query.filename_dids or has_name(query, "filename", file.filename or "")
    return is_named and has_name(query, "data_source", file.data_source)
