"""DeepSpeed over QCCL: its 1-bit optimizers with neither CuPy nor a GPU, and compressed gradients under ZeRO.

    deepspeed.init_distributed("qccl")
    qccl.deepspeed.install()
    config = {"optimizer": {"type": "OneBitAdam", "params": {"lr": 1e-3, "freeze_step": 100}}, ...}
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)

OneBitAdam, ZeroOneAdam and OneBitLamb are in DeepSpeed up to version 0.19.6. Under ZeRO, where DeepSpeed refuses them,
and in later versions there is

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

# What the optimizers import, by the `comm_backend_name` of their configuration, when they are made. DeepSpeed's own
# want CuPy ("nccl", which is the default) or a device that can pack bits ("compressed").
_REPLACED = {
    "deepspeed.runtime.comm.nccl": "NcclBackend",
    "deepspeed.runtime.comm.compressed": "CompressedBackend",
}


class CompressedBackend:
    """The 1-bit all_reduce in the form in which DeepSpeed's optimizers call it (include/qccl/onebit.h says what it
    computes). Over the data parallel group of `mpu`, or all ranks; they must be of the backend qccl, else ValueError.
    """

    def __init__(self, mpu: Any = None) -> None:
        group = dist.group.WORLD if mpu is None else mpu.get_data_parallel_group()
        self.world_group = group
        self.size = dist.get_world_size(group)
        self.rank = dist.get_rank(group)
        _C.traffic(backend_of(group))  # raises at once if it is another backend

    @torch.no_grad()
    def compressed_allreduce(
        self,
        buffer_m: torch.Tensor,
        worker_error: torch.Tensor,
        server_error: torch.Tensor,
        local_rank: int | None = None,
    ) -> torch.Tensor:
        """The average of `buffer_m` over the ranks, written into it and returned; a sign and a scale a chunk.

        The errors are float32 and become what that lost. worker_error has a multiple of 8 * size elements, at least as
        many as the buffer; server_error has a size-th of them. ValueError otherwise. `local_rank` changes nothing.
        """
        values = buffer_m.float()  # itself, if it is float32
        _C.compressed_allreduce(backend_of(self.world_group), values, worker_error, server_error)
        return buffer_m if values is buffer_m else buffer_m.copy_(values)


def install() -> None:
    """Makes DeepSpeed's 1-bit optimizers send through QCCL, whether their `comm_backend_name` is "nccl", "compressed"
    or not given. For the whole process; before deepspeed.initialize(). Doing it again changes nothing.

    Raises ImportError where DeepSpeed is not installed or no longer has the optimizers.
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
    """What an engine of DeepSpeed sends its gradients as from now on, as qccl.set_compression() does for a group.

    Under ZeRO 0 to 3, for any optimizer, and on every rank between the same steps. Parameters, norms and flags stay as
    they are, as do gradient buckets of less than 64 KiB.
    """
    set_group_compression(engine.seq_data_parallel_group, compression)
