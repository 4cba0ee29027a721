"""qccl.Options(inside="gloo"): gloo inside the hosts, QCCL between them, in one group of all ranks."""

import copy
import pickle
import time

import numpy as np
import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import qccl

TWO_HOSTS = {"QCCL_HOSTS": "2x2"}
COUNT = 50_003


def whole_numbers(seed: int, count: int = COUNT, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-100, 100, (count,), generator=generator).to(dtype)


def sum_of_all(count: int = COUNT, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return sum(whole_numbers(rank, count, dtype) for rank in range(dist.get_world_size()))


def all_collectives(rank: int) -> None:
    world = dist.get_world_size()
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64):
        values = whole_numbers(rank, dtype=dtype) // 10
        exact = sum(whole_numbers(each, dtype=dtype) // 10 for each in range(world))
        dist.all_reduce(values)
        assert torch.equal(values, exact), dtype
    values = whole_numbers(rank)
    dist.all_reduce(values, dist.ReduceOp.MAX)
    assert torch.equal(values, torch.stack([whole_numbers(each) for each in range(world)]).amax(0))
    values = whole_numbers(rank)
    dist.all_reduce(values, dist.ReduceOp.AVG)
    assert torch.equal(values, sum_of_all() / world)

    part = torch.empty(COUNT)
    dist.reduce_scatter_tensor(part, whole_numbers(rank, world * COUNT))
    assert torch.equal(part, sum_of_all(world * COUNT)[rank * COUNT : (rank + 1) * COUNT])
    whole = torch.empty(world * COUNT)
    dist.all_gather_into_tensor(whole, whole_numbers(rank))
    assert torch.equal(whole, torch.cat([whole_numbers(each) for each in range(world)]))
    for root in range(world):
        values = whole_numbers(rank)
        dist.broadcast(values, root)
        assert torch.equal(values, whole_numbers(root))
    received = torch.empty(world * COUNT)
    dist.all_to_all_single(received, whole_numbers(rank, world * COUNT))
    sent = [whole_numbers(each, world * COUNT)[rank * COUNT : (rank + 1) * COUNT] for each in range(world)]
    assert torch.equal(received, torch.cat(sent))


@pytest.mark.parametrize(("hosts", "world"), [("2x2", 4), ("2x3", 6), ("1x3", 3)])
def test_collectives_are_right(hosts, world):
    run_ranks(all_collectives, world, environment={"QCCL_HOSTS": hosts}, pg_options=qccl.Options(inside="gloo"))


def bytes_of_a_sum(rank: int) -> tuple[int, np.ndarray]:
    values = torch.randn(1 << 18, generator=torch.Generator().manual_seed(rank))
    before = qccl.traffic().bytes_sent
    dist.all_reduce(values)
    return qccl.traffic().bytes_sent - before, values.numpy()


def test_each_rank_sends_its_share_between_the_hosts_compressed():
    options = qccl.Options("int:bits=4", inside="gloo")
    ranks = run_ranks(bytes_of_a_sum, 4, environment=TWO_HOSTS, pg_options=options)
    exact = sum(torch.randn(1 << 18, generator=torch.Generator().manual_seed(rank)) for rank in range(4)).numpy()
    for sent, values in ranks:
        assert sent < (1 << 18) * 4 / 2 / 7, "half of the tensor, 4 bits in place of 32"
        assert np.array_equal(values, ranks[0][1])
        assert np.square(values - exact).sum() / np.square(exact).sum() < 0.03, "inputs and sums of 4 bits"


def bytes_of_sharding(rank: int) -> tuple[int, int]:
    """What a rank sends for the gradients and for the parameters of a model of 4 x 2^17 elements."""
    shard = torch.randn(1 << 17)
    whole = torch.randn(4 << 17)
    before = qccl.traffic().bytes_sent
    dist.reduce_scatter_tensor(shard, whole)
    middle = qccl.traffic().bytes_sent
    dist.all_gather_into_tensor(whole, shard)
    assert (whole.view(4, -1)[rank] - shard).abs().max() < 0.1, "8 bits of numbers up to 10"
    return middle - before, qccl.traffic().bytes_sent - middle


def test_shards_of_gradients_and_parameters_cross_once_and_compressed():
    options = qccl.Options("int:bits=4", all_gather_compression="int:bits=8", inside="gloo")
    for gradients, parameters in run_ranks(bytes_of_sharding, 4, environment=TWO_HOSTS, pg_options=options):
        assert gradients / (4 << 17) == pytest.approx(1 / 8, rel=0.1), "a shard in 4 of 32 bits, to one other host"
        assert parameters / (4 << 17) == pytest.approx(1 / 4, rel=0.1)


def train(rank: int, policy: str | None) -> tuple[list[float], np.ndarray]:
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 512), nn.Tanh(), nn.Linear(512, 256)))
    if policy:
        model.register_comm_hook(qccl.ddp.State(model, policy), qccl.ddp.compress_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for step in range(10):
        inputs = torch.randn(8, 64, generator=torch.Generator().manual_seed(100 * step + rank))
        loss = (model(inputs) - inputs.repeat(1, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, torch.cat([each.detach().flatten() for each in model.parameters()]).numpy()


@pytest.mark.parametrize("policy", [None, "int:bits=4"])
def test_ddp_trains_as_without(policy):
    alone = run_ranks(train, 4, policy, environment=TWO_HOSTS)
    inside = run_ranks(train, 4, policy, environment=TWO_HOSTS, pg_options=qccl.Options(inside="gloo"))
    for rank in range(4):
        assert np.array_equal(inside[rank][1], inside[0][1])
        assert inside[rank][0] == pytest.approx(alone[rank][0], rel=1e-4 if policy is None else 0.02)


def groups_of_a_group(rank: int) -> None:
    halves = [dist.new_group([0, 2], pg_options=qccl.Options(inside="gloo")), dist.new_group([1, 3])]
    values = torch.full((COUNT,), float(rank))
    dist.all_reduce(values, group=halves[rank % 2])
    assert values[0].item() == (2.0 if rank % 2 == 0 else 4.0)


def test_groups_choose_for_themselves():
    run_ranks(groups_of_a_group, 4, environment={"QCCL_HOSTS": "1x4"}, pg_options=qccl.Options(inside="gloo"))


def lose_a_rank(rank: int) -> str:
    dist.all_reduce(torch.ones(COUNT))
    if rank == 3:
        return "left"
    began = time.monotonic()
    with pytest.raises(RuntimeError) as failure:
        for _ in range(3):
            dist.all_reduce(torch.ones(COUNT))
    assert time.monotonic() - began < 20
    return str(failure.value)


def test_a_lost_rank_is_named():
    ranks = run_ranks(lose_a_rank, 4, environment=TWO_HOSTS, pg_options=qccl.Options(inside="gloo"))
    for text in ranks[:3]:
        assert "rank 3" in text


def test_the_options_name_it():
    options = qccl.Options("int:bits=4", inside="gloo")
    for each in (options, copy.copy(options), pickle.loads(pickle.dumps(options))):
        assert each.inside == "gloo" and "inside='gloo'" in repr(each)
    assert qccl.Options().inside is None and qccl.Options(inside="qccl").inside is None
    with pytest.raises(ValueError, match="'gloo' or 'qccl', got 'mpi'"):
        qccl.Options(inside="mpi")
