"""Runs a function on ranks that have the fake device, whose driver must not have been misused; or on a GPU."""

import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import fakecuda
import pytest
import torch
import torch.distributed as dist
from ranks import DEADLINE_SECONDS, TIMEOUT, run_processes, values_of

# "cuda" runs the tests on a machine's GPU, which all ranks share (`make gpu`).
KIND = os.environ.get("QCCL_TEST_DEVICE", fakecuda.NAME)
IS_FAKE = KIND == fakecuda.NAME
DEVICE = f"{KIND}:0"
BACKEND = f"cpu:qccl,{KIND}:qccl"

needs_device = pytest.mark.skipif(IS_FAKE and fakecuda.EXTENSION is None, reason="qccl_fake_device is not built")
needs_fake = pytest.mark.skipif(not IS_FAKE, reason="only the fake device's streams can be held")


def on_device(
    body: Callable[[int], Any],
    world: int = 2,
    *,
    longest_delay: int = fakecuda.LONGEST_DELAY,
    deadline_seconds: float = DEADLINE_SECONDS,
    **group: Any,
) -> list[Any]:
    """Runs body(rank) on every rank, in a process group for the CPU and the device; `group` is for its making."""
    with tempfile.TemporaryDirectory(prefix="qccl-test-") as folder:
        run = partial(_with_group, body, world, str(Path(folder) / "store"), longest_delay, group)
        return values_of(run_processes(run, world, deadline_seconds=deadline_seconds))


def _with_group(
    body: Callable[[int], Any], world: int, store_file: str, longest_delay: int, group: dict[str, Any], rank: int
) -> Any:
    device = fakecuda.load(longest_delay=longest_delay) if IS_FAKE else None
    if device is None:
        torch.accelerator.set_device_index(0)
    store = dist.FileStore(store_file, world)
    dist.init_process_group(
        **{"backend": BACKEND, "store": store, "rank": rank, "world_size": world, "timeout": TIMEOUT, **group}
    )
    value = body(rank)
    dist.destroy_process_group()
    assert device is None or device.take_misuses() == []
    return value


def late(values: torch.Tensor, device: str = DEVICE) -> torch.Tensor:
    """The values on the device, which get there some time after this returns."""
    return values.to(device)


def numbers(rank: int, count: int = 5000) -> torch.Tensor:
    return torch.arange(count, dtype=torch.float32) % 101 + rank
