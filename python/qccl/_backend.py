"""Makes the backend of a process group when torch asks for it."""

import atexit
import contextlib
import os
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import Backend as C10dBackend
from torch.distributed.constants import default_pg_timeout

from . import _C, _start
from ._api import Options

# How long the end of the process waits for operations still in flight.
_EXIT_LIMIT = timedelta(seconds=10)


def create(backend_options: Any, pg_options: Any) -> Any:
    """The backend of torch's _DistributedBackendOptions. Collective over the group's ranks."""
    _start.check_replaced()
    _close_at_end_of_process()
    options = _options_from(pg_options)
    timeout = options.timeout or _chosen(backend_options.timeout)
    spec = _C.GroupSpec(
        store=backend_options.store,
        rank=backend_options.group_rank,
        global_ranks=list(backend_options.global_ranks_in_group) or list(range(backend_options.group_size)),
        name=backend_options.group_id,
        timeout_ms=None if timeout is None else max(1, round(timeout.total_seconds() * 1000)),
        options=options,
        job_options=_job_options(),
        may_gate=os.environ.get("QCCL_STREAM_ORDER") == "gate",
        trace_dump=_start.trace_dump(),
    )
    if getattr(backend_options, "enable_reconfigure", False):
        # Handles sort as the ranks do that their process groups begin with.
        return _C.make_reconfigurable(spec, f"qccl/{backend_options.group_rank:06}/{uuid.uuid4().hex}")
    _default.note(backend_options, options)
    if (grown := _default.take_grown()) is not None:
        return _C.make_grown_backend(grown, spec)
    backend = _C.make_backend(spec)
    if backend_options.group_rank == 0:
        _start.announce(backend)
    return backend


class _Default:
    """What is known of the default group besides what torch knows."""

    def __init__(self) -> None:
        self.options = Options()
        self.grown: Any = None

    def note(self, backend_options: Any, options: Options) -> None:
        if len(backend_options.global_ranks_in_group) == 0:
            self.options = options

    def take_grown(self) -> Any:
        grown, self.grown = self.grown, None
        return grown


_default = _Default()


def default_options() -> Options:
    """The options of the default group."""
    return _default.options


@contextlib.contextmanager
def given(grown: Any) -> Iterator[None]:
    """The backend that torch asks for first is of this group, which exists."""
    _default.grown = grown
    try:
        yield
    finally:
        _default.grown = None


def _options_from(pg_options: Any) -> Options:
    """Options of another backend, which a mesh or a program of QCCL_REPLACE may give, choose nothing here."""
    if isinstance(pg_options, Options):
        return pg_options
    if pg_options is None:
        return Options()
    if isinstance(pg_options, C10dBackend.Options):
        return Options(timeout=pg_options._timeout if pg_options.backend == "qccl" else None)
    raise TypeError(f"pg_options of the qccl backend must be qccl.Options, got {type(pg_options).__name__}")


def _job_options() -> Options:
    """What the environment chooses for all groups of a job."""
    try:
        return Options(message_compression=os.environ.get("QCCL_MESSAGE_COMPRESSION") or None)
    except ValueError as error:
        raise ValueError(f"QCCL_MESSAGE_COMPRESSION: {error}") from None


def _chosen(timeout: timedelta) -> timedelta | None:
    """None if it is torch's default of 30 minutes: then QCCL_TIMEOUT or QCCL's default applies."""
    return None if timeout == default_pg_timeout else timeout


def _close_at_exit() -> None:
    _C.close_all(round(_EXIT_LIMIT.total_seconds() * 1000))


def _close_at_end_of_process() -> None:
    """Ends the threads that run Python callbacks before the interpreter ends, even if no group is destroyed.

    Registered once per process: a forked child has none of its parent's threads, but may make its own groups.
    """
    atexit.unregister(_close_at_exit)
    atexit.register(_close_at_exit)


os.register_at_fork(after_in_child=lambda: atexit.unregister(_close_at_exit))
