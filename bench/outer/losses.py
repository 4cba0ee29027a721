"""One rank of bench/outer/compare: trains the demo's model by each method, from the end of one data parallel warm-up.

Rank 0 prints a row for each: the loss on held-out text at some steps, and the bytes that it sent for a step
after the warm-up.
"""

import argparse
import copy
import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    parser.add_argument("--warm-up", type=int, required=True, help="data parallel steps before the methods begin")
    parser.add_argument("--sequences", type=int, required=True, help="of a rank, a step")
    parser.add_argument("--learning-rate", type=float, required=True, help="of the inner optimizer")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--data")
    parser.add_argument("methods", nargs="+")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    texts = text.load(arguments.data)
    dist.init_process_group("qccl")
    training = Training(texts, arguments)
    training.run(data_parallel(METHODS[BASE], training.model), arguments.warm_up)
    start = copy.deepcopy(training.state())
    for name in arguments.methods:
        training = Training(texts, arguments)
        training.load(start)
        row = train(METHODS[name], training, arguments)
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


class Training:
    """This rank's model, inner optimizer and batches. Ranks with the same seed begin with the same weights."""

    def __init__(self, texts: tuple[torch.Tensor, torch.Tensor], arguments: argparse.Namespace) -> None:
        rank, world, shape = dist.get_rank(), dist.get_world_size(), Shape(*arguments.shape)
        torch.manual_seed(arguments.seed)
        self.model = GPT(shape)
        self._steps, self._rate = arguments.steps, arguments.learning_rate
        self._optimizer = torch.optim.AdamW(self.model.parameters(), lr=self._rate, betas=(0.9, 0.95), fused=True)
        self._generator = torch.Generator().manual_seed(1000 * arguments.seed + rank)
        self._batches = Batches(texts[0], arguments.sequences, shape.context, self._generator)
        held_out = torch.Generator().manual_seed(1000 * arguments.seed + rank)
        self._validation = Batches(texts[1], HELD_OUT_SEQUENCES // world, shape.context, held_out).next()
        self._step = 0
        self.losses: list[tuple[int, float]] = []

    def state(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(), "optimizer": self._optimizer.state_dict(), "step": self._step,
            "batches": self._generator.get_state(), "losses": self.losses,
        }  # fmt: skip

    def load(self, state: dict[str, Any]) -> None:
        """Shares no memory with the state."""
        state = copy.deepcopy(state)
        self.model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._generator.set_state(state["batches"])
        self._step, self.losses = state["step"], state["losses"]

    def run(self, trainer: Trainer, until: int) -> None:
        while self._step < until:
            if self._step % max(1, self._steps // VALIDATIONS) == 0:
                self.validate(trainer.weights())
            for group in self._optimizer.param_groups:
                group["lr"] = self._rate * share_of_rate(self._step / self._steps)
            loss = trainer.model(*self._batches.next())
            self._optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self._optimizer.step()
            self._step += 1
            trainer.after_step()

    @torch.no_grad()
    def validate(self, weights: dict[str, torch.Tensor]) -> None:
        """Adds the mean loss over all ranks' held-out sequences."""
        loss = functional_call(self.model, weights, self._validation)
        dist.all_reduce(loss, dist.ReduceOp.AVG)
        self.losses.append((self._step, loss.item()))


def train(method: Method, training: Training, arguments: argparse.Namespace) -> dict[str, object]:
    """From the end of the warm-up. The global model is validated."""
    trainer = synchronised(method, training.model) if method.every else data_parallel(method, training.model)
    training.run(trainer, arguments.steps)
    trainer.at_end()
    training.validate(trainer.weights())
    return {
        "parameters": sum(each.numel() for each in training.model.parameters()), "warm_up": arguments.warm_up,
        "losses": training.losses, "bytes_a_step": trainer.bytes_sent() / (arguments.steps - arguments.warm_up),
    }  # fmt: skip


def share_of_rate(done: float) -> float:
    return min(done / RISE + 0.01, LAST_RATE + (1 - LAST_RATE) * (1 + math.cos(math.pi * done)) / 2)


if __name__ == "__main__":
    main()
