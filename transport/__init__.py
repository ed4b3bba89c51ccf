"""Keeping events: admission, the journal, the runner of projections, and the interfaces for emitters.

Importing this package does not load pyarrow, pyspark or the delivery code: a pipeline that only emits events
pays only for the journal.
"""

from typing import TYPE_CHECKING

from waybill.facets.lazy import lazily as _lazily

if TYPE_CHECKING:
    from .admission import admit_event as admit_event, check_records as check_records
    from .async_tracker import AsyncTrackedFile as AsyncTrackedFile, AsyncTracker as AsyncTracker
    from .config import BackendSetting as BackendSetting, Settings as Settings
    from .errors import (
        AdmissionError as AdmissionError,
        DuplicateFileError as DuplicateFileError,
        FingerprintError as FingerprintError,
        JournalError as JournalError,
        JournalFullError as JournalFullError,
        JournalVersionError as JournalVersionError,
        MissingExtraError as MissingExtraError,
        NotFoundError as NotFoundError,
        RootError as RootError,
        SettingsConflictError as SettingsConflictError,
        SettingsError as SettingsError,
        TrackerStateError as TrackerStateError,
        WaybillError as WaybillError,
    )
    from .fingerprints import (
        Fingerprint as Fingerprint,
        fingerprint_of as fingerprint_of,
        fingerprint_of_stream as fingerprint_of_stream,
    )
    from .journal import Entry as Entry, FileContent as FileContent, Journal as Journal, Kind as Kind
    from .receiver import Receiver as Receiver
    from .rejects import Reject as Reject, Rejects as Rejects
    from .runner import FlushReport as FlushReport, Projection as Projection, Step as Step, flush as flush
    from .tracker import TrackedFile as TrackedFile, Tracker as Tracker, tracked as tracked
    from .transport import WaybillConfig as WaybillConfig, WaybillTransport as WaybillTransport

if not TYPE_CHECKING:
    __getattr__ = _lazily(__name__)
