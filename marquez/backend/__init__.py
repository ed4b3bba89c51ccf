"""Backends: sending events over HTTP or to Kafka, and the meaning of the responses."""

from .answers import (
    Answer as Answer,
    Correction as Correction,
    Verdict as Verdict,
    explain as explain,
    marquez_settings as marquez_settings,
    setting_of as setting_of,
)
from .client import (
    LINEAGE_PATH as LINEAGE_PATH,
    Backend as Backend,
    ProbeResult as ProbeResult,
    Target as Target,
    base_url as base_url,
    open_session as open_session,
    probe as probe,
    shown as shown,
)
from .kafka import KafkaTarget as KafkaTarget
