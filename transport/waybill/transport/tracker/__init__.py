"""The Tracker: a Python program says what happens to each file, as it happens."""

from waybill.transport.tracker.tracker import TrackedFile as TrackedFile, Tracker as Tracker
