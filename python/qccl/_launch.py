"""init_distributed(): torch.distributed over QCCL under any launcher, with the arguments of DeepSpeed's function."""

import logging
import os
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch.distributed.constants import default_pg_timeout

from . import _C
from ._log import configure_log, section_of

_log = logging.getLogger("qccl")
_NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK")
_ANY_PORT = 29500  # DeepSpeed's default; here it means that rank 0 may choose


def init_distributed(
    dist_backend: str | None = None,
    auto_mpi_discovery: bool = True,
    distributed_port: int = _ANY_PORT,
    verbose: bool = True,
    timeout: timedelta = default_pg_timeout,
    init_method: str | None = None,
    dist_init_required: bool | None = None,
    config: Any = None,
    rank: int = -1,
    world_size: int = -1,
) -> None:
    """Makes torch.distributed's default process group, unless there is one, under any launcher.

        qccl.init_distributed()

    Takes deepspeed.init_distributed()'s arguments and needs no mpi4py: rank and world size come from the same sources
    as qccl::init()'s (docs/launchers.md). Sets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and
    MASTER_PORT in os.environ if they are not set, LOCAL_RANK and LOCAL_WORLD_SIZE only if the launcher provides them.

    Args:
        dist_backend: None is "qccl".
        auto_mpi_discovery: False leaves everything to torch, which requires the variables.
        distributed_port: for rank 0's store if the launcher sets no MASTER_PORT; 29500 lets rank 0 choose a free one.
        verbose: rank 0 logs the result, to the logger "qccl".
        timeout: of the group's operations, and of the search for all ranks.
        dist_init_required: False raises RuntimeError if there is no process group yet; None and True make one.
        config: DeepSpeed's configuration, as for configure_log(): its settings of the communication log, if any, apply
            from now on.
        rank: this process's, in place of the launcher's.
        world_size: this process's, in place of the launcher's.

    If a process group exists, only `config` is applied; a `dist_backend` that differs from the group's backend gives a
    warning. Raises ValueError for variables that are invalid or contradict each other.
    """
    if config is not None and section_of(config) is not None:
        configure_log(config)
    if dist.is_initialized():
        return _report_existing(dist_backend, verbose)
    if dist_init_required is False:
        raise RuntimeError(
            "there is no process group yet: call qccl.init_distributed() or torch.distributed.init_process_group() "
            "first, or do not pass dist_init_required=False"
        )
    if not isinstance(timeout, timedelta):
        raise TypeError(f"timeout must be a datetime.timedelta, got {type(timeout).__name__}")
    held = None
    if auto_mpi_discovery and init_method is None and not all(name in os.environ for name in _NEEDED):
        held = discover(distributed_port, timeout, rank, world_size)
    backend = dist_backend or "qccl"
    dist.init_process_group(backend, init_method=init_method, timeout=timeout, rank=rank, world_size=world_size)
    if verbose and dist.get_rank() == 0:
        source = held.source if held else "environment variables" if init_method is None else init_method
        _log.info("%d ranks with backend %s, ranks from %s", dist.get_world_size(), backend, source)


def _report_existing(dist_backend: str | None, verbose: bool) -> None:
    existing = dist.get_backend()
    if dist_backend is not None and dist_backend not in existing:
        _log.warning("the process group that exists has backend %s, not %s: it stays", existing, dist_backend)
    elif verbose and dist.get_rank() == 0:
        _log.info("there is a process group already, with backend %s", existing)


def discover(
    port: int = _ANY_PORT, timeout: timedelta = default_pg_timeout, rank: int = -1, world_size: int = -1
) -> _C.Launch:
    """Fills in os.environ. The result reserves rank 0's port until torch listens on it."""
    launch = _C.find_launch(
        rank=None if rank < 0 else rank,
        world=None if world_size < 0 else world_size,
        port=0 if port == _ANY_PORT else port,
        timeout_ms=None if timeout == default_pg_timeout else max(1, round(timeout.total_seconds() * 1000)),
    )
    found = {
        "RANK": launch.rank,
        "WORLD_SIZE": launch.world,
        "MASTER_ADDR": launch.master_address,
        "MASTER_PORT": launch.master_port,
    }
    os.environ.update({name: str(value) for name, value in found.items()})
    # One that is set may choose a device.
    if launch.local_rank >= 0:
        os.environ.setdefault("LOCAL_RANK", str(launch.local_rank))
    if launch.local_world > 0:
        os.environ.setdefault("LOCAL_WORLD_SIZE", str(launch.local_world))
    return launch
