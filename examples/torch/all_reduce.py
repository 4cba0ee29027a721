"""Sums a tensor over all ranks, under any launcher: docs/launchers.md describes each launcher.

    build/qccl run -n 4 -- .venv/bin/python examples/torch/all_reduce.py
"""

import torch
import torch.distributed as dist

import qccl


def main() -> None:
    qccl.init_distributed()
    rank, world = dist.get_rank(), dist.get_world_size()
    tensor = torch.arange(1 << 20, dtype=torch.float32) % 100 + rank
    dist.all_reduce(tensor)
    expected = (torch.arange(1 << 20, dtype=torch.float32) % 100) * world + world * (world - 1) / 2
    assert torch.equal(tensor, expected), "not the sum of all ranks' tensors"
    dist.destroy_process_group()
    if rank == 0:
        print(f"{world} ranks: passed")


if __name__ == "__main__":
    main()
