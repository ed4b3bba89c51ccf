"""The one door to answers, of a home and of files alone: commands, HTTP and Python use nothing else."""

from typing import TYPE_CHECKING

from waybill.facets.lazy import lazily as _lazily

if TYPE_CHECKING:
    from .answers import Answers as Answers
    from .files import FileAnswers as FileAnswers
    from .graph import GraphAnswers as GraphAnswers
    from .home import HomeAnswers as HomeAnswers
    from .naming import UnknownNameError as UnknownNameError
    from .opened import check_open as check_open
    from .receipts import ReceiptStatus as ReceiptStatus
    from .remote import CollectorClient as CollectorClient, CollectorReadError as CollectorReadError

if not TYPE_CHECKING:
    __getattr__ = _lazily(__name__)
