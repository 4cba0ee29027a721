"""Compression from Python: by call, by group, and by parameter in DDP's hook."""

import math

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

import qccl

COUNT = 30_000  # beyond 64 KiB


def gaussian(rank, call=0, count=COUNT):
    return torch.randn(count, generator=torch.Generator().manual_seed(100 * call + rank))


def exact_sum(world, call=0):
    return sum(gaussian(rank, call) for rank in range(world))


def same_on_all_ranks(tensor):
    first = tensor.clone()
    dist.broadcast(first, 0)
    return torch.equal(first, tensor)


# ---- a call


@pytest.mark.parametrize(
    "spec, error",
    [
        ("none", 1e-6),
        ("minmax:bits=8", 0.2),
        ("cast:type=bf16", 0.1),
        ("grid:relative=0.25", 0.7),
        ("grid:bound=0.01", 0.05),
        ("grid:entropy=rans,bound=0.01", 0.05),
    ],
)
def test_a_call_says_its_own_compression(spec, error):
    def body(rank):
        for count in (1, 100, COUNT):
            tensor = gaussian(rank, count=count)
            before = qccl.traffic().bytes_sent
            assert qccl.all_reduce(tensor, compression=spec) is None
            sent = qccl.traffic().bytes_sent - before
            expected = sum(gaussian(r, count=count) for r in range(3))
            assert torch.allclose(tensor, expected, rtol=0, atol=error)
            assert same_on_all_ranks(tensor)
        return sent

    sent = run_ranks(body, 3)[0]
    assert (sent < 0.8 * 4 * COUNT) == (spec != "none")


def test_a_call_may_be_asynchronous_and_average():
    def body(rank):
        tensor = gaussian(rank)
        work = qccl.all_reduce(tensor, dist.ReduceOp.AVG, async_op=True, compression="int:bits=8")
        work.wait()
        assert torch.allclose(tensor, exact_sum(2) / 2, rtol=0, atol=0.1)

    run_ranks(body)


def test_what_can_not_be_compressed_is_refused():
    def body(rank):
        with pytest.raises(NotImplementedError, match="int64"):
            qccl.all_reduce(torch.ones(10, dtype=torch.int64), compression="minmax:bits=4")
        with pytest.raises(NotImplementedError, match="max"):
            qccl.all_reduce(torch.ones(10), dist.ReduceOp.MAX, compression="minmax:bits=4")
        with pytest.raises(ValueError, match="minmax:bits=1..32"):
            qccl.all_reduce(torch.ones(10), compression="minmax:bits=99")
        with pytest.raises(ValueError, match="error feedback for 9 elements, but the input has 10"):
            qccl.all_reduce(torch.ones(10), compression="minmax:bits=4", error_feedback=qccl.ErrorFeedback(9))

    run_ranks(body)


# ---- error feedback


def test_what_error_feedback_owes_makes_up_for_what_is_missing():
    calls = 5

    def body(rank):
        feedback = qccl.ErrorFeedback(COUNT)
        total = torch.zeros(COUNT)
        for call in range(calls):
            tensor = gaussian(rank, call)
            qccl.all_reduce(tensor, compression="minmax:bits=2", error_feedback=feedback)
            total += tensor
        assert feedback.counter == calls
        owed = feedback.residual.clone()
        dist.all_reduce(owed)
        wanted = sum(exact_sum(2, call) for call in range(calls))
        assert torch.allclose(total + owed, wanted, rtol=0, atol=1e-3)
        assert not torch.allclose(total, wanted, rtol=0, atol=0.1)

    run_ranks(body)


@pytest.mark.parametrize(
    "spec", ["int:bits=4,rounding=stochastic", "grid:relative=1,rounding=stochastic", "grid:entropy=rans,bound=0.5"]
)
def test_error_feedback_goes_on_from_a_checkpoint_with_the_same_bits(spec):
    def body(rank):
        def call(number, feedback):
            tensor = gaussian(rank, number)
            qccl.all_reduce(tensor, compression=spec, error_feedback=feedback)
            return tensor

        feedback = qccl.ErrorFeedback(COUNT)
        call(0, feedback)
        saved = feedback.state_dict()
        uninterrupted = call(1, feedback)
        other = qccl.ErrorFeedback(COUNT)
        other.load_state_dict(saved)
        assert torch.equal(call(1, other), uninterrupted)
        with pytest.raises(ValueError, match="30000 elements, this error feedback has 10"):
            qccl.ErrorFeedback(10).load_state_dict(saved)
        saved["saved"][50] ^= 1
        with pytest.raises(dist.DistNetworkError):
            other.load_state_dict(saved)

    run_ranks(body)


