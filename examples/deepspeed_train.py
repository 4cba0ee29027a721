"""Trains a small network with DeepSpeed over QCCL, on CPUs. docs/deepspeed.md has commands.

    torchrun --standalone --nproc-per-node 2 examples/deepspeed_train.py --stage 2 --compression minmax:bits=4
"""

import argparse
from collections.abc import Iterator
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

import qccl

BATCH = 16
ONEBIT = ("OneBitAdam", "ZeroOneAdam", "OneBitLamb")


def make_model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 128), nn.Tanh(), nn.Linear(128, 16))


def make_batches(rank: int, world: int, steps: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """A rank's training data: inputs and targets, as many batches as steps."""
    generator = torch.Generator().manual_seed(2)
    for _ in range(steps):
        inputs = torch.randn(world * BATCH, 64, generator=generator)
        targets = torch.tanh(inputs[:, :16] * 2 + inputs[:, 16:32])
        mine = slice(rank * BATCH, (rank + 1) * BATCH)
        yield inputs[mine], targets[mine]


def make_examination() -> tuple[torch.Tensor, torch.Tensor]:
    """The batch that all ranks are examined with."""
    (examination,) = make_batches(0, 4, 1)
    return examination


def make_config(optimizer: str, parameters: dict[str, Any], stage: int) -> dict[str, Any]:
    return {
        "train_micro_batch_size_per_gpu": BATCH,
        "optimizer": {"type": optimizer, "params": parameters},
        "zero_optimization": {"stage": stage},
        "steps_per_print": 1_000_000,
    }


def train(
    config: dict[str, Any], steps: int, compression: str | None = None, model: nn.Module | None = None
) -> list[float]:
    """Trains and returns the losses after each step, on an examination batch that is the same for all ranks."""
    model = model or make_model()
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    if compression is not None:
        qccl.deepspeed.set_compression(engine, compression)
    inputs, targets = make_examination()
    losses = []
    for own_inputs, own_targets in make_batches(dist.get_rank(), dist.get_world_size(), steps):
        engine.backward(nn.functional.mse_loss(engine(own_inputs), own_targets))
        engine.step()
        engine.eval()
        with torch.no_grad():
            losses.append(nn.functional.mse_loss(engine(inputs), targets).item())
        engine.train()
    engine.destroy()
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stage", type=int, default=0, choices=range(4), help="of ZeRO")
    parser.add_argument("--optimizer", default="Adam", choices=("Adam", *ONEBIT))
    parser.add_argument("--compression", help='of gradients, for example "minmax:bits=4"')
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--local_rank", help="what DeepSpeed's launcher adds; LOCAL_RANK says the same")
    arguments = parser.parse_args()

    deepspeed.init_distributed("qccl")
    parameters: dict[str, Any] = {"lr": 3e-3}
    if arguments.optimizer in ONEBIT:
        qccl.deepspeed.install()
        parameters["var_freeze_step" if arguments.optimizer == "ZeroOneAdam" else "freeze_step"] = arguments.steps // 2
    else:
        parameters["torch_adam"] = True  # DeepSpeed's own Adam is for GPUs, or compiled at its first use
    config = make_config(arguments.optimizer, parameters, arguments.stage)
    losses = train(config, arguments.steps, arguments.compression)
    if dist.get_rank() == 0:
        sent = qccl.traffic().bytes_sent / 1e6
        print(f"loss {losses[0]:.4f} at first, {losses[-1]:.4f} after {arguments.steps} steps; {sent:.2f} MB sent")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
