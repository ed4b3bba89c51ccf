"""Tracking: a session whose reads and writes leave a trail, and failures that the listener does not tell."""

from waybill.spark.tracking.sessions import configure as configure, session as session
