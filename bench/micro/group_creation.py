#!/usr/bin/env python3
"""Measures torch's new_group() over QCCL: many groups of all ranks, all of them open at the end, each used once.

build/qccl run -n 4 -- .venv/bin/python bench/micro/group_creation.py [groups] [backend]
"""

import os
import sys
import time
from collections.abc import Callable

os.environ["OMP_NUM_THREADS"] = "1"

import torch
import torch.distributed as dist


def seconds_of(function: Callable[[], None]) -> float:
    dist.barrier()
    began = time.perf_counter()
    function()
    dist.barrier()
    return time.perf_counter() - began


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    dist.init_process_group(sys.argv[2] if len(sys.argv) > 2 else "qccl")
    groups = []

    def make() -> None:
        for _ in range(count):
            groups.append(dist.new_group())

    def use() -> None:
        for group in groups:
            dist.all_reduce(torch.ones(1000), group=group)

    made, used = seconds_of(make), seconds_of(use)
    if dist.get_rank() == 0:
        ranks = dist.get_world_size()
        print(f"{count} groups of {ranks} ranks by new_group(): made in {made:.3f} s, used in {used:.3f} s")
    dist.destroy_process_group()


main()
