"""The Tracker: a Python program reports each file's progress as it happens."""

from .function import tracked as tracked
from .tracked_file import TrackedFile as TrackedFile, TrackedPath as TrackedPath
from .tracker import Tracker as Tracker
