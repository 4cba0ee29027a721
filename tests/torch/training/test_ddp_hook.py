"""The hook of qccl.ddp against DDP's own behaviour: the divisors under Join, no_sync and mixed precision."""

import os
import signal
from contextlib import nullcontext

import pytest
import torch
import torch.distributed as dist
from ranks import run_processes, run_ranks
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

import qccl

WORLD = 3
BATCHES = [5, 2, 3]


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.first, self.second = nn.Linear(64, 256), nn.Linear(256, 128)

    def forward(self, inputs):
        return self.second(torch.tanh(self.first(inputs)))


def make_model(policy, **options):
    model = DistributedDataParallel(Network(), bucket_cap_mb=0.1, **options)
    if policy is not None:
        model.register_comm_hook(qccl.ddp.State(model, policy), qccl.ddp.compress_hook)
    return model


def train(model, rank, batches, accumulate=1, autocast=False):
    """Trains with plain SGD, so that a wrongly divided gradient shows."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(batches):
        optimizer.zero_grad()
        for part in range(accumulate):
            with nullcontext() if part == accumulate - 1 else model.no_sync():
                with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                    outputs = model(torch.randn(8, 64, generator=generator))
                (outputs.float() - 1).square().mean().backward()
        optimizer.step()


def weights(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def weights_after(policy, divide_by_initial, batches=BATCHES, **how):
    """One rank's parameters (the same on all) after ranks with fewer batches have joined and all made one more step."""

    def body(rank):
        model = make_model(policy)
        with Join([model], divide_by_initial_world_size=divide_by_initial):
            train(model, rank, batches[rank], **how)
        train(model, rank, 1, **how)
        return weights(model).numpy()

    first, *others = run_ranks(body, WORLD)
    assert all(first.tobytes() == other.tobytes() for other in others), "replicas differ"
    return torch.from_numpy(first)


@pytest.mark.parametrize("divide_by_initial", [True, False])
def test_joined_ranks_count_in_averages_as_they_do_without_the_hook(divide_by_initial):
    expected = weights_after(None, divide_by_initial)
    torch.testing.assert_close(weights_after("none", divide_by_initial), expected, rtol=0, atol=1e-5)
    other = weights_after(None, not divide_by_initial)
    assert (expected - other).abs().max() > 1e-3, "this would not show which one it was"
    compressed = weights_after("minmax:bits=8", divide_by_initial)
    assert not torch.equal(compressed, expected)
    assert (compressed - expected).abs().max() < 0.3 * (compressed - other).abs().max()


@pytest.mark.parametrize("divide_by_initial", [True, False])
def test_accumulation_and_autocast_under_join(divide_by_initial):
    how = {"accumulate": 3, "autocast": True}
    expected = weights_after(None, divide_by_initial, **how)
    torch.testing.assert_close(weights_after("none", divide_by_initial, **how), expected, rtol=0, atol=1e-5)


def test_collectives_that_joined_ranks_do_not_answer_are_named():
    def body(rank):
        model = make_model("minmax:bits=4")
        with pytest.raises(dist.DistBackendError) as caught, Join([model]):
            for _ in range(1 + rank):
                train(model, rank, 1)
                dist.all_reduce(torch.ones(5))  # a joined rank does not know of it
        return str(caught.value)

    for message in run_ranks(body, 2):
        assert "all_reduce" in message and "count=5" in message and "count=1" in message, message


def test_state_of_the_inner_module_averages_over_all_ranks():
    def body(rank):
        model = DistributedDataParallel(Network())
        model.register_comm_hook(qccl.ddp.State(model.module, "none"), qccl.ddp.compress_hook)
        train(model, rank, 2)
        plain = DistributedDataParallel(Network())
        train(plain, rank, 2)
        torch.testing.assert_close(weights(model), weights(plain), rtol=0, atol=1e-5)

    run_ranks(body, WORLD)


