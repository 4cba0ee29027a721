"""QCCL_COMPRESSION, a setting from outside the program, compresses the gradients of DDP and FSDP and nothing else."""

import copy
import logging

import pytest
import torch
import torch._dynamo  # noqa: F401  seconds here, once, or in every rank
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from ranks import run_ranks
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, post_localSGD_hook, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.algorithms.model_averaging.hierarchical_model_averager import HierarchicalModelAverager
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard
from torch.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import qccl

ROUGH = "int:bits=2"  # a third of the largest value is the least step: what it touches shows
COUNT = 1 << 16
LARGE = 64 << 10  # bytes from which on sums are compressed


def in_environment(body, world=2, pg_options=None, **variables):
    """Runs body(rank) with QCCL_COMPRESSION and the communication log."""

    def logged(rank):
        qccl.configure_log(enabled=True)
        return body(rank)

    return run_ranks(logged, world, environment={"QCCL_COMPRESSION": ROUGH, **variables}, pg_options=pg_options)


def large_sums():
    """(operation, whether it was compressed) of this rank's large sums since the last call."""
    sums = [
        (record["operation"], record["compression"] != "none")
        for record in qccl.comms_logger.records()
        if record["bytes"] >= LARGE and record["operation"] in ("all_reduce", "reduce", "reduce_scatter")
    ]
    qccl.comms_logger.reset_data()
    return sums


def compressed(*operations):
    """All large sums since the last call were compressed, and these were among them."""
    sums = large_sums()
    return all(was for _, was in sums) and set(operations) == {operation for operation, _ in sums}


def plain(*operations):
    """None of the large sums since the last call were compressed, and these were among them."""
    sums = large_sums()
    return not any(was for _, was in sums) and set(operations) == {operation for operation, _ in sums}


def network(width=256):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(64, width), nn.Tanh(), nn.Linear(width, 64))


def batch(rank, step=0):
    return torch.randn(8, 64, generator=torch.Generator().manual_seed(100 * step + rank))


def train(model, rank, steps=2):
    for step in range(steps):
        model(batch(rank, step)).square().mean().backward()


def same_gradients(model):
    for parameter in model.parameters():
        first = parameter.grad.clone()
        dist.broadcast(first, 0)
        assert torch.equal(first, parameter.grad)


# ---- compressed: gradients


def static_graph(model):
    model._set_static_graph()


def builtin_hook(model):
    model._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)


def torchs_hook(model):
    model.register_comm_hook(None, default_hooks.allreduce_hook)


def torchs_half_hook(model):
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)


@pytest.mark.parametrize("prepare", [lambda model: None, static_graph, builtin_hook, torchs_hook, torchs_half_hook])
def test_ddps_gradients_are_compressed(prepare):
    def body(rank):
        model = DistributedDataParallel(network())
        prepare(model)
        train(model, rank)
        assert compressed("all_reduce")
        same_gradients(model)

    in_environment(body)


@pytest.mark.parametrize("how", [{"find_unused_parameters": True}, {"gradient_as_bucket_view": True}])
def test_ddps_gradients_are_compressed_with_its_options(how):
    def body(rank):
        model = DistributedDataParallel(network(), **how)
        train(model, rank)
        assert compressed("all_reduce")
        same_gradients(model)

    in_environment(body)


def test_ddps_gradients_are_compressed_when_they_have_been_accumulated():
    def body(rank):
        model = DistributedDataParallel(network())
        with model.no_sync():
            train(model, rank)
        assert large_sums() == []
        train(model, rank)
        assert compressed("all_reduce")

    in_environment(body)


def test_a_rank_that_has_joined_compresses_as_the_others_do():
    def body(rank):
        model = DistributedDataParallel(network())
        with Join([model]):
            train(model, rank, steps=1 + 2 * rank)
        assert compressed("all_reduce")

    in_environment(body)


def test_checkpointed_and_second_backward_passes_compress_too():
    from torch.utils.checkpoint import checkpoint

    class Recomputed(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, inputs):
            return checkpoint(self.inner, inputs, use_reentrant=True)

    def body(rank):
        model = DistributedDataParallel(Recomputed(network()))
        model(batch(rank).requires_grad_()).square().mean().backward()
        assert compressed("all_reduce")

    in_environment(body)


