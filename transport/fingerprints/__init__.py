"""Fingerprints: which files have the same content, however it is compressed."""

from .hashing import ALGORITHM, CONTENT_BYTES_MAX, Fingerprint, fingerprint_of, fingerprint_of_stream
