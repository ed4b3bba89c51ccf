"""The index of a home: what records cannot say of files, kept up from the journal and asked beside them."""

from typing import TYPE_CHECKING

from waybill.facets.lazy import lazily as _lazily

if TYPE_CHECKING:
    from .closure import Closure as Closure
    from .facts import (
        Fact as Fact,
        JobRun as JobRun,
        Kind as Kind,
        OpenFile as OpenFile,
        shown_as as shown_as,
    )
    from .kept import KeptIndex as KeptIndex
    from .projection import Index as Index, open_index as open_index
    from .published import FolderRelations as FolderRelations, Published as Published
    from .reading import IndexReader as IndexReader
    from .tables import INDEX as INDEX, INDEX_NAME as INDEX_NAME

if not TYPE_CHECKING:
    __getattr__ = _lazily(__name__)
