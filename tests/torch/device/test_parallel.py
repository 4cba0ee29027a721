"""What torch builds on collectives gives on a device what it gives on the CPU, bit for bit."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo  # noqa: F401  seconds here, once, or in every rank
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.checkpoint as checkpoint
from device_ranks import BACKEND, DEVICE, KIND, needs_device, numbers, on_device
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

import qccl.fsdp
import qccl.pipeline

pytestmark = needs_device
DEVICES = ("cpu", DEVICE)


def same(values: list[Any]) -> None:
    """Asserts that the value of each device is the first one's."""
    on_cpu, on_device_ = values
    assert len(on_cpu) == len(on_device_) > 0
    for one, other in zip(on_cpu, on_device_, strict=True):
        assert torch.equal(one, other.cpu())


def network() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(40, 200), nn.Tanh(), nn.Linear(200, 203), nn.Tanh(), nn.Linear(203, 8))


def inputs(rank: int, step: int) -> torch.Tensor:
    return torch.randn(8, 40, generator=torch.Generator().manual_seed(100 * step + rank))


def train(model: nn.Module, device: str, rank: int, steps: int = 3) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
    for step in range(steps):
        model(inputs(rank, step).to(device)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


# ---- FSDP2


def sharded(device: str, **how: Any) -> nn.Module:
    model = network().to(device)
    mesh = init_device_mesh(torch.device(device).type, (dist.get_world_size(),))
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh, **how)
    return fully_shard(model, mesh=mesh, **how)


@pytest.mark.parametrize("compression", [None, "minmax:bits=8", "int:bits=4,rounding=stochastic"])
def test_fsdp2_trains_as_on_the_cpu(compression: str | None) -> None:
    def body(rank: int) -> None:
        ends = []
        for device in DEVICES:
            model = sharded(device)
            if compression is not None:
                qccl.fsdp.State(model, compression)
            train(model, device, rank)
            ends.append([parameter.full_tensor().detach() for parameter in model.parameters()])
        same(ends)

    on_device(body, 3, longest_delay=2000)


def test_shards_are_averaged_between_hosts_as_on_the_cpu() -> None:
    """Two hosts of two ranks; the first layer's shard is 64 KiB large."""

    def body(rank: int) -> None:
        ends = []
        for device in DEVICES:
            mesh = init_device_mesh(torch.device(device).type, (2, 2), mesh_dim_names=("replicate", "shard"))
            torch.manual_seed(1)
            model = nn.Sequential(nn.Linear(40, 840), nn.Tanh(), nn.Linear(840, 8)).to(device)
            for layer in (model[0], model[2]):
                fully_shard(layer, mesh=mesh["shard"])
            fully_shard(model, mesh=mesh["shard"])
            state = qccl.fsdp.State(model, "int:bits=4,rounding=stochastic", replicate=mesh["replicate"])
            train(model, device, rank)
            assert state.state_dict()["modules"]["0"]["calls"] == 3, "nothing was compressed"
            ends.append([parameter.full_tensor().detach() for parameter in model.parameters()])
        same(ends)

    on_device(body, 4, longest_delay=2000)


# ---- DTensor


def test_dtensors_are_redistributed_as_on_the_cpu() -> None:
    def body(rank: int) -> None:
        ends: list[list[torch.Tensor]] = [[], []]
        for device, end in zip(DEVICES, ends, strict=True):
            mesh = init_device_mesh(torch.device(device).type, (dist.get_world_size(),))
            whole = numbers(0, 7 * 30).view(7, 30).sin().to(device)
            placements = [Replicate(), Shard(0), Shard(1)]
            for before in placements:
                tensor = distribute_tensor(whole, mesh, [before])
                end += [tensor.redistribute(mesh, [after]).to_local() for after in placements]
                end.append((tensor @ tensor.t()).full_tensor())
            partial = DTensor.from_local((whole + rank), mesh, [Partial()])
            end += [partial.redistribute(mesh, [after]).to_local() for after in placements]
        same(ends)

    on_device(body, 3)


# ---- communication hooks of torch


def test_powersgd_trains_as_on_the_cpu() -> None:
    def body(rank: int) -> None:
        ends = []
        for device in DEVICES:
            torch.manual_seed(1)
            model = DistributedDataParallel(network().to(device))
            state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
            model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
            train(model, device, rank, 5)
            ends.append([parameter.detach() for parameter in model.parameters()])
        same(ends)

    on_device(body)


# ---- sparse gradients


