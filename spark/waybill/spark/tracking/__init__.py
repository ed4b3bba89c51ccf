"""Tracking: a session whose reads and writes leave a trail, with the failures that the listener hides."""

from waybill.spark.tracking.sessions import configure as configure, session as session