def test_fsdps_gradients_are_compressed_and_nothing_else():
    def body(rank):
        model = network(512)
        for part in (model[0], model[2], model):
            fully_shard(part)
        train(model, rank)
        assert {record["operation"] for record in qccl.comms_logger.records() if record["compression"] != "none"} == {
            "reduce_scatter"
        }
        assert compressed("reduce_scatter")

        for strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.NO_SHARD):
            model = FullyShardedDataParallel(network(512), sharding_strategy=strategy, device_id=torch.device("cpu"))
            train(model, rank)
            assert compressed("reduce_scatter" if strategy is ShardingStrategy.FULL_SHARD else "all_reduce")

    in_environment(body)


def test_fsdp_over_replicas_compresses_both_of_its_sums():
    def body(rank):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
        model = network(512)
        fully_shard(model, mesh=mesh)
        train(model, rank)
        assert compressed("reduce_scatter", "all_reduce")

    in_environment(body, 4)


# ---- as it is: everything else


def test_averages_of_parameters_are_exact():
    def body(rank):
        model = network()
        train(model, rank, 1)  # torch averages parameters that have gradients
        before = copy.deepcopy(list(model.parameters()))
        PeriodicModelAverager(period=1).average_parameters(list(model.parameters()))
        assert plain("all_reduce")
        for parameter, own in zip(model.parameters(), before, strict=True):
            torch.testing.assert_close(parameter, own, rtol=1e-6, atol=0)  # all ranks have equal weights
        averager = HierarchicalModelAverager(period_group_size_dict={1: 2})
        averager.average_parameters(list(model.parameters()))
        assert plain("all_reduce")

        smoothed = [own.detach() * 0.9 for own in before]  # a moving average that ranks bring together
        for values in smoothed:
            dist.all_reduce(values, dist.ReduceOp.AVG)
        assert plain("all_reduce")

    in_environment(body)


def test_post_local_sgd_compresses_its_gradients_and_averages_parameters_exactly():
    def body(rank):
        model = DistributedDataParallel(network())
        state = post_localSGD_hook.PostLocalSGDState(process_group=None, subgroup=None, start_localSGD_iter=1)
        model.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer = PostLocalSGDOptimizer(inner, PeriodicModelAverager(period=1, warmup_steps=0))
        train(model, rank, 1)
        assert compressed("all_reduce")
        before = large_sums()
        optimizer.step()
        assert before == [] and plain("all_reduce")

    in_environment(body)


def test_what_a_hook_sums_in_a_gradients_place_is_exact():
    def own_hook(state, bucket):
        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0])

    def body(rank):
        model = DistributedDataParallel(network(1024))
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=32, start_powerSGD_iter=2)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        train(model, rank, 2)
        assert compressed("all_reduce")  # the gradients, before its start
        train(model, rank, 2)
        assert plain("all_reduce")

        model = DistributedDataParallel(network())
        model.register_comm_hook(None, own_hook)
        train(model, rank)
        assert plain("all_reduce")

    in_environment(body)


def test_tensor_parallel_activations_are_exact_beside_compressed_gradients():
    def body(rank):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        model = network(512)
        parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        inputs = torch.randn(1024, 64, generator=torch.Generator().manual_seed(mesh.get_local_rank("dp")))
        with torch.no_grad():
            torch.testing.assert_close(model(inputs), network(512)(inputs))
        assert plain("all_reduce")
        fully_shard(model, mesh=mesh["dp"])
        model(inputs.requires_grad_()).square().mean().backward()
        sums = large_sums()
        assert ("reduce_scatter", True) in sums and ("all_reduce", False) in sums
        assert ("all_reduce", True) not in sums and ("reduce_scatter", False) not in sums

    in_environment(body, 4)


def test_optimizers_that_shard_and_checkpoints_by_broadcast_are_exact():
    def body(rank):
        model = DistributedDataParallel(network())
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
        train(model, rank)
        assert compressed("all_reduce")
        reference = copy.deepcopy(model.module)
        for parameter, own in zip(reference.parameters(), model.parameters(), strict=True):
            parameter.grad = own.grad.clone()
        torch.optim.Adam(reference.parameters(), lr=0.01).step()
        optimizer.step()
        for parameter, own in zip(reference.parameters(), model.parameters(), strict=True):
            assert torch.equal(parameter, own)
        optimizer.consolidate_state_dict(to=0)

        values = torch.randn(COUNT, generator=torch.Generator().manual_seed(rank))
        saved = torch.randn(COUNT, generator=torch.Generator().manual_seed(0))
        dist.broadcast(values, 0)
        assert torch.equal(values, saved)
        assert {record["compression"] for record in qccl.comms_logger.records()} <= {"none"}

    in_environment(body)


