"""The nodes of a journal: the random ids that its entries are acknowledged and filed under, one at a time.

A journal keeps its node unless its sequence numbers turn out to have been used before: its log was lost, an
earlier copy was restored, or it is a copy beside the original. Then it gets a new node, under which its
numbers are unique again.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, cast

import msgspec

from ..clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    import apsw

_NODE: Final = "SELECT value FROM meta WHERE key = 'node'"
_NODES: Final = "SELECT value FROM meta WHERE key = 'nodes'"
_PUT: Final = "INSERT INTO meta VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value"


class Node(msgspec.Struct, frozen=True, omit_defaults=True):
    """One node of a journal.

    Attributes:
        name: the random id.
        after: the last entry that was accepted before this node began; 0 for the first node.
        began_ms: when it began, epoch milliseconds; 0 for the first node.
        why: why the previous node was replaced, as a part of a sentence.
        lost: the first and the last number of the previous node whose entries the journal has lost, at least
            in part; None if it has lost none.
    """

    name: str
    after: int = 0
    began_ms: int = 0
    why: str = ""
    lost: tuple[int, int] | None = None


def new_node() -> str:
    """A random id."""
    return secrets.token_hex(6)


def current_node(connection: apsw.Connection) -> str:
    """The current node of a journal."""
    return cast("str", connection.execute(_NODE).get)


def nodes_of(connection: apsw.Connection) -> tuple[Node, ...]:
    """Every node that a journal ever had, in order; the last one is the current one."""
    stored = connection.execute(_NODES).get
    return (Node(current_node(connection)),) if stored is None else _DECODER.decode(cast("str", stored))


def renew(
    writer: apsw.Connection, expected: str, why: str, lost: tuple[int, int] | None, cursors: Mapping[str, int]
) -> Node | None:
    """Give a journal another node, and move cursors back; the caller has begun a transaction.

    None if the node is no longer the `expected` one, because another process has replaced it already.
    """
    known = nodes_of(writer)
    if known[-1].name != expected:
        return None
    after = cast("int", writer.execute("SELECT coalesce(max(seq), 0) FROM entries").get)
    node = Node(new_node(), after, SYSTEM_CLOCK.now_ms(), why, lost)
    writer.execute(_PUT, ("node", node.name))
    writer.execute(_PUT, ("nodes", _encoded((*known, node))))
    for projection, seq in cursors.items():
        writer.execute("UPDATE cursors SET seq = ? WHERE projection = ?", (seq, projection))
    return node


def _encoded(nodes: Iterable[Node]) -> str:
    return msgspec.json.encode(list(nodes)).decode()


_DECODER: Final = msgspec.json.Decoder(tuple[Node, ...])
