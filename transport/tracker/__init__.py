"""The Tracker: a Python program reports each file's progress as it happens."""

from .function import tracked
from .tracked_file import TrackedFile, TrackedPath
from .tracker import Tracker
