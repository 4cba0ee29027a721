"""FSDP2's gradients with error feedback: residuals are kept by module, survive a checkpoint, and can be reset."""

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import qccl
import qccl.fsdp

WORLD = 2


def make_model():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(64, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 8))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def gradients_of_step(model, rank, step):
    generator = torch.Generator().manual_seed(100 * step + rank)
    model.zero_grad()
    model(torch.randn(16, 64, generator=generator)).square().mean().backward()
    return [parameter.grad.full_tensor() for parameter in model.parameters()]


def test_what_is_owed_makes_up_for_what_is_missing():
    """The parameters stay unchanged, so the gradients of one step can be summed and compared with uncompressed ones."""
    calls = 12

    def error_of_mean(rank, compression, **how):
        model = make_model()
        if compression is not None:
            qccl.fsdp.State(model, compression, **how)
        exact = gradients_of_step(make_model(), rank, 0)
        steps = [gradients_of_step(model, rank, 0) for _ in range(calls)]
        means = [sum(each) / calls for each in zip(*steps, strict=True)]
        return [(own - other).norm() / other.norm() for own, other in zip(means, exact, strict=True)]

    def body(rank):
        plain = error_of_mean(rank, None)
        without = error_of_mean(rank, "minmax:bits=2", error_feedback=False)
        kept = error_of_mean(rank, "minmax:bits=2")
        for index in (0, 2):  # large weights
            assert plain[index] < 1e-5
            assert without[index] > 0.1
            assert kept[index] < 0.3 * without[index]
        assert kept[4] < 1e-5, "a small tensor was compressed"

    run_ranks(body, WORLD)


def test_training_goes_on_from_a_checkpoint_with_the_same_bits():
    def body(rank):
        model = make_model()
        state = qccl.fsdp.State(model, "int:bits=3,rounding=stochastic")
        for step in range(3):
            gradients_of_step(model, rank, step)
        saved = state.state_dict()
        assert set(counters_of(saved)) == {"0", "2"}  # the root's own parameters are small
        expected = gradients_of_step(model, rank, 3)
        again = make_model()
        other = qccl.fsdp.State(again, "int:bits=3,rounding=stochastic")
        other.load_state_dict(saved)
        for own, wanted in zip(gradients_of_step(again, rank, 3), expected, strict=True):
            assert torch.equal(own, wanted)
        other.reset()
        assert counters_of(other.state_dict()) == {}
        fresh = gradients_of_step(again, rank, 3)
        assert not torch.equal(fresh[2], expected[2])

    run_ranks(body, WORLD)


def counters_of(state):
    return {name: saved["calls"] for name, saved in state["modules"].items() if saved["calls"]}


@pytest.mark.parametrize("world", [3, 4])
def test_another_number_of_ranks_owes_nothing_and_counts_on(world, tmp_path):
    """The residual is in the order of two shards: a rank of four would apply it to other parameters."""

    def save(rank):
        model = make_model()
        state = qccl.fsdp.State(model, "minmax:bits=2")
        for step in range(3):
            gradients_of_step(model, rank, step)
        torch.save(state.state_dict(), tmp_path / str(rank))

    def load(rank):
        fresh, model = make_model(), make_model()
        qccl.fsdp.State(fresh, "minmax:bits=2")
        state = qccl.fsdp.State(model, "minmax:bits=2")
        state.load_state_dict(torch.load(tmp_path / str(rank % WORLD)))
        for own, expected in zip(gradients_of_step(model, rank, 3), gradients_of_step(fresh, rank, 3), strict=True):
            assert torch.equal(own, expected)
        assert counters_of(state.state_dict()) == {"0": 4, "2": 4}

    run_ranks(save, WORLD)
    run_ranks(load, world)


def test_another_ranks_checkpoint_owes_nothing():
    def body(rank):
        model = make_model()
        state = qccl.fsdp.State(model, "minmax:bits=2")
        gradients_of_step(model, rank, 0)
        saved = [state.state_dict()]
        dist.broadcast_object_list(saved, 0)
        state.load_state_dict(saved[0])
        assert (state._parts["2"].feedback.residual.count_nonzero() > 0) == (rank == 0)
        gradients_of_step(model, rank, 1)
        assert counters_of(state.state_dict()) == {"0": 2, "2": 2}

    run_ranks(body, WORLD)


def test_what_is_no_checkpoint_of_the_model_is_refused():
    def body(rank):
        model = make_model()
        state = qccl.fsdp.State(model, "minmax:bits=2")
        gradients_of_step(model, rank, 0)
        for other in ({"foo": {}}, {}, None):
            with pytest.raises(ValueError, match="no checkpoint of a qccl.fsdp.State"):
                state.load_state_dict(other)
        with pytest.raises(ValueError, match="another model: this one has no sharded module 'foo'"):
            state.load_state_dict({"modules": {"foo": {}}})
        with pytest.raises(ValueError, match="no checkpoint of a qccl.fsdp.State: that of module '0'"):
            state.load_state_dict({"modules": {"0": {}}})
        assert counters_of(state.state_dict()) == {"0": 1, "2": 1}

    run_ranks(body, WORLD)


def test_nothing_sharded_and_unknown_compressions_are_refused():
    def body(_rank):
        with pytest.raises(ValueError, match="call fully_shard"):
            qccl.fsdp.State(nn.Linear(4, 4))
        with pytest.raises(ValueError, match="minmax:bits=1..32"):
            qccl.fsdp.State(make_model(), "minmax:bits=99")

    run_ranks(body, 1)
