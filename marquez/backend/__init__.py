"""Backends: sending events over HTTP or to Kafka, and the meaning of the responses."""

from .answers import Answer, Correction, Verdict, explain, marquez_settings, setting_of
from .client import Backend, ProbeResult, Target, base_url, open_session, probe, shown
from .kafka import KafkaTarget