def test_wrong_error_feedback_is_refused():
    with pytest.raises(ValueError, match="can't be of -1 elements"):
        qccl.ErrorFeedback(-1)
    with pytest.raises(ValueError, match="after -2 calls"):
        qccl.ErrorFeedback(1, -2)
    for other in ({"a": 1}, {"saved": 1}, None):
        with pytest.raises(ValueError, match="no checkpoint of a qccl.ErrorFeedback"):
            qccl.ErrorFeedback.from_state_dict(other)


def test_error_feedback_can_be_reset_in_part():
    def body(rank):
        feedback = qccl.ErrorFeedback(COUNT)
        qccl.all_reduce(gaussian(rank), compression="minmax:bits=2", error_feedback=feedback)
        feedback.reset(0, 100)
        owed = feedback.residual
        assert owed[:100].count_nonzero() == 0 and owed[100:].count_nonzero() > 0
        feedback.reset()
        assert owed.count_nonzero() == 0 and feedback.counter == 0
        with pytest.raises(ValueError):
            feedback.reset(5)

    run_ranks(body)


def test_a_group_keeps_error_feedback_for_tensors_that_stay_where_they_are():
    def body(rank):
        group = dist.new_group(pg_options=qccl.Options(compression="minmax:bits=2", error_feedback=True))
        small = torch.ones(10)
        dist.all_reduce(small, group=group)
        assert torch.equal(small, torch.full((10,), 2.0))
        memory, calls = torch.empty(COUNT), 60
        total = torch.zeros(COUNT)
        for _ in range(calls):
            memory.copy_(gaussian(rank))
            dist.all_reduce(memory, group=group)
            total += memory
        error = (total / calls - exact_sum(2)).abs().max().item()
        plain = gaussian(rank)
        qccl.all_reduce(plain, compression="minmax:bits=2")
        assert error < 0.1 * (plain - exact_sum(2)).abs().max().item()

    run_ranks(body)


# ---- DDP


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.first = nn.Linear(64, 512)
        self.second = nn.Linear(512, 512)
        self.third = nn.Linear(512, 8)

    def forward(self, inputs):
        return self.third(torch.tanh(self.second(torch.tanh(self.first(inputs)))))


def batch(rank, step, size=16):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    inputs = torch.randn(size, 64, generator=generator)
    return inputs, torch.tanh(inputs[:, :8] * 2 + inputs[:, 8:16])


