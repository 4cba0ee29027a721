"""The losses of training over the backend: uncompressed the same as over gloo, compressed nearly the same."""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import qccl
import qccl.fsdp

WORLD = 3
STEPS = 40
BATCH = 16
NOISE = 0.3  # can't be learned: it gives the loss a floor, so that a share of the loss is meaningful


def make_model() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 8))


def distribute(kind: str, feedback: str | None) -> nn.Module:
    """Wraps the model for training; `feedback` is a compression with error feedback."""
    model = make_model()
    if kind == "DDP":
        replica = DistributedDataParallel(model, bucket_cap_mb=0.2)
        if feedback is not None:
            replica.register_comm_hook(qccl.ddp.State(replica, feedback), qccl.ddp.compress_hook)
        return replica
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    if feedback is not None:
        qccl.fsdp.State(model, feedback)
    return model


def make_batches(rank: int, world: int, steps: int) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(2)
    for _ in range(steps):
        inputs = torch.randn(world * BATCH, 64, generator=generator)
        noise = torch.randn(world * BATCH, 8, generator=generator)
        targets = torch.tanh(inputs[:, :8] + inputs[:, 8:16]) + NOISE * noise
        mine = slice(rank * BATCH, (rank + 1) * BATCH)
        yield inputs[mine], targets[mine]


def train(rank: int, kind: str, feedback: str | None) -> list[float]:
    """The losses after each step on data that is the same for all ranks; they have the same bits if the models do."""
    model = distribute(kind, feedback)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    (examination,) = make_batches(0, 16, 1)
    losses = []
    for inputs, targets in make_batches(rank, dist.get_world_size(), STEPS):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
        with torch.no_grad():
            losses.append(nn.functional.mse_loss(model(examination[0]), examination[1]).item())
    return losses


def losses_of(kind: str, backend: str = "qccl", feedback: str | None = None, **options: str) -> list[float]:
    """The losses of one rank, after a check that all ranks have the same."""
    pg_options = qccl.Options(**options) if options else None
    first, *others = run_ranks(train, WORLD, kind, feedback, backend=backend, pg_options=pg_options)
    assert all(first == other for other in others), "ranks differ"
    return first


@pytest.mark.parametrize("kind", ["DDP", "FSDP2"])
def test_uncompressed_losses_are_those_over_gloo(kind):
    losses = losses_of(kind)
    assert losses == pytest.approx(losses_of(kind, "gloo"), rel=1e-6)
    assert losses[-1] < 0.6 * losses[0], "it did not learn"


def check_compressed(kind, tolerance, **how):
    exact, compressed = losses_of(kind), losses_of(kind, **how)
    assert compressed != exact, "nothing was compressed"
    assert compressed[-1] == pytest.approx(exact[-1], rel=tolerance)


@pytest.mark.parametrize("kind", ["DDP", "FSDP2"])
def test_eight_bits_cost_half_a_percent_at_most(kind):
    check_compressed(kind, 0.005, compression="minmax:bits=8")


@pytest.mark.parametrize("kind", ["DDP", "FSDP2"])
def test_four_bits_with_error_feedback_cost_a_percent_at_most(kind):
    check_compressed(kind, 0.01, feedback="minmax:bits=4")
