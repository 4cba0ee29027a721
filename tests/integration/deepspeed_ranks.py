"""Ranks that train with DeepSpeed: forked processes in a group made by deepspeed.init_distributed()."""

import os
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import deepspeed
import torch.distributed as dist
from ranks import run_processes, values_of

WORLD = 2
LIMIT = timedelta(seconds=120)
DEADLINE_SECONDS = 240.0


def run_deepspeed(body: Callable[..., Any], backend: str, *arguments: Any, world: int = WORLD) -> list[Any]:
    """Runs body(rank, *arguments) on every rank and returns the results. Fails if one rank does."""

    def with_group(rank: int, store: str) -> Any:
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
        deepspeed.init_distributed(
            backend,
            auto_mpi_discovery=False,
            timeout=LIMIT,
            init_method=f"file://{store}",
            rank=rank,
            world_size=world,
        )
        value = body(rank, *arguments)
        dist.destroy_process_group()
        return value

    with tempfile.TemporaryDirectory(prefix="qccl-test-") as folder:
        store = str(Path(folder) / "store")
        return values_of(run_processes(with_group, world, store, deadline_seconds=DEADLINE_SECONDS))
