"""Ranks with different numbers of batches: under Join, ranks that are done still answer their peers' collectives.

    torchrun --nproc-per-node 3 examples/torch/uneven_inputs.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

import qccl


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("qccl")
    rank = dist.get_rank()
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 8)))
    model.register_comm_hook(qccl.ddp.State(model, "minmax:bits=4"), qccl.ddp.compress_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(rank)
    batches = 10 + 5 * rank
    with Join([model]):
        for _ in range(batches):
            inputs = torch.randn(32, 64, generator=generator)
            loss = nn.functional.mse_loss(model(inputs), inputs[:, :8])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(f"rank {rank} had {batches} batches; weights add up to {weight_sum(model):.6f}", flush=True)
    dist.destroy_process_group()


def weight_sum(model: nn.Module) -> float:
    return sum(parameter.double().sum().item() for parameter in model.parameters())


if __name__ == "__main__":
    main()
