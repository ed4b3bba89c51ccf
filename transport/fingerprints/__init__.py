"""Fingerprints: which files have the same content, however it is compressed."""

from .hashing import (
    ALGORITHM as ALGORITHM,
    CONTENT_BYTES_MAX as CONTENT_BYTES_MAX,
    Fingerprint as Fingerprint,
    fingerprint_of as fingerprint_of,
    fingerprint_of_stream as fingerprint_of_stream,
)
