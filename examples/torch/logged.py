"""A loop of compressed and uncompressed all_reduces with the communication log on; one rank may be made slow.

    build/qccl run -n 4 -- .venv/bin/python examples/torch/logged.py --slow 2
"""

import argparse

import torch
import torch.distributed as dist

import qccl


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--slow", type=int, default=-1, help="the rank that computes four times as long as the others")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    qccl.configure_log(enabled=True)
    dist.init_process_group("qccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    gradient, weights = torch.randn(1 << 20), torch.randn(384, 384)
    parts = [torch.zeros(1 << 14) for _ in range(world)]
    for _ in range(arguments.steps):
        for _ in range(40 if rank == arguments.slow else 10):  # stands for computing
            weights = torch.tanh(weights @ weights)
        compressed = qccl.all_reduce(gradient, dist.ReduceOp.AVG, async_op=True, compression="minmax:bits=4")
        dist.all_gather(parts, parts[rank].clone())
        compressed.wait()
        dist.all_reduce(gradient, dist.ReduceOp.AVG)
    qccl.log_summary(show_straggler=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
