"""qccl.fsdp.State between hosts: each shard is averaged over the hosts, as by torch's HSDP, with a residual for it."""

from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from hosts import SHARDS, loss_of, make_mesh, make_network
from ranks import run_ranks
from torch import nn
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import qccl
import qccl.fsdp

STOCHASTIC = "int:bits=3,rounding=stochastic"
COMPRESSED = {"0", "2"}  # modules whose shards have at least 64 KiB


def shard(mesh, **how):
    model = make_network()
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh, **how)
    return fully_shard(model, mesh=mesh, **how)


def between_hosts(hosts, compression, error_feedback=True, **how):
    mesh = make_mesh(hosts)
    model = shard(mesh["shard"], **how)
    return model, qccl.fsdp.State(model, compression, error_feedback, replicate=mesh["replicate"])


def gradients_of(model):
    return [parameter.grad.full_tensor() for parameter in model.parameters()]


def bits_of(tensors):
    return [tensor.detach().numpy().tobytes() for tensor in tensors]


def gradients_of_step(model, rank, step):
    model.zero_grad()
    loss_of(model, rank, step).backward()
    return gradients_of(model)


def counters_of(state):
    return {name: saved["calls"] for name, saved in state.state_dict()["modules"].items() if saved["calls"]}


def are_equal(values):
    first, *others = values
    return all(first == other for other in others)


# ---- Averages


def accumulate(model, rank, way):
    """A step of three backward passes. Returns the gradients."""
    for index in range(3):
        is_last = index == 2
        model.set_is_last_backward(is_last)
        if way == "reduce_scatter":
            model.set_requires_all_reduce(is_last)
        elif way == "nothing":
            model.set_requires_gradient_sync(is_last)
        (loss_of(model, rank, index) / 3).backward()
    return gradients_of(model)


def check_against_hsdp(hosts, ways, divisor=None, **how):
    """Two steps of each way, the second with other values in the same places."""

    def body(rank):
        own, _ = between_hosts(hosts, "none", **how)
        native = shard(make_mesh(hosts, between="gloo"), **how)
        for model in (own, native):
            for module in model.modules():
                if divisor is not None and hasattr(module, "set_gradient_divide_factor"):
                    module.set_gradient_divide_factor(divisor)
        for way in 2 * ways:
            results = [accumulate(model, rank, way) for model in (own, native)]
            for mine, wanted in zip(*results, strict=True):
                assert wanted.abs().max() > 1e-4
                torch.testing.assert_close(mine, wanted, rtol=2e-6, atol=1e-8)
                assert hosts != 2 or torch.equal(mine, wanted), way
            own.zero_grad()
            native.zero_grad()

    limits = {"timeout": timedelta(seconds=90), "deadline_seconds": 180.0}  # on a busy machine
    run_ranks(body, hosts * SHARDS, backend="gloo", **limits)


def test_averages_are_those_of_torchs_hsdp_however_gradients_are_accumulated():
    check_against_hsdp(2, ["every pass", "reduce_scatter", "nothing"])


def test_averages_over_three_hosts_are_those_of_torchs_hsdp_up_to_rounding():
    check_against_hsdp(3, ["reduce_scatter"])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_averages_in_a_reduce_dtype_have_the_bits_of_torchs_hsdp(dtype):
    check_against_hsdp(2, ["reduce_scatter"], mp_policy=MixedPrecisionPolicy(reduce_dtype=dtype))


def test_a_programs_own_divisor_counts_as_in_torchs_hsdp():
    check_against_hsdp(2, ["every pass"], divisor=SHARDS)
    check_against_hsdp(2, ["every pass"], divisor=6.0, mp_policy=MixedPrecisionPolicy(reduce_dtype=torch.float16))


def test_large_sums_of_float16_do_not_overflow():
    """Halves of the largest float16, which four hosts would add to infinity."""

    def body(_rank):
        mesh = init_device_mesh("cpu", (4, 1), mesh_dim_names=("replicate", "shard"), backend_override={0: "qccl"})
        model = nn.Linear(8, 8, bias=False)
        fully_shard(model, mesh=mesh["shard"], mp_policy=MixedPrecisionPolicy(reduce_dtype=torch.float16))
        qccl.fsdp.State(model, "none", replicate=mesh["replicate"])
        (model(torch.ones(1, 8)) * 30000).sum().backward()
        assert torch.equal(model.weight.grad.full_tensor(), torch.full((8, 8), 30000.0))

    run_ranks(body, 4, backend="gloo")


# ---- Compression


