"""The correlation index: who came from whom, kept up from the journal and asked without opening any file."""

from typing import TYPE_CHECKING

from waybill.facets.lazy import lazily as _lazily

if TYPE_CHECKING:
    from waybill.transport.known_contents import INDEX_NAME as INDEX_NAME

    from .forgetting import DAY_MS as DAY_MS
    from .index import CORRELATION as CORRELATION, CorrelationIndex as CorrelationIndex, Kin as Kin
    from .projection import Correlation as Correlation, open_correlation as open_correlation
    from .relations import Relations as Relations, sightings_after as sightings_after
    from .sightings import (
        Content as Content,
        Details as Details,
        Sighting as Sighting,
        sightings_in as sightings_in,
    )
    from .writing import IndexWriter as IndexWriter

if not TYPE_CHECKING:
    __getattr__ = _lazily(__name__)
