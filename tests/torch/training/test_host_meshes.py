"""torch's own parallelism over a mesh of hosts, with gloo inside each and compressed sums of QCCL between them."""

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from hosts import SHARDS, loss_of, make_mesh, make_network
from ranks import run_ranks
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import qccl
import qccl.fsdp

STEPS = 15
HOSTS = 2
INSIDE = {"0": ColwiseParallel(), "2": RowwiseParallel()}  # how the two large layers are split


def losses_of(model, rank):
    """The losses after each step, on data that is the same for all ranks. `rank` selects its own data."""
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.step()
        with torch.no_grad():
            losses.append(loss_of(model, 99, 99).item())
    return losses


def check_training(ways, world=HOSTS * SHARDS, backend="gloo"):
    """`ways` makes the models by name, "gloo", "none" and "compressed", and the rank whose data this rank trains on."""

    def body(rank):
        return {name: losses_of(*make(rank)) for name, make in ways.items()}

    results = run_ranks(body, world, backend=backend, timeout=timedelta(seconds=90), deadline_seconds=180)
    losses = results[0]
    assert losses["none"] == pytest.approx(losses["gloo"], rel=1e-6)
    assert losses["compressed"] != losses["none"], "nothing was compressed"
    assert losses["compressed"][-1] == pytest.approx(losses["none"][-1], rel=0.01)
    assert losses["none"][-1] < 0.8 * losses["none"][0], "it did not learn"
    assert all(each["compressed"] == losses["compressed"] for each in results), "ranks differ"


def test_each_dimension_has_its_own_backend_and_ranks():
    def body(rank):
        mesh = make_mesh(HOSTS, "int:bits=4")
        between, inside = mesh.get_group("replicate"), mesh.get_group("shard")
        assert (dist.get_backend(between), dist.get_backend(inside)) == ("qccl", "gloo")
        assert dist.get_process_group_ranks(between) == [rank % SHARDS, rank % SHARDS + SHARDS]
        assert "of 2" in qccl.describe(between)
        with pytest.raises(ValueError, match="not a process group of the qccl backend but of gloo"):
            qccl.set_compression(inside, "int:bits=4")

    run_ranks(body, HOSTS * SHARDS, backend="gloo")


def test_hsdp_trains_as_over_gloo():
    def hsdp(compression=None, between="qccl"):
        mesh = make_mesh(HOSTS, compression, between)
        model = make_network()
        for layer in (model[0], model[2]):
            fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)

    check_training(
        {
            "gloo": lambda rank: (hsdp(between="gloo"), rank),
            "none": lambda rank: (hsdp(), rank),
            "compressed": lambda rank: (hsdp("int:bits=8"), rank),
        }
    )


def test_ddp_over_the_flattened_mesh_trains_as_over_gloo():
    """All ranks average over one group of qccl's; gloo's groups of the same mesh serve what is inside a host."""

    def ddp(backend):
        flat = make_mesh(HOSTS)._flatten("dp", backend)
        assert flat.size() == HOSTS * SHARDS
        return DistributedDataParallel(make_network(), process_group=flat.get_group(), bucket_cap_mb=0.2)

    def with_feedback():
        model = ddp("qccl")
        model.register_comm_hook(qccl.ddp.State(model, "int:bits=4"), qccl.ddp.compress_hook)
        return model

    check_training(
        {
            "gloo": lambda rank: (ddp("gloo"), rank),
            "none": lambda rank: (ddp("qccl"), rank),
            "compressed": lambda rank: (with_feedback(), rank),
        }
    )


def test_ddp_between_hosts_trains_with_tensor_parallelism_inside():
    """Ranks of a host train on the same data, each on its part of the layers."""

    def ddp(rank, compression=None, between="qccl"):
        mesh = make_mesh(HOSTS, None, between)
        model = parallelize_module(make_network(), mesh["shard"], INSIDE)
        replica = DistributedDataParallel(model, device_mesh=mesh["replicate"], bucket_cap_mb=0.2)
        if compression is not None:
            replica.register_comm_hook(qccl.ddp.State(replica, compression), qccl.ddp.compress_hook)
        return replica, rank // SHARDS

    check_training(
        {
            "gloo": lambda rank: ddp(rank, between="gloo"),
            "none": ddp,
            "compressed": lambda rank: ddp(rank, "int:bits=4"),
        }
    )


def test_state_averages_shards_of_layers_that_are_split_inside():
    """Three dimensions: hosts, shards, and tensor parallelism. The shards of split layers are half as large."""

    def split(rank, compression, between="qccl"):
        names = ("replicate", "shard", "tensor")
        override = {"replicate": between, "shard": "gloo", "tensor": "gloo"}
        mesh = init_device_mesh("cpu", (HOSTS, SHARDS, 2), mesh_dim_names=names, backend_override=override)
        model = parallelize_module(make_network(), mesh["tensor"], INSIDE)
        own = mesh["replicate", "shard"] if compression is None else mesh["shard"]
        for layer in (model[0], model[2]):
            fully_shard(layer, mesh=own)
        fully_shard(model, mesh=own)
        if compression is not None:
            qccl.fsdp.State(model, compression, replicate=mesh["replicate"])
        return model, rank // 2

    check_training(
        {
            "gloo": lambda rank: split(rank, None, "gloo"),
            "none": lambda rank: split(rank, "none"),
            "compressed": lambda rank: split(rank, "int:bits=4"),
        },
        world=HOSTS * SHARDS * 2,
    )


def test_one_host_needs_no_sums_between():
    def body(rank):
        mesh = make_mesh(1)
        model, exact = nn.Linear(512, 512), nn.Linear(512, 512)
        exact.load_state_dict(model.state_dict())
        for each in (model, exact):
            fully_shard(each, mesh=mesh["shard"])
        qccl.fsdp.State(model, "int:bits=4", replicate=mesh["replicate"])
        inputs = torch.randn(4, 512)
        for each in (model, exact):
            each(inputs).square().mean().backward()
        assert torch.equal(model.weight.grad.full_tensor(), exact.weight.grad.full_tensor())

    run_ranks(body, SHARDS, backend="gloo")
