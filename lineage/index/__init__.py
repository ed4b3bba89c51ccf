"""The index of a home: what records cannot say of files, kept up from the journal and asked beside them."""

from typing import TYPE_CHECKING

from waybill.facets.lazy import lazily as _lazily

if TYPE_CHECKING:
    from .facts import Fact, JobRun, Kind, OpenFile, as_plain, shown_as
    from .kept import KeptIndex
    from .projection import Index, open_index
    from .published import FolderRelations, Published
    from .reading import IndexReader
    from .tables import INDEX, INDEX_NAME

if not TYPE_CHECKING:
    __getattr__ = _lazily(__name__)
