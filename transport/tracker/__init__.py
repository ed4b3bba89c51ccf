"""The Tracker: a Python program reports each file's progress as it happens."""

from .function import tracked as tracked
from .tracker import TrackedFile as TrackedFile, TrackedPath as TrackedPath, Tracker as Tracker