def train(model, rank, steps, first=0):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for step in range(first, first + steps):
        inputs, targets = batch(rank, step)
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def weights(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def hooked(policy, error_feedback=True, **options):
    model = DistributedDataParallel(Network(), bucket_cap_mb=0.5, **options)
    state = qccl.ddp.State(model, policy, error_feedback=error_feedback)
    model.register_comm_hook(state, qccl.ddp.compress_hook)
    return model, state


@pytest.mark.parametrize("error_feedback", [False, True])
@pytest.mark.parametrize("world", [1, 2, 3])
def test_the_hook_trains_alike_on_all_ranks(world, error_feedback):
    def body(rank):
        model, state = hooked("minmax:bits=4", error_feedback)
        losses = train(model, rank, 12)
        assert same_on_all_ranks(weights(model))
        assert state.step == 12
        assert losses[-1] < 0.9 * losses[0]
        kept = {name for name in dict(model.module.named_parameters()) if state.owed(name) is not None}
        assert kept == ({"first.weight", "second.weight"} if error_feedback else set())

    run_ranks(body, world)


def test_the_hook_of_nothing_is_ddp_to_the_bit():
    def body(rank):
        plain = DistributedDataParallel(Network(), bucket_cap_mb=0.5)
        train(plain, rank, 6)
        model, _ = hooked("none")
        train(model, rank, 6)
        assert torch.allclose(weights(plain), weights(model), rtol=0, atol=1e-6)

    run_ranks(body)


def test_a_policy_chooses_by_name_and_step():
    def body(rank):
        model, state = hooked("warmup=2; name=second.* minmax:bits=4; name=first.* none")
        train(model, rank, 2)
        assert state.owed("second.weight") is None
        train(model, rank, 2)
        assert state.owed("second.weight").count_nonzero() > 0
        assert state.owed("first.weight") is None

    run_ranks(body)


def test_training_goes_on_from_a_checkpoint_with_the_same_bits():
    def body(rank):
        model, state = hooked("int:bits=3,rounding=stochastic")
        train(model, rank, 5)
        saved, parameters = state.state_dict(), {k: v.clone() for k, v in model.module.state_dict().items()}
        train(model, rank, 4, first=5)
        again, other = hooked("int:bits=3,rounding=stochastic")
        again.module.load_state_dict(parameters)
        other.load_state_dict(saved)
        assert other.step == 5
        train(again, rank, 4, first=5)
        assert torch.equal(weights(model), weights(again))

    run_ranks(body)


def test_a_rank_that_is_new_owes_nothing_and_counts_as_the_others():
    def body(rank):
        model, state = hooked("int:bits=3,rounding=stochastic")
        train(model, rank, 3)
        saved = [state.state_dict()]
        dist.broadcast_object_list(saved, 0)
        mine = state.state_dict()
        again, other = hooked("int:bits=3,rounding=stochastic")
        if rank == 0:
            other.load_state_dict(mine)
        else:
            other.load_state_dict(saved[0], owed=False)
            assert other.owed("second.weight").count_nonzero() == 0
        train(again, rank, 3, first=3)
        assert same_on_all_ranks(weights(again))

    run_ranks(body)


def test_what_is_no_checkpoint_of_the_model_is_refused():
    def body(rank):
        model, state = hooked("minmax:bits=4")
        train(model, rank, 1)
        with pytest.raises(ValueError, match="no checkpoint of a qccl.ddp.State"):
            state.load_state_dict({"a": 1})
        other = DistributedDataParallel(nn.Linear(300, 300))
        small = {"step": 1, "feedback": {"weight": qccl.ErrorFeedback(10).state_dict()}}
        with pytest.raises(ValueError, match="no parameter 'first.weight'"):
            qccl.ddp.State(other).load_state_dict(state.state_dict())
        with pytest.raises(ValueError, match="'weight' has 10 elements, this one's 90000"):
            qccl.ddp.State(other).load_state_dict(small)
        assert state.step == 1 and state.owed("first.weight") is not None

    run_ranks(body, 1)


def test_accumulated_gradients_are_sent_once():
    def body(rank):
        model, state = hooked("minmax:bits=8")
        with model.no_sync():
            inputs, targets = batch(rank, 0)
            nn.functional.mse_loss(model(inputs), targets).backward()
        assert state.step == 0
        inputs, targets = batch(rank, 1)
        nn.functional.mse_loss(model(inputs), targets).backward()
        assert state.step == 1
        assert same_on_all_ranks(torch.cat([p.grad.flatten() for p in model.parameters()]))

    run_ranks(body)


def test_mixed_precision_gradients_are_compressed():
    def body(rank):
        model = DistributedDataParallel(Network().to(torch.bfloat16), bucket_cap_mb=0.5)
        state = qccl.ddp.State(model, "minmax:bits=8")
        model.register_comm_hook(state, qccl.ddp.compress_hook)
        for step in range(3):
            inputs, targets = batch(rank, step)
            loss = nn.functional.mse_loss(model(inputs.bfloat16()), targets.bfloat16())
            loss.backward()
        assert same_on_all_ranks(torch.cat([p.grad.flatten().float() for p in model.parameters()]))
        assert state.owed("second.weight") is not None

    run_ranks(body)


@pytest.mark.parametrize("divide_by_initial", [True, False])
def test_ranks_with_fewer_batches_join_and_pay_what_they_owe(divide_by_initial):
    batches = [7, 3, 5]

    def body(rank):
        model, state = hooked("minmax:bits=4")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        with Join([model], divide_by_initial_world_size=divide_by_initial):
            for step in range(batches[rank]):
                inputs, targets = batch(rank, step)
                optimizer.zero_grad()
                nn.functional.mse_loss(model(inputs), targets).backward()
                optimizer.step()
        assert state.step == max(batches)
        assert math.isfinite(weights(model).sum().item())
        assert same_on_all_ranks(weights(model))

    run_ranks(body, 3)


# ---- FSDP2


def sharded_training(rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = Network()
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    before = qccl.traffic().bytes_sent
    losses = train(model, rank, 8)
    return losses, qccl.traffic().bytes_sent - before


def test_fsdp_sends_gradients_and_parameters_compressed():
    plain = run_ranks(sharded_training)
    reduced = run_ranks(sharded_training, pg_options=qccl.Options(compression="minmax:bits=8"))
    both = qccl.Options(compression="minmax:bits=8", all_gather_compression="cast:type=bf16")
    gathered = run_ranks(sharded_training, pg_options=both)
    for (losses, sent), (own, own_sent), share in [(plain[0], reduced[0], 0.8), (reduced[0], gathered[0], 0.8)]:
        assert own_sent < share * sent
        assert own[-1] == pytest.approx(losses[-1], rel=0.02)


def test_all_gathers_of_small_tensors_and_integers_are_exact():
    def body(rank):
        for dtype, count in [(torch.float32, 1000), (torch.int64, 100_000)]:
            own = (torch.randn(count, generator=torch.Generator().manual_seed(rank)) * 1000).to(dtype)
            everyone = [torch.empty_like(own) for _ in range(2)]
            dist.all_gather(everyone, own)
            assert torch.equal(everyone[rank], own)

    run_ranks(body, pg_options=qccl.Options(all_gather_compression="minmax:bits=2"))
