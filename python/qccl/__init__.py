"""QCCL: compressed collectives for PyTorch over networks where the wire is the bottleneck.

    import torch.distributed as dist
    import qccl

    dist.init_process_group("qccl", pg_options=qccl.Options(compression="minmax:bits=4"))

torch.distributed then works as with other backends. Reductions (SUM and AVG) of floating point tensors of at
least 64 KiB are sent compressed, as set by the options or set_compression(). The environment variable
QCCL_COMPRESSION compresses only the gradients of DDP and FSDP. Nothing else is compressed, and without any of these
settings nothing is.
"""

import qccl_autoload

from ._check import extension_folder

__path__.insert(0, extension_folder())  # _C

from . import _C, ddp, deepspeed, mesh, outer, pipeline  # noqa: E402
from ._api import (  # noqa: E402
    Options,
    Policy,
    Traffic,
    all_reduce,
    describe,
    empty,
    monitored_barrier,
    recv,
    send,
    set_compression,
    time_estimator,
    trace,
    traffic,
)
from ._failures import LostRank, failed, shrink  # noqa: E402
from ._feedback import ErrorFeedback  # noqa: E402
from ._growth import door, grow, join  # noqa: E402
from ._launch import init_distributed  # noqa: E402
from ._log import comms_logger, configure_log, log_summary, save_log  # noqa: E402
from ._scalars import scalars  # noqa: E402

__version__: str = _C.version()
__all__ = [
    "ErrorFeedback",
    "LostRank",
    "Options",
    "Policy",
    "Traffic",
    "all_reduce",
    "comms_logger",
    "configure_log",
    "ddp",
    "deepspeed",
    "describe",
    "door",
    "empty",
    "failed",
    "grow",
    "init_distributed",
    "join",
    "log_summary",
    "mesh",
    "monitored_barrier",
    "outer",
    "pipeline",
    "recv",
    "save_log",
    "scalars",
    "send",
    "set_compression",
    "shrink",
    "time_estimator",
    "trace",
    "traffic",
    "__version__",
]

qccl_autoload.register()
