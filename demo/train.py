"""One rank of the demo: trains the same model once for each compression of its gradients.

Reads rank and world from the environment, as every launcher sets them. Rank 0 appends events to a file, one JSON object
per line, for demo.py to show.
"""

import argparse
import json
import time
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import devices
import qccl
import text
from model import GPT, Shape

SEED = 20
SEQUENCES_PER_RANK = 2
VALIDATION_SEQUENCES_PER_RANK = 16
VALIDATIONS = 10
LEARNING_RATE = 2e-3
WARM_UP_STEPS = 20
TIMEOUT = timedelta(seconds=60)


class Events:
    """Rank 0's messages to demo.py; other ranks say nothing."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a") if dist.get_rank() == 0 else None

    def send(self, event: str, **fields: Any) -> None:
        if self._file:
            self._file.write(json.dumps({"event": event, **fields}) + "\n")
            self._file.flush()


@dataclass
class Batches:
    """Batches from random positions of a text, the same for every run with the same seed."""

    tokens: torch.Tensor
    count: int
    context: int
    generator: torch.Generator
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def next(self) -> tuple[torch.Tensor, torch.Tensor]:
        starts = torch.randint(len(self.tokens) - self.context - 1, (self.count,), generator=self.generator)
        rows = torch.stack([self.tokens[start : start + self.context + 1] for start in starts]).long()
        rows = rows.to(self.device)
        return rows[:, :-1], rows[:, 1:]


def main() -> None:
    arguments = parse_arguments()
    torch.set_num_threads(1)
    device = devices.of_rank(arguments.device)
    texts = text.load(arguments.data)
    dist.init_process_group("qccl", timeout=TIMEOUT)
    events = Events(arguments.events)
    parameters = sum(parameter.numel() for parameter in GPT(Shape()).parameters())
    tokens_per_step = dist.get_world_size() * SEQUENCES_PER_RANK * Shape().context
    events.send("start", parameters=parameters, tokens_per_step=tokens_per_step, group=qccl.describe())
    for compression in arguments.compressions:
        train(compression, arguments.steps, texts, device, events)
    events.send("end")
    dist.destroy_process_group()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data")
    parser.add_argument("--device", choices=devices.KINDS, default="cpu")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--compressions", nargs="+", required=True)
    parser.add_argument("--events", type=Path, required=True)
    return parser.parse_args()


def train(
    compression: str, steps: int, texts: tuple[torch.Tensor, torch.Tensor], device: torch.device, events: Events
) -> None:
    """Trains a fresh model; all runs start from the same weights and see the same batches in the same order."""
    rank, shape = dist.get_rank(), Shape()
    group = dist.new_group(pg_options=qccl.Options(compression=compression))
    torch.manual_seed(SEED)
    model = DistributedDataParallel(GPT(shape).to(device), process_group=group)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / WARM_UP_STEPS))
    batches, held_out = (
        Batches(tokens, count, shape.context, torch.Generator().manual_seed(SEED + 1 + rank), device)
        for tokens, count in zip(texts, (SEQUENCES_PER_RANK, VALIDATION_SEQUENCES_PER_RANK), strict=True)
    )
    validation = held_out.next()

    seconds = 0.0
    for step in range(steps + 1):
        if step % max(1, steps // VALIDATIONS) == 0 or step == steps:
            loss = validate(model.module, validation)
            events.send("validation", compression=compression, step=step, seconds=seconds, loss=loss)
        if step == steps:
            break
        dist.barrier()
        sent, started = qccl.traffic().bytes_sent, time.perf_counter()
        loss = train_step(model, optimizer, schedule, batches)
        took = time.perf_counter() - started
        seconds += took
        sent = qccl.traffic().bytes_sent - sent
        events.send("step", compression=compression, step=step, seconds=took, bytes_sent=sent, loss=loss)
    dist.destroy_process_group(group)


def train_step(model: DistributedDataParallel, optimizer: Any, schedule: Any, batches: Batches) -> float:
    loss = model(*batches.next())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    return loss.item()


@torch.no_grad()
def validate(model: GPT, batch: tuple[torch.Tensor, torch.Tensor]) -> float:
    """The mean over all ranks' held-out sequences."""
    loss = model(*batch)
    dist.all_reduce(loss, dist.ReduceOp.AVG)
    return loss.item()


if __name__ == "__main__":
    main()
