"""Jobs that grow: processes that come later join the default process group (docs/growing.md)."""

import copy
import os
import socket
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.distributed.constants import default_pg_timeout
from torch.distributed.rendezvous import rendezvous

from . import _C, _backend
from ._api import Options, backend_of
from ._failures import _ms


def door(group: dist.ProcessGroup | None = None) -> str:
    """Where newcomers find this rank: "10.0.0.1:40000", or several addresses with commas; "" if it is not open.

    Ranks are open if QCCL_OPEN is "on" when they make their default group. Raises ValueError if this rank is not in the
    group or the group is not qccl's, DistBackendError once the group is closed.
    """
    return _C.door(backend_of(group))


def grow(
    *,
    at_least: int = 0,
    at_most: int | None = None,
    patience: timedelta | None = None,
    timeout: timedelta | None = None,
) -> dist.ProcessGroup:
    """Takes in the newcomers that wait at the ranks' doors, and returns the default group.

    All ranks of the default group call it. They keep their ranks, newcomers get the next ones. Without newcomers
    nothing changes. Otherwise all other groups are destroyed, as by qccl.shrink(): make them again. The new group has
    the options and the compression of the old one, and a store of its own at rank 0.

    Args:
        at_least: waits for so many newcomers.
        at_most: takes no more than that; the others wait on.
        patience: how long a newcomer that does not answer is waited for. None: 2 s.
        timeout: of this call. None: QCCL_INIT_TIMEOUT, else 300 s.

    Raises ValueError for wrong arguments; DistBackendError if no rank is open; DistNetworkError if fewer newcomers
    came, or ranks and newcomers could not connect (the group stays usable), or if a rank was lost.
    """
    backend = backend_of(None)
    if at_least < 0 or (at_most is not None and at_most < 0):
        raise ValueError(f"qccl: grow: at_least={at_least} and at_most={at_most} must not be negative")
    grown = _C.grow(backend, at_least, at_most, _ms(patience), _ms(timeout))
    if grown is None:
        assert dist.group.WORLD is not None
        return dist.group.WORLD
    name, options = dist.get_backend(), copy.copy(_backend.default_options())
    options.compression = backend.options.compression  # as set_compression() may have left it
    dist.destroy_process_group()
    return _begin(grown, name, options)


def join(
    doors: str | None = None,
    *,
    store: c10d.Store | None = None,
    backend: str = "qccl",
    timeout: timedelta | None = None,
    pg_options: Options | None = None,
) -> dist.ProcessGroup:
    """Joins an open job: waits until its ranks call qccl.grow(), and makes the default process group with them.

    Instead of dist.init_process_group(). Rank and world size come from the job.

    Args:
        doors: of one or more of its ranks, as door() gives them, with commas; or "store", for those that the job's
            first store lists, which is found by MASTER_ADDR and MASTER_PORT, as its ranks found it. None: QCCL_JOIN.
        store: that store, if the ranks gave one to init_process_group(), in place of doors.
        backend: as the job's ranks gave it to init_process_group().
        timeout: for the waiting. None: QCCL_INIT_TIMEOUT, else 300 s.
        pg_options: the same as theirs. The compression comes from the job.

    Raises ValueError for doors that are none, another key or other settings; DistNetworkError if no job took this
    process in.
    """
    if doors and store is not None:
        raise ValueError("qccl: join: give doors or a store, not both")
    doors = "store" if store is not None else doors or os.environ.get("QCCL_JOIN", "")
    if not doors:
        raise ValueError("qccl: join: there are no doors: give doors= or store=, or set QCCL_JOIN")
    listing = _as_ranks_see(store or _store_of_start(timeout), backend) if doors == "store" else None
    return _begin(_C.join(doors, _ms(timeout), listing), backend, pg_options)


def _store_of_start(timeout: timedelta | None) -> c10d.Store:
    """The store that init_process_group() finds by environment variables."""
    not_rank_0 = {"rank": 1, "world_size": 2}
    store, _, _ = next(rendezvous("env://", **not_rank_0, timeout=timeout or default_pg_timeout))
    return c10d.PrefixStore("default_pg", store)


def _as_ranks_see(store: c10d.Store, backend: str) -> c10d.Store:
    """With the prefixes that torch gives to the store of the default group's backend."""
    devices = c10d.BackendConfig(c10d.Backend(backend)).get_device_backend_map()
    device = next(device for device, name in devices.items() if name == "qccl")
    return c10d.PrefixStore(f"{device}/", c10d.PrefixStore("0/", store))


def _begin(grown: Any, backend: str, pg_options: Options | None) -> dist.ProcessGroup:
    """The default process group of a grown group. Whether the program chose its compression, rank 0 knows."""
    options = copy.copy(pg_options) if pg_options is not None else Options()
    store, is_chosen = _store_of(grown, options.compression is not None)
    options.compression = grown.compression if is_chosen else None
    with _backend.given(grown):
        dist.init_process_group(backend, store=store, rank=grown.rank, world_size=grown.size, pg_options=options)
    assert dist.group.WORLD is not None
    return dist.group.WORLD


def _store_of(grown: Any, is_chosen: bool) -> tuple[Any, bool]:
    """A store that rank 0 serves: those that the ranks began with may have ended, and newcomers do not know them. And
    rank 0's flag."""
    if grown.rank == 0:
        host = grown.door.split(",")[0].rpartition(":")[0].strip("[]") or socket.gethostname()
        store = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
        grown.share(f"{host} {store.port} {is_chosen:d}")
        return store, is_chosen
    host, port, flag = grown.share("").rsplit(" ", 2)
    return dist.TCPStore(host, int(port), is_master=False), flag == "1"  # type: ignore[attr-defined]
