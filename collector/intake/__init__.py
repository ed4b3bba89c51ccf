"""The intake: a request's contents are committed, acknowledged and found again by their receipt."""

from .acceptor import STALLED_S, Acceptor