def test_what_is_owed_makes_up_for_what_is_missing():
    """The parameters stay unchanged, so the gradients of one step can be summed and compared with exact ones. The error
    of a mean of T steps with error feedback falls as 1/T."""

    def error_of_mean(rank, calls, exact, error_feedback):
        model, _ = between_hosts(2, "minmax:bits=2", error_feedback)
        steps = [gradients_of_step(model, rank, 0) for _ in range(calls)]
        means = [sum(each) / calls for each in zip(*steps, strict=True)]
        return [((own - other).norm() / other.norm()).item() for own, other in zip(means, exact, strict=True)]

    def body(rank):
        exact = gradients_of_step(shard(make_mesh(2, between="gloo")), rank, 0)
        without = error_of_mean(rank, 4, exact, False)
        few, many = error_of_mean(rank, 4, exact, True), error_of_mean(rank, 16, exact, True)
        for index in (0, 2):  # large weights
            assert without[index] > 0.1
            assert many[index] < 0.15 * without[index]
            assert many[index] < 0.5 * few[index]
        assert many[4] < 1e-5, "a small tensor was compressed"
        return bits_of(gradients_of_step(between_hosts(2, "minmax:bits=2")[0], rank, 0))

    assert are_equal(run_ranks(body, 4, backend="gloo")), "ranks differ"


def test_accumulated_gradients_are_compressed_once_a_step():
    def body(rank):
        model, state = between_hosts(2, "int:bits=4")
        for _ in range(2):
            accumulate(model, rank, "reduce_scatter")
        assert counters_of(state) == {"0": 2, "2": 2}
        assert set(counters_of(state)) == COMPRESSED

    run_ranks(body, 4, backend="gloo")


def train(model, rank, steps, optimizer):
    losses = []
    for step in steps:
        optimizer.zero_grad()
        loss = loss_of(model, rank, step)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            losses.append(loss_of(model, 99, 99).item())
    return losses


def test_training_at_four_bits_ends_with_nearly_the_loss_of_torchs_hsdp():
    def body(rank):
        mesh = make_mesh(2)
        own = shard(mesh["shard"])
        qccl.fsdp.State(own, "int:bits=4", replicate=mesh["replicate"])
        exact = shard(make_mesh(2, between="gloo"))
        before = qccl.traffic(mesh["replicate"].get_group()).bytes_sent
        losses = [train(each, rank, range(30), torch.optim.AdamW(each.parameters(), 2e-3)) for each in (own, exact)]
        sent = qccl.traffic(mesh["replicate"].get_group()).bytes_sent - before
        return *losses, sent / 30

    results = run_ranks(body, 4, backend="gloo")
    own, exact, sent = results[0]
    assert all(each[0] == own for each in results), "ranks differ"
    assert own != exact and own[-1] < 0.6 * own[0]
    assert own[-1] == pytest.approx(exact[-1], rel=0.01)
    whole = 4 * sum(parameter.numel() for parameter in make_network().parameters()) / SHARDS
    assert sent < 0.25 * whole, "the other host gets more than 4 bits an element and small tensors"


# ---- Checkpoints


def contents(model, optimizer, state, as_dict):
    """What a distributed checkpoint is made of."""
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments, "qccl": state.state_dict() if as_dict else state}


def restore(path, model, optimizer, state, as_dict=False, **how):
    saved = contents(model, optimizer, state, as_dict)
    dcp.load(saved, checkpoint_id=path, **how)
    set_state_dict(model, optimizer, model_state_dict=saved["model"], optim_state_dict=saved["optimizer"])
    if as_dict:
        state.load_state_dict(saved["qccl"])


def make_trainer(hosts):
    model, state = between_hosts(hosts, STOCHASTIC)
    return model, torch.optim.AdamW(model.parameters(), 2e-3), state


def parameters_of(model):
    model.reshard()
    return bits_of(parameter.full_tensor() for parameter in model.parameters())


@pytest.mark.parametrize("as_dict", [False, True], ids=["state", "state_dict"])
def test_a_distributed_checkpoint_goes_on_with_the_same_bits(tmp_path, as_dict):
    def interrupted(rank):
        model, optimizer, state = make_trainer(2)
        train(model, rank, range(3), optimizer)
        dcp.save(contents(model, optimizer, state, as_dict), checkpoint_id=tmp_path)
        train(model, rank, range(3, 6), optimizer)
        return parameters_of(model)

    def restarted(rank, with_residuals):
        model, optimizer, state = make_trainer(2)
        other, _, fresh = make_trainer(2)
        restore(tmp_path, model, optimizer, state if with_residuals else fresh, as_dict)
        train(model, rank, range(3, 6), optimizer)
        return parameters_of(model)

    expected = run_ranks(interrupted, 4, backend="gloo")
    assert are_equal(expected + run_ranks(restarted, 4, True, backend="gloo"))
    assert not are_equal(expected[:1] + run_ranks(restarted, 4, False, backend="gloo")[:1])


@pytest.mark.parametrize("hosts", [1, 3])
def test_a_distributed_checkpoint_serves_another_number_of_hosts(tmp_path, hosts):
    """What is owed is lost, once; all ranks count on together."""

    def save(rank):
        model, optimizer, state = make_trainer(2)
        train(model, rank, range(2), optimizer)
        dcp.save(contents(model, optimizer, state, False), checkpoint_id=tmp_path)

    def load(rank):
        model, optimizer, state = make_trainer(hosts)
        # A new rank's residual is not there.
        restore(tmp_path, model, optimizer, state, planner=DefaultLoadPlanner(allow_partial_load=True))
        train(model, rank, [2], optimizer)
        calls = 2 if hosts == 1 else 3  # a single host compresses nothing
        assert counters_of(state) == {"0": calls, "2": calls}
        return parameters_of(model)

    run_ranks(save, 4, backend="gloo")
    assert are_equal(run_ranks(load, hosts * SHARDS, backend="gloo"))


