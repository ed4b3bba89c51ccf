"""The Tracker: a Python program reports each file's progress as it happens."""

from .tracker import TrackedFile as TrackedFile, TrackedPath as TrackedPath, Tracker as Tracker
