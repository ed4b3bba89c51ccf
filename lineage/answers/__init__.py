"""The one door to answers, of a home and of files alone: commands, HTTP and Python use nothing else."""

from typing import TYPE_CHECKING

from waybill.facets.lazy import lazily as _lazily

if TYPE_CHECKING:
    from .answers import Answers
    from .graph import GraphAnswers
    from .home import HomeAnswers
    from .indexed import FileAnswers
    from .naming import UnknownNameError
    from .opened import check_open
    from .receipts import ReceiptStatus
    from .remote import CollectorClient, CollectorReadError

if not TYPE_CHECKING:
    __getattr__ = _lazily(__name__)
