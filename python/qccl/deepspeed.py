"""DeepSpeed over QCCL: its 1-bit optimizers with neither CuPy nor a GPU, and compressed gradients under ZeRO.

    deepspeed.init_distributed("qccl")
    qccl.deepspeed.install()
    config = {"optimizer": {"type": "OneBitAdam", "params": {"lr": 1e-3, "freeze_step": 100}}, ...}
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)

OneBitAdam, ZeroOneAdam and OneBitLamb are in DeepSpeed up to version 0.19.6. Under ZeRO, where DeepSpeed refuses them,
and in later versions, use

    qccl.deepspeed.set_compression(engine, "minmax:bits=4")
"""

import importlib.util
import sys
import types
from typing import Any

import torch
import torch.distributed as dist

from . import _C
from ._api import backend_of
from ._api import set_compression as set_group_compression

# The modules that the optimizers import when they are made, chosen by the `comm_backend_name` of their configuration.
# DeepSpeed's own need CuPy ("nccl", the default) or a device that can pack bits ("compressed").
_REPLACED = {
    "deepspeed.runtime.comm.nccl": "NcclBackend",
    "deepspeed.runtime.comm.compressed": "CompressedBackend",
}


class CompressedBackend:
    """The 1-bit all_reduce with the interface that DeepSpeed's optimizers call (include/qccl/onebit.h defines the
    computation). It runs over the data parallel group of `mpu`, or over all ranks. ValueError unless that group's
    backend is qccl.
    """

    def __init__(self, mpu: Any = None) -> None:
        group = dist.group.WORLD if mpu is None else mpu.get_data_parallel_group()
        self.world_group = group
        self.size = dist.get_world_size(group)
        self.rank = dist.get_rank(group)
        _C.traffic(backend_of(group))  # raises at once if the group has another backend

    @torch.no_grad()
    def compressed_allreduce(
        self,
        buffer_m: torch.Tensor,
        worker_error: torch.Tensor,
        server_error: torch.Tensor,
        local_rank: int | None = None,
    ) -> torch.Tensor:
        """The average of `buffer_m` over the ranks, written into it and returned: signs, and one scale per chunk.

        The errors are float32 and receive the new compression errors. worker_error has a multiple of 8 * size elements,
        at least as many as the buffer; server_error has 1/size of them. ValueError otherwise. `local_rank` is ignored.
        """
        values = buffer_m.float()  # the same tensor if it is float32
        _C.compressed_allreduce(backend_of(self.world_group), values, worker_error, server_error)
        return buffer_m if values is buffer_m else buffer_m.copy_(values)


def install() -> None:
    """Makes DeepSpeed's 1-bit optimizers send through QCCL, whether their `comm_backend_name` is "nccl", "compressed"
    or not given. Applies to the whole process; call it before deepspeed.initialize(). A second call changes nothing.

    Raises ImportError if DeepSpeed is not installed or no longer has the optimizers.
    """
    if importlib.util.find_spec("deepspeed") is None:
        raise ImportError("DeepSpeed is not installed")
    import deepspeed

    if importlib.util.find_spec("deepspeed.runtime.fp16.onebit") is None:
        raise ImportError(
            f"DeepSpeed {deepspeed.__version__} has no 1-bit optimizers: 0.19.6 was the last version with them. "
            "qccl.deepspeed.set_compression(engine, ...) compresses the gradients of any optimizer"
        )
    for name, backend in _REPLACED.items():
        module = types.ModuleType(name, "Put here by qccl.deepspeed.install().")
        setattr(module, backend, CompressedBackend)
        sys.modules[name] = module


def set_compression(engine: Any, compression: str) -> None:
    """Sets the compression of a DeepSpeed engine's gradients from now on, as qccl.set_compression() does for a group.

    Works under ZeRO 0 to 3 and with any optimizer. Call it on every rank between the same steps. Parameters, norms,
    flags and gradient buckets of less than 64 KiB stay uncompressed.
    """
    set_group_compression(engine.seq_data_parallel_group, compression)