def test_embeddings_with_sparse_gradients_train_as_on_the_cpu() -> None:
    def body(rank: int) -> None:
        ends = []
        for device in DEVICES:
            torch.manual_seed(5)
            model = DistributedDataParallel(
                nn.Sequential(nn.Embedding(30, 40, sparse=True), nn.Linear(40, 1)).to(device)
            )
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
            for step in range(3):
                rows = torch.arange(step, step + 4 + 3 * rank) % 9
                model(rows.to(device)).square().sum().backward()
                optimizer.step()
                optimizer.zero_grad()
            ends.append([parameter.detach() for parameter in model.parameters()])
        same(ends)

    on_device(body)


# ---- parts of qccl


def test_a_pipeline_moves_tensors_of_a_device() -> None:
    def body(rank: int) -> None:
        for variable_shapes in (False, True):
            pipeline = qccl.pipeline.Pipeline(None, torch.float32, variable_shapes, DEVICE)
            received = pipeline.recv_forward((60, 100))
            output = numbers(3, 6000).view(100, 60).t().to(DEVICE) if received is None else received * 2
            gradient = pipeline.send_forward_recv_backward(output, (60, 100))
            pipeline.send_backward(None if received is None else output + 1)
            for tensor in (received, gradient):
                assert tensor is None or tensor.device == torch.device(DEVICE)
            expected = numbers(3, 6000).view(100, 60).t()
            if rank == 0:
                assert torch.equal(gradient.cpu(), 2 * expected + 1)
            else:
                assert torch.equal(received.detach().cpu(), expected) and received.requires_grad

    on_device(body)


@pytest.mark.parametrize("backend", [BACKEND, f"{KIND}:qccl"])
def test_ranks_that_have_joined_count_in_averages(backend: str) -> None:
    """With divide_by_initial_world_size=False the hook shares how many ranks have inputs, in a call of its own."""

    def body(rank: int) -> list[Any]:
        model = DistributedDataParallel(network().to(DEVICE))
        model.register_comm_hook(qccl.ddp.State(model, "none"), qccl.ddp.compress_hook)
        with Join([model], divide_by_initial_world_size=False):
            train(model, DEVICE, rank, 1 + rank)
        return [parameter.detach().cpu().tolist() for parameter in model.parameters()]

    def on_cpu(rank: int) -> list[Any]:
        model = DistributedDataParallel(network())
        model.register_comm_hook(qccl.ddp.State(model, "none"), qccl.ddp.compress_hook)
        with Join([model], divide_by_initial_world_size=False):
            train(model, "cpu", rank, 1 + rank)
        return [parameter.detach().tolist() for parameter in model.parameters()]

    assert on_device(body, backend=backend) == on_device(on_cpu)


# ---- torch.compile


def test_a_compiled_ddp_model_trains_as_on_the_cpu() -> None:
    def body(rank: int) -> None:
        ends = []
        for device in DEVICES:
            model = DistributedDataParallel(network().to(device))
            train(torch.compile(model, backend="aot_eager"), device, rank)
            ends.append([parameter.detach() for parameter in model.parameters()])
        same(ends)

    on_device(body)


def test_compiled_functional_collectives_give_what_they_give_on_the_cpu() -> None:
    def body(rank: int) -> None:
        def program(tensor: torch.Tensor) -> list[torch.Tensor]:
            total = functional.all_reduce(tensor * 2, "sum", dist.group.WORLD)
            gathered = functional.all_gather_tensor(total + tensor, 0, dist.group.WORLD)
            part = functional.reduce_scatter_tensor(gathered, "avg", 0, dist.group.WORLD)
            turned = functional.all_to_all_single(gathered, None, None, dist.group.WORLD)
            return [total, gathered, part, turned, functional.broadcast(part, 1, dist.group.WORLD)]

        compiled = torch.compile(program, backend="aot_eager", fullgraph=True)
        same([compiled(numbers(rank, 600).to(device)) for device in DEVICES])

    on_device(body)


# ---- distributed checkpoints


def test_checkpoints_of_device_tensors_are_loaded_on_either_device(tmp_path: Path) -> None:
    def body(rank: int) -> None:
        for saved in DEVICES:
            model = sharded(saved)
            train(model, saved, rank, 1)
            expected = [parameter.full_tensor().detach() for parameter in model.parameters()]
            folder = tmp_path / torch.device(saved).type
            checkpoint.save({"model": model.state_dict()}, checkpoint_id=folder)
            for loaded in DEVICES:
                again = sharded(loaded)
                state = {"model": again.state_dict()}
                checkpoint.load(state, checkpoint_id=folder)
                again.load_state_dict(state["model"])
                values = [parameter.full_tensor().detach().cpu() for parameter in again.parameters()]
                same([values, expected])

    on_device(body)
