"""What every place that is asked can answer."""

from .indexed import FileAnswers
from .remote import CollectorClient

Answers = FileAnswers | CollectorClient
"""Answers questions about the files of one place; for the methods see `Lineage`."""