def test_sparse_gradients_go_as_they_are():
    def gradients(policy, rank):
        torch.manual_seed(1)
        network = nn.Sequential(nn.Embedding(2000, 32, sparse=True), nn.Linear(32, 512))
        model = DistributedDataParallel(network)
        if policy is not None:
            model.register_comm_hook(qccl.ddp.State(model, policy), qccl.ddp.compress_hook)
        model(torch.arange(5) + 3 * rank).square().mean().backward()
        return [parameter.grad.to_dense() for parameter in network.parameters()]

    def body(rank):
        for own, plain in zip(gradients("minmax:bits=8", rank), gradients(None, rank), strict=True):
            torch.testing.assert_close(own, plain, rtol=0, atol=0.02 * plain.abs().max().item())
            everyone = [torch.empty_like(own) for _ in range(WORLD)]
            dist.all_gather(everyone, own)
            assert all(torch.equal(own, other) for other in everyone)

    run_ranks(body, WORLD)


def test_a_model_that_is_no_more_needed_is_freed():
    def body(_rank):
        import gc
        import weakref

        model = make_model("minmax:bits=8")
        train(model, 0, 1)
        gone = weakref.ref(model.module)
        del model
        gc.collect()
        assert gone() is None

    run_ranks(body, 1)


@pytest.mark.parametrize("policy", ["none", "bytes=0.. minmax:bits=8"])
def test_averages_are_over_the_group_of_the_model(policy):
    def body(rank):
        pair, alone = dist.new_group([0, 1]), dist.new_group([2])
        model = DistributedDataParallel(nn.Linear(64, 64, bias=False), process_group=alone if rank == 2 else pair)
        model.register_comm_hook(qccl.ddp.State(model, policy), qccl.ddp.compress_hook)
        model(torch.full((1, 64), float(rank + 1))).sum().backward()
        expected = 3.0 if rank == 2 else 1.5
        assert torch.allclose(model.module.weight.grad, torch.full((64, 64), expected), rtol=0, atol=1e-2)

    run_ranks(body, 3)


def test_a_group_that_is_given_wins():
    def body(rank):
        pair = dist.new_group([0, 1])
        model = DistributedDataParallel(nn.Linear(4, 4, bias=False))
        if rank < 2:
            model.register_comm_hook(qccl.ddp.State(model, "none", group=pair), qccl.ddp.compress_hook)
            model(torch.full((1, 4), float(rank + 1))).sum().backward()
            assert model.module.weight.grad[0, 0].item() == 1.5

    run_ranks(body, 3)


def test_a_scalar_that_only_ranks_with_batches_add_is_an_error_and_no_hang():
    """An all_reduce of one float32 looks like the one in which Join counts the remaining ranks."""

    def body(rank):
        model = make_model("minmax:bits=4")
        with pytest.raises(dist.DistBackendError, match="differs between ranks"), Join([model]):
            for _ in range(3 + 3 * rank):
                train(model, rank, 1)
                dist.all_reduce(torch.tensor(0.25))

    run_ranks(body, 2)


def test_a_lost_rank_is_the_same_error_as_without_the_hook(tmp_path):
    def body(rank):
        store = dist.FileStore(str(tmp_path / "store"), 2)
        dist.init_process_group("qccl", store=store, rank=rank, world_size=2)
        model = make_model("minmax:bits=4")
        train(model, rank, 1)
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        with pytest.raises(dist.DistNetworkError, match="rank 1 was lost"):
            train(model, rank, 100)

    survivor, _ = run_processes(body, 2)
    assert survivor.finished and survivor.error is None, survivor.trace


def test_callbacks_on_what_the_hook_returns_get_the_average():
    def halved(state, bucket):
        return qccl.ddp.compress_hook(state, bucket).then(lambda average: average.value() / 2)

    def body(rank):
        model, plain = (DistributedDataParallel(nn.Linear(4, 4, bias=False)) for _ in range(2))
        model.register_comm_hook(qccl.ddp.State(model, "none"), halved)
        for each in (model, plain):
            each(torch.full((1, 4), float(rank + 1))).sum().backward()
        assert torch.equal(model.module.weight.grad, plain.module.weight.grad / 2)

    run_ranks(body, 2)


def test_a_hook_without_its_state_says_what_it_needs():
    def body(_rank):
        model = DistributedDataParallel(nn.Linear(4, 4))
        model.register_comm_hook(None, qccl.ddp.compress_hook)
        with pytest.raises(TypeError, match="needs a qccl.ddp.State, got NoneType"):
            model(torch.ones(1, 4)).sum().backward()

    run_ranks(body, 1)
