"""Megatron's process groups and data parallel buffers over the backend, on CPUs."""

import os
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.hyper_comm_grid import HyperCommGrid
from megatron.core.transformer import TransformerConfig
from ranks import run_processes, run_ranks, values_of
from torch import nn

import qccl

WORLD = 4
TENSOR_PARALLEL = 2
DEADLINE_SECONDS = 240.0


def ranks_met(group):
    """The ranks whose numbers a collective of the group gathers."""
    numbers = torch.empty(group.size(), dtype=torch.int64)
    dist.all_gather_into_tensor(numbers, torch.tensor([dist.get_rank()]), group=group)
    return numbers.tolist()


def count_sockets():
    targets = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            targets.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        except FileNotFoundError:
            pass  # listdir's own descriptor
    return sum(target.startswith("socket:") for target in targets)


def initialize(tensor_parallel=TENSOR_PARALLEL):
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=tensor_parallel, create_gloo_process_groups=False
    )


def test_parallel_state_makes_its_groups_without_sockets():
    def body(_rank):
        before = count_sockets()
        initialize()
        own_groups = len([group for group in parallel_state._global_process_group_list if group is not None])
        met = {
            "tensor": ranks_met(parallel_state.get_tensor_model_parallel_group()),
            "data": ranks_met(parallel_state.get_data_parallel_group()),
            "pipeline": ranks_met(parallel_state.get_pipeline_model_parallel_group()),
            "tensor and data": ranks_met(parallel_state.get_tensor_and_data_parallel_group()),
        }
        sockets = count_sockets() - before
        parallel_state.destroy_model_parallel()
        return own_groups, sockets, met

    results = run_ranks(body, WORLD, deadline_seconds=DEADLINE_SECONDS)
    for rank, (own_groups, sockets, met) in enumerate(results):
        print(f"rank {rank} is in {own_groups} groups")
        assert 15 <= own_groups <= 40
        assert sockets <= 0  # one from the start may have been closed meanwhile
        first = rank - rank % TENSOR_PARALLEL
        assert met == {
            "tensor": [first, first + 1],
            "data": [rank % TENSOR_PARALLEL, rank % TENSOR_PARALLEL + TENSOR_PARALLEL],
            "pipeline": [rank],
            "tensor and data": [0, 1, 2, 3],
        }


def test_hyper_comm_grid_makes_its_groups():
    def body(_rank):
        grid = HyperCommGrid([2, 2], ["tp", "dp"], backend="qccl")
        for dimensions in ("tp", "dp", ["tp", "dp"]):
            grid.create_pg(dimensions)
        return [ranks_met(grid.get_pg(dimensions)) for dimensions in ("tp", "dp", ["tp", "dp"])]

    for rank, (tensor, data, both) in enumerate(run_ranks(body, WORLD)):
        assert tensor == [rank - rank % 2, rank - rank % 2 + 1]
        assert data == [rank % 2, rank % 2 + 2]
        assert both == [0, 1, 2, 3]


def make_network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 128))


def backward(network, rank):
    generator = torch.Generator().manual_seed(rank)
    network(torch.randn(16, 64, generator=generator)).square().mean().backward()


def mean_gradients(world):
    """The expected contents of the buffers, one network after the other."""
    sums = None
    for rank in range(world):
        network = make_network()
        backward(network, rank)
        gradients = [parameter.grad for parameter in network.parameters()]
        sums = gradients if sums is None else [a + b for a, b in zip(sums, gradients, strict=True)]
    return [total / world for total in sums]


