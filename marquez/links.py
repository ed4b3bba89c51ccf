"""Links both ways: from Marquez's page to the collector's records, and from files to their jobs there.

Marquez's page shows the first 30 characters of a text in a facet. So the link of a summary is short: it has
the number of the first entry that went into the summary, in hexadecimal digits.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode

from waybill.transport.config import MARQUEZ

if TYPE_CHECKING:
    from waybill.transport.journal import Journal

SUMMARIES_PATH: Final = "/s/"
RECORDS_PATH: Final = "/api/v1/records"
OPEN_PATH: Final = f"{RECORDS_PATH}/open"
DUPLICATES_PATH: Final = f"{RECORDS_PATH}/duplicates"

_LISTENS_AT: Final = "collector_url"
"""The home's note of the address at which its collector listens, or last did."""
_NOT_IN_NAMESPACES: Final = re.compile(r"[^a-z:/A-Z0-9\-_.@+]")
_NUMBER: Final = re.compile(r"[0-9a-f]{1,15}")


def note_collector(journal: Journal, url: str) -> None:
    """Note the address at which the home's collector listens, for the links in events."""
    if journal.meta(_LISTENS_AT) != url:
        journal.set_meta(_LISTENS_AT, url)


class CollectorLinks:
    """Links to the collector; there are none while its address is not known.

    Args:
        public_url: the address for users from the settings; it takes precedence over the noted one.
    """

    def __init__(self, journal: Journal, public_url: str | None = None) -> None:
        self._journal = journal
        self._public_url = public_url

    @property
    def base(self) -> str:
        """The collector's address; empty if it is not known."""
        return (self._public_url or self._journal.meta(_LISTENS_AT) or "").rstrip("/")

    def of_summary(self, seq: int, backend: str) -> str:
        """The link to the records of the summary that an entry stands for; empty if there is no address."""
        base, named = self.base, "" if backend == MARQUEZ else f"?{urlencode({'backend': backend})}"
        return f"{base}{SUMMARIES_PATH}{seq:x}{named}" if base else ""


def summary_number(text: str) -> int | None:
    """The number in the link of a summary; None if the text is no such number."""
    return int(text, 16) if _NUMBER.fullmatch(text) else None


def records_url(base: str, system_name: str, data_source: str) -> str:
    """The address of the collector's records of one data source; always the same text."""
    return f"{base}{RECORDS_PATH}?{urlencode({'system_name': system_name, 'data_source': data_source})}"


def namespace_in_marquez(namespace: str) -> str:
    """The name under which Marquez keeps a namespace: it replaces some characters by an underscore."""
    return _NOT_IN_NAMESPACES.sub("_", namespace)


def page_url(base: str, namespace: str, name: str) -> str:
    """The address of a job on Marquez's page, with its panel open.

    Its graph shows everything before and after the job.
    """
    return _node_url(base, "job", namespace, name, "")


def graph_url(base: str, namespace: str, name: str) -> str:
    """The address of a dataset on Marquez's page, with everything that is connected with it.

    The page colours the ways from the node that it begins with. From the job of a flow's files there may be
    none, because its last file may have reached nothing.
    """
    return _node_url(base, "dataset", namespace, name, "depth=20&isFull=true&")


def _node_url(base: str, kind: str, namespace: str, name: str, graph: str) -> str:
    namespace = namespace_in_marquez(namespace)
    node = f"{kind}/{quote(namespace, safe='')}/{quote(name, safe='')}"
    panel = f"tableLevelNode={quote(f'{kind}:{namespace}:{name}', safe='')}"
    return f"{base.rstrip('/')}/lineage/{node}?{graph}{panel}"
