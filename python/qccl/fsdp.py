"""Compressed gradients for FSDP2 (fully_shard), with error feedback.

    import qccl.fsdp

    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    state = qccl.fsdp.State(model, "minmax:bits=4")

Without error feedback, the `compression` of qccl.Options is enough. `import qccl` does not import this module, because
importing torch's FSDP takes most of a second.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_api import ReduceScatter

from . import _C
from ._api import backend_of
from ._feedback import ErrorFeedback

_LEAST_BYTES = 64 << 10  # the same limit as for the compression of groups: docs/torch-compression.md


class State:
    """Compresses the gradients of FSDP2's modules, and keeps each module's residual on this rank.

    model: a module that fully_shard() was applied to, or that contains such modules. Each sharded module with
        parameters of its own reduce-scatters the gradients of all of them as one tensor.
    compression: of such tensors of at least 64 KiB: "minmax:bits=4". Smaller ones are sent uncompressed.
    error_feedback: adds a tensor's compression error to the next one; costs two float32 for each element.

    All ranks must give the same. Raises ValueError if nothing is sharded, for an unknown compression, or if
    fully_shard() was given a shard_placement_fn that splits a module into several groups.
    """

    def __init__(self, model: torch.nn.Module, compression: str = "minmax:bits=8", error_feedback: bool = True) -> None:
        compression = _C.check_compression(compression)
        self._parts = {
            name: _CompressedReduceScatter(compression, error_feedback)
            for name, module in model.named_modules()
            if isinstance(module, FSDPModule)
        }
        if not self._parts:
            raise ValueError("no part of the model is sharded: call fully_shard() first")
        for name, part in self._parts.items():
            module: Any = model.get_submodule(name)
            module.set_custom_reduce_scatter(part)

    def state_dict(self) -> dict[str, Any]:
        """This rank's checkpoint: with as many ranks, steps after load_state_dict() give the same bits as without
        interruption."""
        kept = {name: part.state_dict() for name, part in self._parts.items() if part.feedback is not None}
        return {"rank": dist.get_rank(), "modules": kept}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from a checkpoint, in the same model. All ranks load one.

        The element order of a residual depends on the number of ranks that the gradient is sharded over. A rank
        therefore restores its residual only from a checkpoint of the same rank among as many ranks. Otherwise its
        residual is zero, but it takes over the call counters. If the number of ranks has changed, each rank loads any
        rank's checkpoint, and the residuals are lost, once.

        Raises ValueError if `state` is not a checkpoint, or one of another model, and DistNetworkError if it is
        damaged; the state is then unchanged.
        """
        if not isinstance(state, dict) or not {"rank", "modules"} <= set(state):
            raise ValueError("this is no checkpoint of a qccl.fsdp.State: it has no 'rank' and 'modules'")
        unknown = [name for name in state["modules"] if name not in self._parts]
        if unknown:
            raise ValueError(f"the checkpoint is of another model: this one has no sharded module {unknown[0]!r}")
        restored = {name: ErrorFeedback.from_state_dict(saved) for name, saved in state["modules"].items()}
        if state["rank"] != dist.get_rank():
            restored = {name: ErrorFeedback(each.size, each.counter) for name, each in restored.items()}
        for name, part in self._parts.items():
            part.feedback = restored.get(name)
            part.shards = state["modules"][name]["shards"] if name in restored else 0

    def reset(self) -> None:
        """Drops all residuals. Call it on all ranks, after an operation has failed."""
        for part in self._parts.values():
            part.feedback = None


class _CompressedReduceScatter(ReduceScatter):
    def __init__(self, compression: str, error_feedback: bool) -> None:
        self._compression = compression
        self._error_feedback = error_feedback
        self.feedback: ErrorFeedback | None = None
        self.shards = 0  # number of ranks that determines the feedback's element order

    def state_dict(self) -> dict[str, Any]:
        return {} if self.feedback is None else {"shards": self.shards, **self.feedback.state_dict()}

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
        small = input_tensor.nbytes < _LEAST_BYTES
        compression = "none" if small else self._compression
        state = None if compression == "none" else self._state(input_tensor.numel(), group.size())
        part = _C.CompressedPart(input_tensor, compression, state)
        work = _C.reduce_scatter(backend_of(group), part, output_tensor, op, async_op)
        return work if async_op else None

    def _state(self, count: int, shards: int) -> _C.ErrorFeedback | None:
        if not self._error_feedback:
            return None
        if self.feedback is None or (self.feedback.size, self.shards) != (count, shards):
            # Parameters have been frozen or thawed, or the feedback is from another number of ranks. Then the residual
            # is zero, and all ranks keep the counter.
            self.feedback = ErrorFeedback(count, 0 if self.feedback is None else self.feedback.counter)
            self.shards = shards
        return self.feedback._state
