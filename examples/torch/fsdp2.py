"""FSDP2 (fully_shard): gradients are reduce-scattered at 8 bits, parameters gathered in bfloat16.

    torchrun --nproc-per-node 2 examples/torch/fsdp2.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import qccl

STEPS = 40


def main() -> None:
    torch.set_num_threads(1)
    options = qccl.Options(compression="minmax:bits=8", all_gather_compression="cast:type=bf16")
    dist.init_process_group("qccl", pg_options=options)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(1)
    layers = [nn.Sequential(nn.Linear(512, 512), nn.GELU()) for _ in range(4)]
    model = nn.Sequential(nn.Linear(64, 512), *layers, nn.Linear(512, 8))
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for step in range(STEPS):
        inputs = torch.randn(64, 64, generator=generator)
        loss = nn.functional.mse_loss(model(inputs), torch.tanh(inputs[:, :8] * inputs[:, 8:16]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0 or step == STEPS - 1:
            total = loss.detach().clone()
            dist.all_reduce(total, dist.ReduceOp.AVG)
            if dist.get_rank() == 0:
                print(f"step {step}: loss {total.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