def test_reduce_scatters_residuals_survive_a_distributed_checkpoint(tmp_path):
    def make():
        model = shard(init_device_mesh("cpu", (2,)))
        return model, qccl.fsdp.State(model, STOCHASTIC)

    def save(rank):
        model, state = make()
        for step in range(3):
            gradients_of_step(model, rank, step)
        dcp.save({"qccl": state}, checkpoint_id=tmp_path)
        return bits_of(gradients_of_step(model, rank, 3))

    def load(rank):
        model, state = make()
        dcp.load({"qccl": state}, checkpoint_id=tmp_path)
        return bits_of(gradients_of_step(model, rank, 3))

    assert are_equal(run_ranks(save, 2) + run_ranks(load, 2))


def test_a_file_for_each_rank_goes_on_with_the_same_bits(tmp_path):
    def body(rank):
        model, state = between_hosts(2, STOCHASTIC)
        for step in range(2):
            gradients_of_step(model, rank, step)
        torch.save(state.state_dict(), tmp_path / str(rank))
        expected = bits_of(gradients_of_step(model, rank, 2))
        state.load_state_dict(torch.load(tmp_path / str(rank)))
        assert bits_of(gradients_of_step(model, rank, 2)) == expected
        state.reset()
        assert bits_of(gradients_of_step(model, rank, 2)) != expected

    run_ranks(body, 4, backend="gloo")


# ---- Errors


def refused(model: nn.Module, error: type[Exception], match: str, **how: Any) -> None:
    with pytest.raises(error, match=match):
        qccl.fsdp.State(model, "int:bits=4", **how)


def test_what_does_not_fit_is_refused_with_what_to_do():
    def body(rank):
        mesh = make_mesh(2)
        between, gloo = mesh["replicate"], make_mesh(2, between="gloo")
        model = shard(mesh["shard"])
        refused(make_network(), ValueError, r"call fully_shard\(\) first", replicate=between)
        refused(model, ValueError, r"replicate is a mesh of 2 dimensions.*mesh\[\"replicate\"\]", replicate=mesh)
        refused(model, TypeError, "must be a one-dimensional DeviceMesh or a process group, got str", replicate="dp")
        backend = rf"rank {rank}: the group between hosts.*backend gloo.*backend_override=\{{\"replicate\": \"qccl\"\}}"
        refused(model, ValueError, backend, replicate=gloo["replicate"])
        refused(model, ValueError, backend, replicate=mesh["shard"].get_group())
        refused(model, ValueError, rf"rank {rank}: the model's root module is.*backend gloo.*replicate=mesh")
        inside = r"torch sums between hosts itself.*mesh=mesh\['shard'\]"
        refused(shard(mesh), ValueError, inside, replicate=between)
        qccl_all = dist.new_group(backend="qccl")
        refused(model, ValueError, r"both have ranks \[\d, \d\]: they may have only this rank", replicate=qccl_all)
        outside = dist.new_group([0], backend="qccl")
        if rank != 0:
            refused(model, ValueError, f"rank {rank} is not in this process group", replicate=outside)

    run_ranks(body, 4, backend="gloo")


def test_ranks_with_different_compressions_are_named():
    def body(rank):
        bits = 4 if rank < 2 else 8
        model, _ = between_hosts(2, f"int:bits={bits}")
        ranks = rf"ranks \[{rank % 2}, {rank % 2 + 2}\] of the world"
        who = rf"rank {rank}: the average of module '2' between {ranks} failed"
        with pytest.raises(dist.DistBackendError, match=rf"(?s){who}.*int:bits=4.*int:bits=8"):
            gradients_of_step(model, rank, 0)

    run_ranks(body, 4, backend="gloo")


def test_accumulated_gradients_of_other_parameters_are_refused():
    def body(rank):
        model, state = between_hosts(2, "int:bits=4")
        model.set_requires_all_reduce(False)
        loss_of(model, rank, 0).backward()
        model[2].weight.requires_grad_(False)
        with pytest.raises(ValueError, match=r"module '2' has gradients of 128 elements.*after 65664 in the backward"):
            loss_of(model, rank, 1).backward()
        state.reset()

    run_ranks(body, 4, backend="gloo")


def test_what_is_no_checkpoint_is_refused():
    def body(_rank):
        _, state = between_hosts(1, "int:bits=4")
        with pytest.raises(ValueError, match="checkpoint.*that of module '0' has no 'calls'"):
            state.load_state_dict({"modules": {"0": {"calls": 1}}})
        garbage = torch.ones(9, dtype=torch.uint8)
        damaged = {"calls": 1, "shards": 2, "hosts": 1, "residual": {str(dist.get_rank()): (garbage,)}}
        with pytest.raises(dist.DistNetworkError):
            state.load_state_dict({"modules": {"0": damaged}})
        assert counters_of(state) == {}

    run_ranks(body, 2, backend="gloo")