class _Doubled(torch.autograd.Function):
    """Its gradient is a sum over the ranks, as in tensor parallelism."""

    @staticmethod
    def forward(context, inputs):
        return inputs

    @staticmethod
    def backward(context, gradient):
        dist.all_reduce(gradient := gradient.clone())
        return gradient


def test_a_programs_own_sums_are_exact_in_the_backward_pass_too():
    def body(rank):
        ones = torch.ones(COUNT)
        dist.all_reduce(ones)
        dist.reduce(ones, 0)
        dist.reduce_scatter_tensor(torch.empty(COUNT // 2), ones)
        dist.reduce_scatter(torch.empty(COUNT // 2), list(ones.chunk(2)))
        assert plain("all_reduce", "reduce", "reduce_scatter")
        functional.wait_tensor(functional.all_reduce(ones, "sum", dist.group.WORLD))
        assert plain("all_reduce")

        leaf = torch.ones(COUNT, requires_grad=True)
        _Doubled.apply(leaf).sum().backward()
        assert plain("all_reduce") and leaf.grad.eq(2).all()
        gathered = functional.all_gather_tensor_autograd(leaf, 0, dist.group.WORLD)  # its backward pass is C++'s
        gathered.backward(torch.ones_like(gathered))
        assert plain("reduce_scatter")
        leaf.register_post_accumulate_grad_hook(lambda of: dist.all_reduce(of.grad))
        (3 * leaf).sum().backward()
        assert plain("all_reduce")

    in_environment(body)


# ---- named


def average(tensor):
    dist.all_reduce(tensor, dist.ReduceOp.AVG)


@pytest.mark.parametrize("callers", [f"deepspeed.runtime, {__name__}.average", __name__, "*"])
def test_named_callers_are_compressed(callers):
    def body(rank):
        average(torch.ones(COUNT))
        assert compressed("all_reduce")

    in_environment(body, QCCL_COMPRESSION_CALLERS=callers)


def test_other_names_change_nothing():
    def body(rank):
        average(torch.ones(COUNT))
        assert plain("all_reduce")

    in_environment(body, QCCL_COMPRESSION_CALLERS=f"{__name__}.averag,,torch.optim")


def test_what_the_program_chooses_is_for_all_its_sums():
    def body(rank):
        average(torch.ones(COUNT))
        assert compressed("all_reduce")
        group = dist.new_group()
        dist.all_reduce(torch.ones(COUNT), group=group)
        assert plain("all_reduce")
        qccl.set_compression(group, "int:bits=8")
        dist.all_reduce(torch.ones(COUNT), group=group)
        assert compressed("all_reduce")
        qccl.all_reduce(torch.ones(COUNT), group=dist.new_group(), compression="int:bits=8")
        assert compressed("all_reduce")

    in_environment(body, pg_options=qccl.Options("int:bits=8"))


# ---- the log


def test_each_group_says_once_what_is_compressed_and_what_is_not():
    def body(rank):
        lines = []
        handler = logging.Handler()
        handler.emit = lambda record: lines.append((record.levelname, record.getMessage()))
        logger = logging.getLogger("qccl")
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        group = dist.new_group()
        for _ in range(2):
            average(torch.ones(10))
        assert lines == []
        for _ in range(2):
            average(torch.ones(COUNT))
            train(DistributedDataParallel(network()), rank)
        dist.all_reduce(torch.ones(COUNT), group=group)
        return lines

    on_rank_0, on_rank_1 = in_environment(body)
    assert on_rank_1 == []
    assert [level for level, _ in on_rank_0] == ["WARNING", "INFO", "WARNING"]
    exact, gradients, of_group = (text for _, text in on_rank_0)
    assert exact.startswith(f"group 0: QCCL_COMPRESSION leaves what {__name__}.average sums as it is")
    assert "QCCL_COMPRESSION_CALLERS" in exact
    assert gradients.startswith("group 0: QCCL_COMPRESSION sends gradients with int:bits=2")
    assert "torch.nn.parallel.distributed" in gradients
    assert of_group.startswith("group 1: ") and __name__ in of_group


def test_automatic_compression_tries_nothing_on_what_is_no_gradient():
    def body(rank):
        numbers = torch.arange(1 << 20, dtype=torch.float32) % 1009
        for _ in range(12):  # several trials of each codec
            tensor = numbers * (1 + rank)
            dist.all_reduce(tensor)
            assert torch.equal(tensor, 3 * numbers)

    run_ranks(body, environment={"QCCL_COMPRESSION": "auto"})
