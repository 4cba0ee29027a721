"""Helpers for jobs that are started by hand."""

import contextlib
import socket


def free_port():
    """A port that was free a moment ago; rank 0 binds it again at once."""
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
