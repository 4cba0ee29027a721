"""DistributedDataParallel with compressed gradients and error feedback, every weight matrix at 4 bits.

    torchrun --nproc-per-node 2 examples/torch/ddp.py
    build/qccl run -n 4 -- .venv/bin/python examples/torch/ddp.py --policy "warmup=10; minmax:bits=2"
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import qccl


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default="minmax:bits=4", help="what is sent as what: see docs/codecs.md")
    parser.add_argument("--steps", type=int, default=60)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("qccl")
    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 8))
    model = DistributedDataParallel(network)
    model.register_comm_hook(qccl.ddp.State(model, arguments.policy), qccl.ddp.compress_hook)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(dist.get_rank())
    before = qccl.traffic().bytes_sent
    for step in range(arguments.steps):
        inputs = torch.randn(64, 64, generator=generator)
        loss = nn.functional.mse_loss(model(inputs), torch.tanh(inputs[:, :8] * inputs[:, 8:16]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0 or step == arguments.steps - 1:
            report(step, loss.detach())
    if dist.get_rank() == 0:
        sent = (qccl.traffic().bytes_sent - before) / arguments.steps
        whole = 4 * sum(parameter.numel() for parameter in network.parameters())
        print(f"{sent / 1e6:.2f} MB sent a step by each rank, for gradients of {whole / 1e6:.2f} MB")
    dist.destroy_process_group()


def report(step: int, loss: torch.Tensor) -> None:
    dist.all_reduce(loss, dist.ReduceOp.AVG)
    if dist.get_rank() == 0:
        print(f"step {step}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
