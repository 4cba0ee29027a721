"""torchft over QCCL: a process group that a torchft Manager makes anew for the replicas of every quorum.

    manager = torchft.Manager(pg=qccl.torchft.ProcessGroupQccl(), ...)
"""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torchft.process_group import ProcessGroupWrapper

from ._api import Options
from ._backend import create


class ProcessGroupQccl(ProcessGroupWrapper):  # type: ignore[misc]  # torchft's classes are untyped here
    """Beside torchft's ProcessGroupGloo. `options` are those of every group that it makes; the deadline of a group's
    operations is `options.timeout`, else `timeout`."""

    def __init__(self, timeout: timedelta = timedelta(seconds=60), options: Options | None = None) -> None:
        super().__init__(timeout)
        self._options = options

    def getBackendName(self) -> str:
        return "torchft-qccl"

    def _create_pg(self, store: Any, rank: int, world_size: int) -> dist.ProcessGroup:
        spec = SimpleNamespace(
            store=store,
            group_rank=rank,
            group_size=world_size,
            global_ranks_in_group=[],
            group_id=f"torchft quorum {self._quorum_id}",
            timeout=self._timeout,
        )
        group = dist.ProcessGroup(store, rank, world_size)
        group._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)
        backend: Any = create(spec, self._options)
        backend._set_sequence_number_for_group()
        group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.CUSTOM, backend)
        return group
