"""A mesh of hosts for tests: gloo between the ranks of a host, qccl between the hosts, all of them processes here."""

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

import qccl

SHARDS = 2  # on each host


def make_mesh(hosts: int, compression: str | None = None, between: str = "qccl") -> DeviceMesh:
    """The mesh of docs/gpu-hosts.md."""
    options = qccl.Options(compression=compression)
    override = {"replicate": (between, options) if between == "qccl" else between, "shard": "gloo"}
    names = ("replicate", "shard")
    return init_device_mesh("cpu", (hosts, SHARDS), mesh_dim_names=names, backend_override=override)


def make_network() -> nn.Sequential:
    """The large layers' shards are compressed: they have more than 64 KiB on each of two ranks."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(64, 512), nn.Tanh(), nn.Linear(512, 256), nn.Tanh(), nn.Linear(256, 8))


def batch_of(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 * step + rank)
    inputs = torch.randn(16, 64, generator=generator)
    noise = torch.randn(16, 8, generator=generator)
    return inputs, torch.tanh(inputs[:, :8] + inputs[:, 8:16]) + 0.3 * noise


def loss_of(model: nn.Module, rank: int, step: int) -> torch.Tensor:
    inputs, targets = batch_of(rank, step)
    return nn.functional.mse_loss(model(inputs), targets)
