"""The calls that torch.distributed lacks: compression and traffic of a process group."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from . import _C
from ._C import Options as Options
from ._feedback import ErrorFeedback


class Policy:
    """Chooses the compression of a tensor by its name, size, dimensions and type, and by the training step.

        policy = qccl.Policy("warmup=100; name=*.embed* minmax:bits=8; minmax:bits=8 @1000 minmax:bits=4")
        policy.choose("h.0.mlp.weight", gradient, step)

    The first rule that matches applies. A rule has conditions (name=GLOB|GLOB, bytes=64K.., dims=2.., type=float32|
    float16|bfloat16) and a compression, which `@STEP SPEC` changes from that step on. By default a rule applies to
    tensors of at least 64 KiB and two dimensions. Nothing is compressed before step `warmup`. Tensors of other types,
    or that no rule matches, are never compressed. A compression may be `budget=BITS`: qccl.ddp.State then gives each of
    the rule's tensors a step of codec grid; elsewhere `grid:entropy=rans` stands in.

    Raises ValueError, listing the valid forms, for a text that is not a policy.
    """

    def __init__(self, text: str) -> None:
        self._policy = _C.Policy(text)

    def choose(self, name: str, tensor: torch.Tensor, step: int) -> str:
        """The compression, as text. The same arguments always give the same result."""
        return self._policy.choose(name, tensor, step)

    def budget(self, name: str, tensor: torch.Tensor, step: int) -> float:
        """The budget of the rule that fits, in bits an element; 0 if that names a compression."""
        return self._policy.budget(name, tensor, step)

    def __repr__(self) -> str:
        return f"qccl.Policy({str(self._policy)!r})"


@dataclass(frozen=True)
class Traffic:
    """Bytes this rank has sent since it joined, summed over all process groups that share its connections."""

    payload_bytes_sent: int
    """Codes and data, without frame headers."""
    header_bytes_sent: int
    """Frame headers and control messages."""
    shared_bytes_sent: int
    """Small operations that peers on the same host read from shared memory."""

    @property
    def bytes_sent(self) -> int:
        """The sum of the three counters."""
        return self.payload_bytes_sent + self.header_bytes_sent + self.shared_bytes_sent


def all_reduce(
    tensor: torch.Tensor,
    op: Any = dist.ReduceOp.SUM,
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
    *,
    compression: str | None = None,
    error_feedback: ErrorFeedback | None = None,
    keep_input: bool = False,
) -> dist.Work | None:
    """dist.all_reduce() with its own compression, which applies to tensors of any size.

    Args:
        compression: as in Options; None uses the group's, "none" sends the tensor uncompressed.
        error_feedback: this tensor's, with as many elements; only for sums and averages of floating point tensors.
        keep_input: if the call fails, the tensor is what it was before, so that the call can be repeated; costs one
            copy.

    All ranks must give the same. Sparse tensors are never compressed: without the first two arguments they are added as
    by dist.all_reduce().

    Raises NotImplementedError if the type, operation or layout can't be compressed; ValueError for an unknown
    compression, an error feedback of another size, or a rank that is not in the group; and the errors of
    dist.all_reduce() if the operation fails.
    """
    state = None if error_feedback is None else error_feedback._state
    part = _C.CompressedPart(tensor, compression, state, keep_input)
    work = _C.all_reduce_parts(backend_of(group), [part], tensor, op, async_op)
    return work if async_op else None


def send(
    tensor: torch.Tensor,
    dst: int,
    group: dist.ProcessGroup | None = None,
    tag: int = 0,
    *,
    compression: str | None = None,
    error_feedback: ErrorFeedback | None = None,
    async_op: bool = False,
) -> dist.Work | None:
    """dist.send() with its own compression, which applies to tensors of any size; with async_op, dist.isend().

    Args:
        dst: as in dist.send(), the receiver's rank in the world.
        compression: of a floating point tensor, as in Options. None: the group's message_compression, else
            QCCL_MESSAGE_COMPRESSION; "none": uncompressed. The receiver gives the same, and gets what one encoding
            leaves, within the codec's bound.
        error_feedback: the sender's, of as many elements: the error of this message is added to the next one with it.
            One for each receiver and use of a tag; wait for a message before the next.

    Raises NotImplementedError if the type can't be compressed; ValueError for an unknown compression, an error feedback
    of another size, or a rank that is not in the group; and the errors of dist.send() if the operation fails, on both
    ranks also where their tensors or compressions differ.
    """
    state = None if error_feedback is None else error_feedback._state
    part = _C.CompressedPart(tensor, compression, state)
    work: dist.Work = _C.send(backend_of(group), part, _rank_in(group, dst), tag)
    if async_op:
        return work
    work.wait()
    return None


def recv(
    tensor: torch.Tensor,
    src: int | None = None,
    group: dist.ProcessGroup | None = None,
    tag: int = 0,
    *,
    compression: str | None = None,
    async_op: bool = False,
) -> dist.Work | int:
    """dist.recv() of what qccl.send() sends with the same compression; with async_op, dist.irecv().

    Args:
        src: as in dist.recv(), the sender's rank in the world; None takes a message of any rank. Without async_op,
            returns it.

    Raises what send() raises.
    """
    part = _C.CompressedPart(tensor, compression, None)
    any_source = -1
    work: dist.Work = _C.recv(backend_of(group), part, any_source if src is None else _rank_in(group, src), tag)
    if async_op:
        return work
    work.wait()
    if src is not None:
        return src
    found: Any = group or dist.group.WORLD
    return dist.get_global_rank(found, work._source_rank())


def _rank_in(group: dist.ProcessGroup | None, rank: int) -> int:
    return rank if group is None else dist.get_group_rank(group, rank)


def set_compression(group: dist.ProcessGroup | None, compression: str) -> None:
    """Sets the compression of the group's later reductions; None means the default group.

    Call it between the same collectives on every rank: if ranks differ, their next reduction fails.

    Raises ValueError, listing the valid values, for an unknown compression, and if this rank is not in the group or
    the group is not qccl's.
    """
    _C.set_compression(backend_of(group), compression)


def traffic(group: dist.ProcessGroup | None = None) -> Traffic:
    """This rank's counters; None means those of all groups of this process that are open, also where the default group
    is another backend's.

    Raises ValueError if this rank is not in the group, the group is not qccl's, or the process has no group of qccl's;
    DistBackendError once the group is closed.
    """
    counters = _C.traffic_of_process() if group is None else [_C.traffic(backend_of(group))]
    if not counters:
        raise ValueError("this process has no open process group of the qccl backend")
    return Traffic(*map(sum, zip(*counters, strict=True)))


def empty(
    *size: int | Sequence[int], dtype: torch.dtype | None = None, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    """A tensor of zeros. If all ranks of the group run on one host, they map each other's; otherwise it is ordinary.

    all_reduce of a mapped tensor, or of the same slice of it on every rank, works in place without copies: several
    times as fast. Either all ranks pass their mapped tensor or none does. Collective over the group: all ranks call it
    with the same size. `size` and `dtype` as for torch.empty(); None for `group` means the default group.

        gradient = qccl.empty(1024, 1024)
        dist.all_reduce(gradient)

    Raises ValueError for sizes that are negative or too large, and if this rank is not in the group or the group is
    not qccl's; an error of torch.distributed if a rank is lost, asks for another size or is out of memory.
    """
    extents = [extent for each in size for extent in ([each] if isinstance(each, int) else each)]
    return _C.empty(backend_of(group), extents, dtype or torch.get_default_dtype())


def describe(group: dist.ProcessGroup | None = None) -> str:
    """The group in words, for logs: this rank's place in it and in the world, and how it reaches its peers.

    Peers are given by their ranks in the world, as in errors. It ends with the backend that the program asked for, if
    QCCL_REPLACE put QCCL in its place.

    Raises ValueError if this rank is not in the group or the group is not qccl's, DistBackendError once the group is
    closed.
    """
    text = _C.describe(backend_of(group))
    found: Any = group or dist.group.WORLD
    asked = getattr(dist.distributed_c10d._world.pg_map.get(found, ("",))[0], "asked", "")
    return f"{text}, qccl in place of {asked}" if asked else text


def trace(group: dist.ProcessGroup | None = None) -> dict[str, Any]:
    """The last operations of this rank's process groups that share connections with `group` (None: the default group).

    It has the format of torch's flight recorder: "pg_config", "pg_status" and "entries", an entry for each of the last
    2000 operations, with its sequence number, shapes, times and state: "started", "completed" or "failed". The "#7" of
    an error is an entry's "qccl_seq_id", not its "collective_seq_id", which is c10d's. With QCCL_TRACE_DUMP=PREFIX set,
    the first failure of a group writes the trace to PREFIX<rank>, as torch's tool `torchfrtrace` reads it.

    Raises ValueError if this rank is not in the group or the group is not qccl's.
    """
    recorded: dict[str, Any] = json.loads(_C.trace(backend_of(group)))
    return recorded


@dataclass
class TimeEstimate:
    """What time_estimator() yields."""

    microseconds: float | None = None
    """Of all calls together, one after the other; None until the block ends."""


@contextmanager
def time_estimator(group: dist.ProcessGroup | None = None) -> Iterator[TimeEstimate]:
    """Predicts how long this thread's collectives and messages of the group would take, without making them.

        with qccl.time_estimator() as estimate:
            dist.all_reduce(gradient)
        print(estimate.microseconds)

    Local: only the rank that asks calls it. The cost model computes the time from the algorithm and compression that
    each call would have, and from the profile (`qccl doctor --measure`). Tensors stay as they are. With torch 2.15 and
    later dist._time_estimator() does the same.

    Raises ValueError if this rank is not in the group or the group is not qccl's, NotImplementedError for sparse sums,
    whose time depends on other ranks' elements.
    """
    backend = backend_of(group)
    estimate = TimeEstimate()
    _C.start_time_estimate(backend)
    try:
        yield estimate
    finally:
        estimate.microseconds = _C.end_time_estimate(backend)


def monitored_barrier(
    group: dist.ProcessGroup | None = None, timeout: timedelta | None = None, wait_all_ranks: bool = False
) -> None:
    """torch.distributed.monitored_barrier() for qccl: before 2.15 torch's refuses backends not named gloo.

    Rank 0 names the first rank that did not arrive within `timeout` (None: the group's), or all of them with
    `wait_all_ranks`. The group is then lost. On a rank that is not in the group it returns at once.

    Raises DistNetworkError on rank 0 if ranks are missing, on the other ranks if rank 0 does not answer, and at once
    for a timeout of 0.
    """
    barrier_group: Any = group or dist.group.WORLD
    if barrier_group is dist.GroupMember.NON_GROUP_MEMBER:
        return
    limit = {} if timeout is None else {"timeout": timeout}
    barrier_group.monitored_barrier(**limit, wait_all_ranks=wait_all_ranks)


def backend_of(group: dist.ProcessGroup | None) -> Any:
    """The group's c10d backend: qccl's, if one of its devices has that. The functions of _C require it to be qccl's.

    Raises ValueError if there is no such group, or this rank is not in it.
    """
    # A rank that is not a member gets a number from torch in place of a group.
    found: Any = group or dist.group.WORLD
    if found is dist.GroupMember.NON_GROUP_MEMBER:
        raise ValueError(f"rank {dist.get_rank()} is not in this process group: only its members can call this")
    if found is None:
        raise ValueError("the default process group is not initialised: call init_process_group first")
    devices = sorted(found._device_types, key=lambda device: device.type != "cpu")
    # TORCH_DISTRIBUTED_DEBUG=DETAIL puts a wrapper around every backend.
    backends = [getattr(backend, "wrapped_pg", backend) for backend in map(found._get_backend, devices)]
    return next((backend for backend in backends if backend.name() == "qccl"), backends[0])
