"""`waybill alias`: two names of one dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from waybill.facets.json_events import instant
from waybill.transport import Kind, Settings
from waybill.transport.clock import SYSTEM_CLOCK

from .. import console
from ..arguments import JsonObject, argument, flag
from ..graph import ask_graph
from ..home import as_agreed, existing_journal
from ..options import with_settings
from ..records import as_plain

if TYPE_CHECKING:
    from waybill.lineage.graph import Node

_EVENT_URL: Final = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/DatasetEvent"
_FACET_URL: Final = "https://openlineage.io/spec/facets/1-0-1/SymlinksDatasetFacet.json"


@with_settings("home")
def alias(
    settings: Settings,
    *,
    old: Annotated[str, argument("OLD", "The name of a dataset.")],
    new: Annotated[str, argument("NEW", "Another name, which some event has, too.")],
    dry_run: Annotated[bool, flag("--dry-run", "Only show what would be one.")] = False,
    as_json: JsonObject = False,
) -> None:
    """Declare that two names are one dataset.

    Stores an event about the dataset NEW, whose facet symlinks names OLD, as if a producer had sent it; so it
    is delivered like any other. Shows all names that are one then. This cannot be undone: a stored event
    stays, and no other event says that two names are not one. Exit code 2 if no dataset has a name, or
    several have it.

    Examples:
      waybill alias hive/sales.orders s3://lake/sales/orders --dry-run
      waybill alias hive/sales.orders s3://lake/sales/orders
    """
    from waybill.lineage.graph import OfNames, shown

    first, second = (ask_graph(settings, OfNames(name)) for name in (old, new))
    is_known = second.node in first.names
    if not (is_known or dry_run):
        _store(settings, first.node, second.node)
    names = sorted({*first.names, *second.names})
    console.result({"names": as_plain(names)}, map(shown, names), as_json=as_json)
    if is_known:
        console.note("these are one dataset already")
    elif dry_run:
        console.note("these would be one dataset; once it is declared, it cannot be undone")
    else:
        console.note("these are one dataset now, which cannot be undone")


def _store(settings: Settings, old: Node, new: Node) -> None:
    from waybill.facets import PRODUCER
    from waybill.transport.admission import Redaction

    identifier = {"namespace": old.namespace, "name": old.name, "type": "TABLE"}
    facet = {"_producer": PRODUCER, "_schemaURL": _FACET_URL, "identifiers": [identifier]}
    event = {
        "eventTime": instant(SYSTEM_CLOCK.now_ms()),
        "producer": PRODUCER,
        "schemaURL": _EVENT_URL,
        "dataset": {"namespace": new.namespace, "name": new.name, "facets": {"symlinks": facet}},
    }
    with existing_journal(settings, needed=True) as journal:
        assert journal is not None  # noqa: S101 - its graph has both names
        agreed = as_agreed(settings, journal)
        body = Redaction(agreed.redact, agreed.bounds).admit(msgspec.json.encode(event))
        journal.append(Kind.OPENLINEAGE, body, agreed.system_name)
