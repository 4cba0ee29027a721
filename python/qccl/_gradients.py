"""Tells the sums of gradients, which QCCL_COMPRESSION compresses, from all other sums."""

import logging
import os
import sys
from types import FrameType

import torch

_log = logging.getLogger("qccl")

# What these sum are gradients, but for counters of a few bytes: DDP (its reducer, where Python calls it), FSDP, and
# torch's own hooks of both, without those that sum something else in a gradient's place.
_GRADIENT_CALLERS = (
    "torch.nn.parallel.distributed",
    "torch.distributed.fsdp",
    "torch.distributed.algorithms.ddp_comm_hooks.default_hooks",
    "torch.distributed.algorithms.ddp_comm_hooks.mixed_precision_hooks",
    "torch.distributed.algorithms._comm_hooks.default_hooks",
)
# They make the calls of others.
_PASSED = (
    "torch.distributed.distributed_c10d",
    "torch.distributed.c10d_logger",
    "torch.distributed._functional_collectives",
    "torch._ops",
    "contextlib",
    "typing_extensions",
    "deepspeed.comm",
    "deepspeed.utils",
    "qccl",
)
_AUTOGRAD = "torch.autograd.graph"  # waits for the engine, in whose C++ DDP's reducer makes its sums


def find_caller() -> tuple[bool, str]:
    """Whether the function that starts a sum in this thread sums gradients, and its name. For C++."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and _is_in(_module_of(frame), _PASSED):
        frame = frame.f_back
    if frame is None or _module_of(frame) == _AUTOGRAD:
        return (True, "torch.nn.parallel.distributed") if _is_reducer() else (False, "C++")
    name = f"{_module_of(frame)}.{frame.f_code.co_name}"
    named = [caller.strip() for caller in os.environ.get("QCCL_COMPRESSION_CALLERS", "").split(",")]
    return "*" in named or _is_in(name, (*_GRADIENT_CALLERS, *named)), name


def log_sums(group: str, compression: str, caller: str, are_compressed: bool) -> None:
    if are_compressed:
        _log.info("group %s: QCCL_COMPRESSION sends gradients with %s, first those of %s", group, compression, caller)
    else:
        _log.warning(
            "group %s: QCCL_COMPRESSION leaves what %s sums as it is, because nothing shows that these are gradients. "
            "To compress it too, name the function in QCCL_COMPRESSION_CALLERS, or give the group qccl.Options",
            group,
            caller,
        )


def _module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _is_in(name: str, callers: tuple[str, ...]) -> bool:
    return any(name == caller or name.startswith(f"{caller}.") for caller in callers if caller)


def _is_reducer() -> bool:
    """Whether autograd accumulates a parameter's gradient in this thread, or ends a backward pass: DDP's hooks are
    there, while every other collective of C++ belongs to an operation of the program."""
    node = torch._C._current_autograd_node()
    if node is None:
        return torch._C._current_graph_task_id() >= 0
    return node.name() == "torch::autograd::AccumulateGrad"
