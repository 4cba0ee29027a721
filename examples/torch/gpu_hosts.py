"""Hosts full of GPUs: NCCL inside each host, QCCL between them, 4 bits an element with error feedback. Without GPUs the
ranks of a host, two of them here, use gloo and the CPU.

    torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST:PORT examples/torch/gpu_hosts.py
    torchrun --nproc-per-node 4 examples/torch/gpu_hosts.py --ranks-a-host 2

With --checkpoint DIR it saves at its end, and goes on from there when it is started again.
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import qccl
import qccl.fsdp


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks-a-host", type=int, default=int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    parser.add_argument("--compression", default="int:bits=4", help="of the averages between hosts: see docs/codecs.md")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--checkpoint", type=Path)
    arguments = parser.parse_args()
    device, inside = ("cuda", "nccl") if torch.cuda.is_available() else ("cpu", "gloo")
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.set_num_threads(1)
    dist.init_process_group(f"cpu:gloo,cuda:{inside}" if device == "cuda" else inside)
    hosts = dist.get_world_size() // arguments.ranks_a_host
    mesh = init_device_mesh(
        device,
        (hosts, arguments.ranks_a_host),
        mesh_dim_names=("replicate", "shard"),
        backend_override={"replicate": "qccl", "shard": inside},
    )
    model = make_model().to(device)
    for layer in model:
        fully_shard(layer, mesh=mesh["shard"])
    fully_shard(model, mesh=mesh["shard"])
    state = qccl.fsdp.State(model, arguments.compression, replicate=mesh["replicate"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    first = load(arguments.checkpoint, model, optimizer, state)
    train(model, optimizer, range(first, first + arguments.steps), mesh["replicate"].get_group())
    if arguments.checkpoint is not None:
        dcp.save(contents(model, optimizer, state, first + arguments.steps), checkpoint_id=arguments.checkpoint)
    dist.destroy_process_group()


def make_model() -> nn.Sequential:
    """The same on all ranks, because of the seed: fully_shard() does not copy parameters from one host to another."""
    torch.manual_seed(1)
    layers = [nn.Sequential(nn.Linear(512, 512), nn.GELU()) for _ in range(3)]
    return nn.Sequential(nn.Linear(64, 512), *layers, nn.Linear(512, 8))


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range, between: dist.ProcessGroup) -> None:
    device = next(model.parameters()).device
    before = qccl.traffic(between).bytes_sent
    for step in steps:
        generator = torch.Generator().manual_seed(1000 * step + dist.get_rank())
        inputs = torch.randn(64, 64, generator=generator).to(device)
        loss = nn.functional.mse_loss(model(inputs), torch.tanh(inputs[:, :8] * inputs[:, 8:16]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0 or step == steps[-1]:
            total = loss.detach().clone()
            dist.all_reduce(total)
            if dist.get_rank() == 0:
                print(f"step {step}: loss {total.item() / dist.get_world_size():.4f}", flush=True)
    if dist.get_rank() == 0:
        sent = (qccl.traffic(between).bytes_sent - before) / len(steps)
        shard = sum(parameter.to_local().nbytes for parameter in model.parameters())
        print(f"{sent / 1e6:.2f} MB sent a step to other hosts by each rank, for a shard of {shard / 1e6:.2f} MB")


def contents(
    model: nn.Module, optimizer: torch.optim.Optimizer, state: qccl.fsdp.State, step: int
) -> dict[str, object]:
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments, "qccl": state, "step": step}


def load(path: Path | None, model: nn.Module, optimizer: torch.optim.Optimizer, state: qccl.fsdp.State) -> int:
    """The step to go on with."""
    if path is None or not (path / ".metadata").exists():
        return 0
    saved = contents(model, optimizer, state, 0)
    dcp.load(saved, checkpoint_id=path)
    set_state_dict(model, optimizer, model_state_dict=saved["model"], optim_state_dict=saved["optimizer"])
    return int(str(saved["step"]))


if __name__ == "__main__":
    main()
