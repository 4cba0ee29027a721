"""Training on a device gives the losses and weights that it gives on the CPU, bit for bit.

The device computes on the CPU as well, so only what the backend does with its tensors could make a difference.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo  # noqa: F401  DDP asks for it: seconds here, once, or in every rank
import torch.distributed as dist
from device_ranks import BACKEND, DEVICE, needs_device, on_device
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parallel import DistributedDataParallel

import qccl

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "demo"))
import model as demo_model  # noqa: E402

SHAPE = demo_model.Shape(layers=1, width=48, heads=2, context=16)
STEPS = 3

pytestmark = needs_device


@dataclass(frozen=True)
class Way:
    """How DDP averages: the group's compression, or our hook's."""

    compression: str = "none"
    hook: bool = False
    error_feedback: bool = False


WAYS = [
    Way(compression, hook, error_feedback)
    for compression in ("none", "minmax:bits=8", "minmax:bits=4")
    for hook in (False, True)
    for error_feedback in (False, True)
    if compression != "none" or not error_feedback
]


def ddp(way: Way, device: str) -> DistributedDataParallel:
    options = None
    if not way.hook:
        options = qccl.Options(compression=way.compression, error_feedback=way.error_feedback)
    group = dist.new_group(backend=BACKEND, pg_options=options)
    torch.manual_seed(1)
    model = DistributedDataParallel(demo_model.GPT(SHAPE).to(device), process_group=group, bucket_cap_mb=0.1)
    if way.hook:
        compression = "none" if way.compression == "none" else f"bytes=0.. {way.compression}"
        model.register_comm_hook(
            qccl.ddp.State(model, compression, error_feedback=way.error_feedback), qccl.ddp.compress_hook
        )
    return model


def train(way: Way, device: str, rank: int) -> tuple[list[float], list[torch.Tensor]]:
    """The losses, and the weights at the end."""
    model = ddp(way, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, foreach=False)
    data = torch.Generator().manual_seed(rank)
    losses = []
    for _ in range(STEPS):
        text = torch.randint(0, 256, (4, SHAPE.context + 1), generator=data).to(device)
        with sdpa_kernel(SDPBackend.MATH):  # a device has no other without kernels of its own
            loss = model(text[:, :-1], text[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, [parameter.detach().cpu() for parameter in model.parameters()]


def train_alone(compression: str, device: str, rank: int) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    """The parameters and the global model, of ranks that synchronise every 4 steps."""
    torch.manual_seed(rank)
    model = demo_model.GPT(SHAPE).to(device)
    outer = qccl.outer.OuterLoop(
        model, every=4, fragments=2, delay=1, blend=0.25, compression=compression, error_decay=0.9
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, foreach=False)
    data = torch.Generator().manual_seed(rank)
    for _ in range(7):  # a round is in flight
        text = torch.randint(0, 256, (4, SHAPE.context + 1), generator=data).to(device)
        with sdpa_kernel(SDPBackend.MATH):
            model(text[:, :-1], text[:, 1:]).backward()
        optimizer.step()
        optimizer.zero_grad()
        outer.step()
    own = [parameter.detach().to("cpu", copy=True) for parameter in model.parameters()]
    outer.finish()
    return own, outer.global_state()


@pytest.mark.parametrize("compression", ["none", "int:bits=4"])
def test_the_outer_loop_trains_as_on_the_cpu(compression: str) -> None:
    def body(rank: int) -> Any:
        (own, end), (expected, expected_end) = (train_alone(compression, device, rank) for device in (DEVICE, "cpu"))
        assert all(torch.equal(one, other) for one, other in zip(own, expected, strict=True))
        assert all(torch.equal(values, expected_end[name]) for name, values in end.items())
        return torch.cat([values.flatten() for values in end.values()]).numpy(), own[0].numpy()

    (first, own), (second, other) = on_device(body, longest_delay=500)
    assert (first == second).all() and (own != other).any()


@pytest.mark.parametrize("world", [2, 3])
def test_ddp_trains_the_demos_model_as_on_the_cpu(world: int) -> None:
    def body(rank: int) -> Any:
        ends = []
        for way in WAYS:
            (losses, weights), (expected, on_cpu) = train(way, DEVICE, rank), train(way, "cpu", rank)
            assert losses == expected, way
            assert all(torch.equal(own, other) for own, other in zip(weights, on_cpu, strict=True)), way
            ends.append(torch.cat([weight.flatten() for weight in weights]))
        return torch.stack(ends).numpy()

    first, *others = on_device(body, world, longest_delay=500)
    for other in others:
        assert (first == other).all(), "replicas differ"
    compressed = {way: end.tobytes() for way, end in zip(WAYS, first, strict=True) if way.compression != "none"}
    assert len(set(compressed.values())) >= 4, "compression and error feedback made no difference"