def reduced_gradients(rank, compression, settings):
    """The gradients of a step of Megatron's DistributedDataParallel, with other ranks' shards as zeros, and how much of
    the buffer is this rank's."""
    torch.cuda.current_device = lambda: torch.device("cpu")  # where Megatron allocates its buffers
    initialize(tensor_parallel=1)
    if compression is not None:
        qccl.set_compression(parallel_state.get_data_parallel_group(with_context_parallel=True), compression)
    shape = TransformerConfig(num_layers=1, hidden_size=64, num_attention_heads=1)
    model = DistributedDataParallel(shape, DistributedDataParallelConfig(**settings), make_network())
    for _ in range(2):  # Megatron overlaps from the second step on
        model.zero_grad_buffer()
        backward(model, rank)
        model.finish_grad_sync()
    (buffer,) = model.buffers
    world = dist.get_world_size()
    if settings.get("use_distributed_optimizer"):
        shards = [shard for bucket in buffer.buckets for shard in enumerate(bucket.grad_data.chunk(world))]
        for owner, shard in shards:
            if owner != rank:
                shard.zero_()
    gradients = [parameter.main_grad.clone() for parameter in model.module.parameters()]
    parallel_state.destroy_model_parallel()
    return [gradient.numpy() for gradient in gradients]


CONFIGURATIONS = {
    "all_reduce": {},
    "average": {"average_in_collective": True},
    "overlap": {"overlap_grad_reduce": True, "bucket_size": 20_000},
    "distributed optimizer": {"use_distributed_optimizer": True},
    "distributed optimizer, overlap": {
        "use_distributed_optimizer": True,
        "overlap_grad_reduce": True,
        "bucket_size": 20_000,
    },
    "all_to_all": {"use_distributed_optimizer": True, "reduce_scatter_with_fp32_accumulation": True},
}


def check_gradients(settings, compression, tolerance):
    world = 2
    results = run_ranks(reduced_gradients, world, compression, settings, deadline_seconds=DEADLINE_SECONDS)
    (expected,) = run_ranks(lambda _rank: [gradient.numpy() for gradient in mean_gradients(world)], 1)
    for index, gradient in enumerate(expected):
        ranks = [torch.from_numpy(result[index]) for result in results]
        if settings.get("use_distributed_optimizer"):
            found = sum(ranks)  # each has its shard
        else:
            assert torch.equal(ranks[0], ranks[1])
            found = ranks[0]
        largest = float(abs(gradient).max())
        torch.testing.assert_close(found, torch.from_numpy(gradient), rtol=0, atol=tolerance * largest)


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_data_parallel_buffers_hold_the_mean_gradient(configuration):
    check_gradients(CONFIGURATIONS[configuration], None, 1e-6)


@pytest.mark.parametrize("configuration", ["all_reduce", "distributed optimizer, overlap"])
def test_data_parallel_buffers_can_be_compressed(configuration):
    check_gradients(CONFIGURATIONS[configuration], "minmax:bits=8,bucket_size=256", 0.05)
    with pytest.raises(AssertionError, match="not close"):
        check_gradients(CONFIGURATIONS[configuration], "minmax:bits=8,bucket_size=256", 1e-6)


GROUPS = 1000
LIMIT_SECONDS = 2.0  # of a rank's processor time, which other programs do not affect; it takes about 0.3


def test_thousand_groups_open_no_sockets(tmp_path, capsys):
    def body(rank):
        files = dist.FileStore(str(tmp_path / "store"), WORLD)
        store = None
        if rank == 0:
            store = dist.TCPStore("127.0.0.1", 0, WORLD, is_master=True, wait_for_workers=False)
            files.set("port", str(store.port))
        store = store or dist.TCPStore("127.0.0.1", int(files.get("port")), WORLD, is_master=False)
        dist.init_process_group("qccl", store=store, rank=rank, world_size=WORLD, timeout=timedelta(seconds=120))
        dist.barrier()
        sockets = count_sockets()
        began = time.process_time()
        groups = [dist.new_group(list(range(WORLD))) for _ in range(GROUPS)]
        seconds = time.process_time() - began
        met = ranks_met(groups[0]), ranks_met(groups[-1])
        opened = count_sockets() - sockets
        dist.destroy_process_group()
        return seconds, opened, met

    results = values_of(run_processes(body, WORLD, deadline_seconds=DEADLINE_SECONDS))
    with capsys.disabled():
        took = max(seconds for seconds, _, _ in results)
        print(f"\n{GROUPS} groups of {WORLD} ranks: {took:.2f} s of a rank's processor time")
    for seconds, opened, met in results:
        assert opened == 0
        assert met == ([0, 1, 2, 3], [0, 1, 2, 3])
        assert seconds < LIMIT_SECONDS
