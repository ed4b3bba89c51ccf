"""What the facets of ours have in common, as the OpenLineage client has them."""

from __future__ import annotations

from typing import ClassVar, cast

import attrs

from .event import facet_schema_url


class OwnFacet:
    """A facet of ours: its schema has the name of its class, and the client masks only what may be secret."""

    __slots__ = ()

    _secret: ClassVar[frozenset[str]] = frozenset()
    """The fields that may hold secrets; a masked identity or flow would make a facet useless."""

    @classmethod
    def _get_schema(cls) -> str:
        return facet_schema_url(cls.__name__)

    @property
    def skip_redact(self) -> list[str]:
        """The fields that the client leaves as they are: ours, and none that a subclass adds.

        The client makes such a subclass for `with_additional_properties`.
        """
        [ours] = [kind for kind in type(self).__mro__ if OwnFacet in kind.__bases__]
        fields = attrs.fields(cast("type[attrs.AttrsInstance]", ours))
        return [field.name for field in fields if field.name not in self._secret]
