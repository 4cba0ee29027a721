"""Compressed gradients for FSDP2 (fully_shard), with error feedback.

    import qccl.fsdp

    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    state = qccl.fsdp.State(model, "minmax:bits=4")

With one set of shards on each host (docs/gpu-hosts.md), shard over the hosts' own groups, and name the group between:

    mesh = init_device_mesh("cuda", (hosts, 8), mesh_dim_names=("replicate", "shard"),
                            backend_override={"replicate": "qccl", "shard": "nccl"})
    fully_shard(model, mesh=mesh["shard"])
    state = qccl.fsdp.State(model, "int:bits=4", replicate=mesh["replicate"])

Without error feedback, the `compression` of qccl.Options is enough. `import qccl` does not import this module, because
importing torch's FSDP takes most of a second.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_api import ReduceScatter

from . import _C
from ._api import backend_of
from ._feedback import ErrorFeedback

_LEAST_BYTES = 64 << 10  # the same limit as for the compression of groups: docs/torch-compression.md


class State:
    """Compresses the gradients of FSDP2's modules, and keeps each module's residual on this rank.

    Args:
        model: a module that fully_shard() was applied to, or that contains such modules. Each sharded module with
            parameters of its own reduce-scatters the gradients of all of them as one tensor.
        compression: of such tensors of at least 64 KiB: "minmax:bits=4". Smaller ones are sent uncompressed.
        error_feedback: adds a tensor's compression error to the next one; costs two float32 for each element.
        replicate: None compresses the reduce-scatters, over the group that the model is sharded over, which is qccl's.
            A one-dimensional mesh or a process group of qccl's leaves them as they are, whatever their backend. After
            each, it averages the shard over the ranks that have the same shard, on the other hosts, with compression
            and a residual for each shard. The result is that of torch's HSDP, as are the effects of
            set_requires_all_reduce(), set_gradient_divide_factor() and of a policy's reduce_dtype.

    All ranks must give the same. Raises ValueError if nothing is sharded, for an unknown compression, if fully_shard()
    was given a shard_placement_fn that splits a module into several groups, and for a group that is not qccl's; with
    `replicate` also if fully_shard() was given both dimensions, or if the group meets that of the shards in another
    rank. TypeError if `replicate` is neither mesh nor group.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        compression: str = "minmax:bits=8",
        error_feedback: bool = True,
        replicate: DeviceMesh | dist.ProcessGroup | None = None,
    ) -> None:
        compression = _C.check_compression(compression)
        between = None if replicate is None else _group_of(replicate)
        modules: dict[str, Any] = {name: each for name, each in model.named_modules() if isinstance(each, FSDPModule)}
        if not modules:
            raise ValueError("no part of the model is sharded: call fully_shard() first")
        for name, module in modules.items():
            for unit in _units_of(module):
                _check_groups(name, unit, between)
        self._parts: dict[str, _Part] = {}
        for name, module in modules.items():
            if between is None:
                scatter = _CompressedReduceScatter(compression, error_feedback)
                module.set_custom_reduce_scatter(scatter)
                self._parts[name] = scatter
            else:
                average = _CompressedAverage(compression, error_feedback, between, name, _units_of(module))
                module.set_all_reduce_hook(average)
                self._parts[name] = average

    def state_dict(self) -> dict[str, Any]:
        """This rank's checkpoint: with as many ranks, steps after load_state_dict() give the same bits as without
        interruption. Take it between steps, not while gradients are accumulated.

        It can also be part of a checkpoint of torch.distributed.checkpoint, as can the State itself: its keys are the
        same on all ranks, apart from one with the rank for each residual.
        """
        return {"modules": {name: part.state_dict() for name, part in self._parts.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from a checkpoint, in the same model. All ranks load one.

        The element order of a residual depends on the number of ranks that the gradient is sharded over. A rank
        therefore restores its residual only from a checkpoint of the same rank among as many ranks. Otherwise its
        residual is zero, but it takes over the call counters. If the number of ranks has changed, each rank loads any
        rank's checkpoint, and the residuals are lost, once.

        Raises ValueError if `state` is not a checkpoint, or one of another model, and DistNetworkError if it is
        damaged; the state is then unchanged.
        """
        if not isinstance(state, Mapping) or not isinstance(state.get("modules"), Mapping):
            raise ValueError("this is no checkpoint of a qccl.fsdp.State: it has no 'modules'")
        unknown = [name for name in state["modules"] if name not in self._parts]
        if unknown:
            raise ValueError(f"the checkpoint is of another model: this one has no sharded module {unknown[0]!r}")
        restored = {name: _restored(name, saved) for name, saved in state["modules"].items()}
        for name, part in self._parts.items():
            part.feedback, part.sizes = restored.get(name, (None, (0, 0)))
            part.partial = None

    def reset(self) -> None:
        """Drops all residuals, and what was accumulated. Call it on all ranks, after an operation has failed."""
        for part in self._parts.values():
            part.feedback = None
            part.partial = None


def _group_of(replicate: Any) -> dist.ProcessGroup:
    if isinstance(replicate, DeviceMesh):
        if replicate.ndim != 1:
            raise ValueError(
                f"replicate is a mesh of {replicate.ndim} dimensions, {replicate}: give the one between the hosts, as "
                'mesh["replicate"]'
            )
        replicate = replicate.get_group()
    elif not isinstance(replicate, dist.ProcessGroup) and replicate is not dist.GroupMember.NON_GROUP_MEMBER:
        raise TypeError(
            f"replicate must be a one-dimensional DeviceMesh or a process group, got {type(replicate).__name__}: give "
            'mesh["replicate"]'
        )
    name = backend_of(replicate).name()
    if name != "qccl":
        raise ValueError(
            f"rank {dist.get_rank()}: the group between hosts, replicate, is of backend {name}, which does not "
            'compress: make it one of qccl\'s, with init_device_mesh(..., backend_override={"replicate": "qccl"})'
        )
    group: dist.ProcessGroup = replicate
    return group


def _units_of(module: Any) -> list[Any]:
    """torch's parameter groups of a sharded module: at most one, or several by shard_placement_fn."""
    state = module._get_fsdp_state()
    if hasattr(state, "_fsdp_param_groups"):
        return list(state._fsdp_param_groups)
    return [] if state._fsdp_param_group is None else [state._fsdp_param_group]  # torch 2.11


def _check_groups(name: str, unit: Any, between: dist.ProcessGroup | None) -> None:
    """Raises ValueError where the groups of the shards and between the hosts don't fit the work that State takes on."""
    shards = getattr(unit.mesh_info, "shard_process_group", None)
    copies = getattr(unit.mesh_info, "replicate_process_group", None)
    rank, module = dist.get_rank(), _words(name)
    if between is None:
        backend = "qccl" if shards is None else backend_of(shards).name()
        if backend != "qccl":
            raise ValueError(
                f"rank {rank}: {module} is sharded over a group of backend {backend}, which does not compress: shard "
                "over a group of qccl's, or give State the group between the hosts, replicate=mesh['replicate']"
            )
        return
    if copies is not None:
        raise ValueError(
            f"rank {rank}: {module} is sharded over a mesh with a dimension of replicas, so torch sums between hosts "
            "itself, before State could: call fully_shard(..., mesh=mesh['shard']) and give State "
            "replicate=mesh['replicate']"
        )
    own = set(dist.get_process_group_ranks(shards)) if shards is not None else {rank}
    met = sorted(own & set(dist.get_process_group_ranks(between)))
    if met != [rank]:
        raise ValueError(
            f"rank {rank}: replicate and the group that {module} is sharded over both have ranks {met}: they may have "
            "only this rank in common, as two dimensions of one mesh"
        )


def _words(name: str) -> str:
    return f"module {name!r}" if name else "the model's root module"


def _restored(name: str, saved: Any) -> tuple[ErrorFeedback | None, tuple[int, int]]:
    """A module's feedback, and the numbers of shards and hosts that it is for."""
    if not isinstance(saved, Mapping) or not {"calls", "shards", "hosts", "residual"} <= set(saved):
        raise ValueError(
            f"this is no checkpoint of a qccl.fsdp.State: that of {_words(name)} has no 'calls', 'shards', 'hosts' and "
            "'residual'"
        )
    calls, sizes = saved["calls"], (saved["shards"], saved["hosts"])
    if calls == 0:
        return None, sizes
    own = saved["residual"].get(str(dist.get_rank()), ())
    if own:
        feedback = ErrorFeedback.from_state_dict({"saved": own[0]})
        if feedback.counter == calls:
            return feedback, sizes
    return ErrorFeedback(0, calls), sizes  # of no tensor's size, so the first use keeps the counter alone


class _Part:
    """One sharded module's compression and residual."""

    def __init__(self, compression: str, error_feedback: bool) -> None:
        self._compression = compression
        self._error_feedback = error_feedback
        self.feedback: ErrorFeedback | None = None
        self.sizes = (0, 0)  # numbers of shards and hosts, which determine the feedback's order and unit
        self.partial: torch.Tensor | None = None

    def state_dict(self) -> dict[str, Any]:
        """Has the same keys at any time, and a tensor in a tuple, which is one object to distributed checkpoints: these
        restore only keys that are there before, tensors only to the same size, and of several ranks' key one's value.
        """
        feedback, (shards, hosts) = self.feedback, self.sizes
        saved = () if feedback is None else (feedback.state_dict()["saved"],)
        calls = 0 if feedback is None else feedback.counter
        return {"calls": calls, "shards": shards, "hosts": hosts, "residual": {str(dist.get_rank()): saved}}

    def _compressed(self, tensor: torch.Tensor, shards: int, hosts: int) -> _C.CompressedPart:
        compression = "none" if tensor.nbytes < _LEAST_BYTES else self._compression
        state = None if compression == "none" else self._state(tensor.numel(), (shards, hosts))
        return _C.CompressedPart(tensor, compression, state)

    def _state(self, count: int, sizes: tuple[int, int]) -> _C.ErrorFeedback | None:
        if not self._error_feedback:
            return None
        if self.feedback is None or (self.feedback.size, self.sizes) != (count, sizes):
            # Parameters have been frozen or thawed, or the feedback is from another number of ranks. Then the residual
            # is zero, and all ranks keep the counter.
            self.feedback = ErrorFeedback(count, 0 if self.feedback is None else self.feedback.counter)
            self.sizes = sizes
        return self.feedback._state


class _CompressedReduceScatter(_Part, ReduceScatter):
    def allocate(self, size: Sequence[int | torch.SymInt], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> dist.Work | None:
        part = self._compressed(input_tensor, group.size(), 1)
        work = _C.reduce_scatter(backend_of(group), part, output_tensor, op, async_op)
        return work if async_op else None


class _CompressedAverage(_Part):
    """The all-reduce hook: torch calls it with a shard of the gradient, which is reduced over this host's ranks."""

    def __init__(
        self, compression: str, error_feedback: bool, group: dist.ProcessGroup, name: str, units: list[Any]
    ) -> None:
        super().__init__(compression, error_feedback)
        self._group = group
        self._name = name
        self._units = units

    def __call__(self, shard: torch.Tensor) -> None:
        (unit,) = self._units
        if shard.is_cuda:
            # It belongs to the stream of reduce-scatters, and up to torch 2.14 nothing else keeps its memory from the
            # next one while this stream uses it.
            shard.record_stream(torch.cuda.current_stream())
        if self.partial is not None:
            shard += self._accumulated(shard)
        if not unit.all_reduce_grads:
            # torch adds what the hook leaves to the parameters' gradients, so it must be nothing before the last.
            self.partial = shard.clone()
            shard.zero_()
            return
        self.partial = None
        try:
            self._average(shard, unit)
        except dist.DistError as error:
            ranks = dist.get_process_group_ranks(self._group)
            what = f"the average of {_words(self._name)} between ranks {ranks} of the world"
            raise type(error)(f"rank {dist.get_rank()}: {what} failed: {error}") from error

    def _accumulated(self, shard: torch.Tensor) -> torch.Tensor:
        if self.partial is None or self.partial.shape != shard.shape:
            before = 0 if self.partial is None else self.partial.numel()
            raise ValueError(
                f"{_words(self._name)} has gradients of {shard.numel()} elements on rank {dist.get_rank()}, after "
                f"{before} in the backward passes before, which are accumulated: all must reach the same parameters"
            )
        return self.partial

    def _average(self, shard: torch.Tensor, unit: Any) -> None:
        """Divides as torch's HSDP does: never if the program has set a divisor of its own, for float16 in two steps of
        about the same size, because its sums could overflow, and within the operation otherwise."""
        hosts = self._group.size()
        if unit.gradient_divide_factor is not None:
            self._all_reduce(shard, dist.ReduceOp.SUM, unit)
        elif shard.dtype in (torch.float32, torch.bfloat16):
            self._all_reduce(shard, dist.ReduceOp.AVG, unit)
        else:
            before = 1 << (hosts.bit_length() - 1) // 2
            shard /= before
            self._all_reduce(shard, dist.ReduceOp.SUM, unit)
            shard /= hosts / before

    def _all_reduce(self, shard: torch.Tensor, op: Any, unit: Any) -> None:
        shards = getattr(unit.mesh_info, "shard_mesh_size", 1)
        part = self._compressed(shard, shards, self._group.size())
        _C.all_reduce_parts(backend_of(self._group), [part], shard, op, False)
