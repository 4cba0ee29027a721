"""One rank of bench/outer/compare: trains the demo's model by each method.

Rank 0 prints a row for each: the loss on held-out text at some steps, and the bytes that it sent for a step
after the warm-up.
"""

import argparse
import gc
import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch.func import functional_call
from torch.nn.parallel import DistributedDataParallel

import qccl

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "demo"))
from methods import BASE, METHODS, Method  # noqa: E402

import text  # noqa: E402
from model import GPT, Shape  # noqa: E402
from train import Batches  # noqa: E402

VALIDATIONS = 20
HELD_OUT_SEQUENCES = 256
RISE = 0.05  # share of the steps in which the inner learning rate rises
LAST_RATE = 0.1  # share of the inner learning rate at the end of its cosine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", type=int, nargs=4, required=True, metavar=("LAYERS", "WIDTH", "HEADS", "CONTEXT"))
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--warm-up", type=int, required=True, help="data parallel steps before the method begins")
    parser.add_argument("--sequences", type=int, required=True, help="of a rank, a step")
    parser.add_argument("--learning-rate", type=float, required=True, help="of the inner optimizer")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--data")
    parser.add_argument("methods", nargs="+")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    texts = text.load(arguments.data)
    dist.init_process_group("qccl")
    for name in arguments.methods:
        row = train(METHODS[name], texts, arguments)
        if dist.get_rank() == 0:
            print("ROW " + json.dumps({"method": name, "seed": arguments.seed, **row}), flush=True)
    dist.destroy_process_group()


@dataclass
class Trainer:
    """How ranks meet: the model to train with, what follows each step, the weights to validate, the bytes sent."""

    model: torch.nn.Module
    after_step: Callable[[], None]
    at_end: Callable[[], None]
    weights: Callable[[], dict[str, torch.Tensor]]
    bytes_sent: Callable[[], int]


def data_parallel(method: Method, model: GPT) -> Trainer:
    wrapped = DistributedDataParallel(model)
    wrapped.register_comm_hook(qccl.ddp.State(wrapped, method.compression), qccl.ddp.compress_hook)
    before = qccl.traffic().bytes_sent
    return Trainer(
        wrapped, lambda: None, lambda: None, lambda: dict(model.named_parameters()),
        lambda: qccl.traffic().bytes_sent - before,
    )  # fmt: skip


def synchronised(method: Method, model: GPT) -> Trainer:
    outer = outer_loop(method, model)
    return Trainer(
        model, outer.step, outer.finish, outer.global_state, lambda: sum(each["bytes"] for each in outer.stats())
    )


def outer_loop(method: Method, model: torch.nn.Module) -> qccl.outer.OuterLoop:
    nesterov = method.momentum > 0
    return qccl.outer.OuterLoop(
        model,
        every=method.every,
        fragments=method.fragments,
        delay=method.delay,
        blend=method.blend,
        compression=method.compression,
        error_decay=method.error_decay,
        outer_optimizer=lambda p: torch.optim.SGD(
            p, lr=method.learning_rate, momentum=method.momentum, nesterov=nesterov
        ),
    )


def train(
    method: Method, texts: tuple[torch.Tensor, torch.Tensor], arguments: argparse.Namespace
) -> dict[str, object]:
    """All methods of a seed have the same initial weights and the same batches. The global model is validated."""
    rank, world, shape = dist.get_rank(), dist.get_world_size(), Shape(*arguments.shape)
    torch.manual_seed(arguments.seed)
    model = GPT(shape)
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.learning_rate, betas=(0.9, 0.95), fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: share_of_rate(step / arguments.steps))
    batches, held_out = (
        Batches(tokens, count, shape.context, torch.Generator().manual_seed(1000 * arguments.seed + rank))
        for tokens, count in zip(texts, (arguments.sequences, HELD_OUT_SEQUENCES // world), strict=True)
    )
    validation, losses = held_out.next(), []
    trainer = data_parallel(METHODS[BASE], model)
    for step in range(arguments.steps):
        if step % max(1, arguments.steps // VALIDATIONS) == 0:
            losses.append((step, validate(model, trainer.weights(), validation)))
        if step == arguments.warm_up:
            del trainer  # DistributedDataParallel takes its hooks off the parameters
            gc.collect()
            trainer = synchronised(method, model) if method.every else data_parallel(method, model)
        loss = trainer.model(*batches.next())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        trainer.after_step()
    trainer.at_end()
    losses.append((arguments.steps, validate(model, trainer.weights(), validation)))
    parameters = sum(each.numel() for each in model.parameters())
    bytes_a_step = trainer.bytes_sent() / (arguments.steps - arguments.warm_up)
    described = {"parameters": parameters, "warm_up": arguments.warm_up}
    return described | {"losses": losses, "bytes_a_step": bytes_a_step}


def share_of_rate(done: float) -> float:
    return min(done / RISE + 0.01, LAST_RATE + (1 - LAST_RATE) * (1 + math.cos(math.pi * done)) / 2)


@torch.no_grad()
def validate(model: GPT, weights: dict[str, torch.Tensor], batch: tuple[torch.Tensor, torch.Tensor]) -> float:
    """The mean over all ranks' held-out sequences."""
    loss = functional_call(model, weights, batch)
    dist.all_reduce(loss, dist.ReduceOp.AVG)
    return loss.item()


if __name__ == "__main__":
    main()
