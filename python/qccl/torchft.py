"""torchft over QCCL: a process group that a torchft Manager makes anew for the replicas of every quorum, and the outer
loop whose ranks are a Manager's replicas.

    manager = torchft.Manager(pg=qccl.torchft.ProcessGroupQCCL(), use_async_quorum=False, ...)
    outer = qccl.torchft.OuterLoop(manager, model, every=100, compression="int:bits=4")
"""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any, SupportsIndex

import torch
import torch.distributed as dist
from torchft.process_group import ProcessGroupWrapper

from ._api import Options
from ._backend import create
from .outer import OuterLoop as _OuterLoop

_Losses = (dist.DistNetworkError, dist.DistBackendError)
_UNKNOWN = -1  # the round of a replica that has no state yet
_ALL = 2**62  # more rounds than any finish() has


class ProcessGroupQCCL(ProcessGroupWrapper):  # type: ignore[misc]  # torchft's classes are untyped here
    """Beside torchft's ProcessGroupGloo. `options` are those of every group that it makes; the deadline of a group's
    operations is `options.timeout`, else `timeout`."""

    def __init__(self, timeout: timedelta = timedelta(seconds=60), options: Options | None = None) -> None:
        super().__init__(timeout)
        self._options = options

    def getBackendName(self) -> str:
        """The name under which torchft knows it."""
        return "torchft-qccl"

    def _create_pg(self, store: Any, rank: int, world_size: int) -> dist.ProcessGroup:
        spec = SimpleNamespace(
            store=store,
            group_rank=rank,
            group_size=world_size,
            global_ranks_in_group=range(world_size),  # none would make it torch's default group
            group_id=f"torchft quorum {self._quorum_id}",
            timeout=self._timeout,
        )
        group = dist.ProcessGroup(store, rank, world_size)
        group._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)
        backend: Any = create(spec, self._options)
        backend._set_sequence_number_for_group()
        group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.CUSTOM, backend)
        return group


class OuterLoop(_OuterLoop):
    """qccl.outer.OuterLoop between the replicas of a Manager whose process group is a ProcessGroupQCCL.

    The manager makes a quorum before each round of step(), and one for finish(). Replicas that it has lost are left
    out and new ones taken in: a new replica makes its OuterLoop, and gets the global model, the outer optimizer's state
    and the number of steps. A round that fails is repeated by those that are left. The manager copies no checkpoints
    and counts no steps.

    Takes the arguments of qccl.outer.OuterLoop except `group`, `go_on`, `quorum` and `patience`, which are the
    manager's; `every` is a number of steps, and all replicas call finish() after the same number.

    Raises ValueError for wrong arguments, RuntimeError after the manager's `max_retries` failures in a row,
    TimeoutError if no quorum comes in its `quorum_timeout`.
    """

    def __init__(self, manager: Any, model: torch.nn.Module, *, every: SupportsIndex = 100, **arguments: Any) -> None:
        if isinstance(every, timedelta):
            raise ValueError("every is a number of steps: with a time, replicas would not meet in one quorum")
        if of_manager := {"group", "go_on", "quorum", "patience"} & arguments.keys():
            raise TypeError(f"the manager decides who takes part: leave out {', '.join(sorted(of_manager))}")
        self._manager = manager
        self._agreed_group: dist.ProcessGroup | None = None
        self._met = _UNKNOWN  # the last round for which replicas ask for no further quorum
        super().__init__(model, every=every, group=self._make_quorum(_UNKNOWN), **arguments)

    def step(self, samples: float = 1) -> None:
        """As qccl.outer.OuterLoop.step(), after a quorum where a round begins."""
        while self.begins_round and self._loop.rounds_begun > self._met:
            self._meet()
        super().step(samples)

    def finish(self) -> None:
        """As qccl.outer.OuterLoop.finish(), after a quorum."""
        if self._loop.rounds_begun > self._met:
            self._meet()
        self._met = _ALL
        try:
            super().finish()
        finally:
            self._met = self._loop.rounds_begun - 1

    def _meet(self) -> None:
        """Before a round begins."""
        self._loop.begin_waiting()
        self._manager._commit_failures = 0  # else each quorum makes a new group, and max_retries counts for good
        group = self._make_quorum(self._loop.rounds_begun)
        if group is not self.group:
            self.regroup(group)

    def _replace_group(self, loss: Exception) -> None:
        self._give_up(loss)
        self.group = self._make_quorum(max(self._loop.rounds, self._met))

    def _give_up(self, loss: Exception) -> None:
        self._manager.report_error(loss)
        self._manager.should_commit()  # no: the next quorum makes a new group

    def _make_quorum(self, for_round: int) -> dist.ProcessGroup:
        """Replicas that meet in a new group agree on the latest round that is then `_met`."""
        while True:
            self._manager.start_quorum(allow_heal=False)
            self._manager.wait_quorum()
            if self._manager.errored() is not None:  # the group could not be made: a replica was lost meanwhile
                self._manager.should_commit()
                continue
            group: dist.ProcessGroup = self._manager._pg.parent
            if group is self._agreed_group:
                self._met = for_round
                return group
            try:
                self._met = _largest(for_round, group)
            except _Losses as loss:
                self._give_up(loss)
                continue
            self._agreed_group = group
            return group


def _largest(number: int, group: dist.ProcessGroup) -> int:
    options = dist.AllreduceOptions()
    options.reduceOp = dist.ReduceOp(dist.ReduceOp.MAX)
    numbers = torch.tensor([number])
    group.allreduce([numbers], options).wait()
    return int(numbers)
