"""Training that goes on when a rank is killed, and takes in a new process in its place (docs/growing.md).

    python examples/torch/elastic.py
    python examples/torch/elastic.py --steps 600 --plot elastic.png

The program starts 4 ranks, which train the demo's GPT. At a third of the steps it kills one of them by `kill -9`: the
others shrink the group, agree on the step and go on. Then it starts a new process, which joins them and gets model,
optimizer and step from a rank that lives.
"""

import argparse
import multiprocessing
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing import connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import qccl

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "demo"))
import text  # noqa: E402
from model import GPT, Shape  # noqa: E402
from train import Batches  # noqa: E402

RANKS = 4
SHAPE = Shape(layers=2, width=96, heads=3, context=64)
SEQUENCES = 4  # of a rank in a step
LOOK_EVERY = 5  # steps after which the ranks look for newcomers
LOST = (dist.DistNetworkError, dist.DistBackendError)


class Trainer:
    """A rank's model and optimizer, and the number of steps that they have seen."""

    def __init__(self, data: str | None) -> None:
        torch.manual_seed(1)
        self.model = GPT(SHAPE)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-3)
        self.parallel: DistributedDataParallel | None = None
        self.steps = 0
        self.tokens, _ = text.load(data)

    def settle(self) -> None:
        """Gives all ranks of a new group the state of the one that is ahead: some survivors may have ended the step
        that failed on others, and newcomers have ended none."""
        steps: list[int] = [0] * dist.get_world_size()
        dist.all_gather_object(steps, self.steps)
        source = steps.index(max(steps))
        state: list[Any] = [(self.steps, self.model.state_dict(), self.optimizer.state_dict())]
        dist.broadcast_object_list(state, src=source)
        if dist.get_rank() != source:
            self.steps = state[0][0]
            self.model.load_state_dict(state[0][1])
            self.optimizer.load_state_dict(state[0][2])
        self.parallel = None  # the old one's hooks end
        self.parallel = DistributedDataParallel(self.model)

    def step(self) -> float:
        """Trains on a batch of this rank; returns the mean loss of all ranks."""
        assert self.parallel is not None
        generator = torch.Generator().manual_seed(1000 * self.steps + dist.get_rank())
        self.optimizer.zero_grad()
        loss = self.parallel(*Batches(self.tokens, SEQUENCES, SHAPE.context, generator).next())
        loss.backward()
        mean = loss.detach().clone()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        self.optimizer.step()  # after the last call that may fail: a step counts as a whole or not at all
        self.steps += 1
        return mean.item()


def train(trainer: Trainer, steps: int, told: connection.Connection) -> None:
    """The loop of survivors and newcomers alike."""
    has_failed, is_settled = False, False
    while trainer.steps < steps:
        try:
            if has_failed:
                qccl.shrink()
                has_failed, is_settled = False, False
            if not is_settled:
                trainer.settle()
                is_settled = True
            if trainer.steps % LOOK_EVERY == 0 and grow(must_wait=3 * trainer.steps >= 2 * steps):
                is_settled = False
                continue
            loss = trainer.step()
        except LOST as error:
            print(f"process {os.getpid()}: {str(error).splitlines()[0]}", flush=True)
            has_failed = True
            continue
        if dist.get_rank() == 0:
            told.send({"time": time.time(), "step": trainer.steps, "loss": loss, "ranks": dist.get_world_size()})


def grow(must_wait: bool) -> bool:
    """Whether newcomers came. Ranks that are missing for too long are waited for."""
    before = dist.get_world_size()
    qccl.grow(at_least=max(0, RANKS - before) if must_wait else 0)
    return dist.get_world_size() > before


def run_rank(arguments: argparse.Namespace, store: str, rank: int | None, told: connection.Connection) -> None:
    torch.set_num_threads(1)
    trainer = Trainer(arguments.data)
    if rank is None:
        qccl.join(store=dist.FileStore(store, -1))  # which lists the members
    else:
        dist.init_process_group("qccl", store=dist.FileStore(store, RANKS), rank=rank, world_size=RANKS)
    train(trainer, arguments.steps, told)
    dist.destroy_process_group()


class Job:
    """The ranks' processes, and what they tell."""

    def __init__(self, arguments: argparse.Namespace, store: str) -> None:
        self.arguments, self.store = arguments, store
        self.processes: list[Any] = []
        self.readers: list[connection.Connection] = []

    def start(self, rank: int | None) -> None:
        fork = multiprocessing.get_context("fork")  # libraries are loaded once
        reader, writer = fork.Pipe(duplex=False)
        entry = (self.arguments, self.store, rank, writer)
        self.processes.append(fork.Process(target=run_rank, args=entry, daemon=True))
        self.processes[-1].start()
        self.readers.append(reader)
        writer.close()

    def steps(self) -> Iterator[dict[str, Any]]:
        while self.readers:
            for ready in connection.wait(self.readers):
                assert isinstance(ready, connection.Connection)
                try:
                    yield ready.recv()
                except (EOFError, OSError):  # it has ended
                    self.readers.remove(ready)


def run(arguments: argparse.Namespace, store: str) -> list[dict[str, Any]]:
    """Runs the job, kills a rank, starts another process, and returns what rank 0 told of each step."""
    os.environ |= {"QCCL_OPEN": "on", "QCCL_KEY": secrets.token_hex(32)}  # only processes of this job get in
    job = Job(arguments, store)
    for rank in range(RANKS):
        job.start(rank)
    steps: list[dict[str, Any]] = []
    victim = None
    for step in job.steps():
        is_news = not steps or step["ranks"] != steps[-1]["ranks"]
        if is_news or step["step"] % max(1, arguments.steps // 10) == 0:
            print("step {step}: loss {loss:.4f}, {ranks} ranks".format(**step), flush=True)
        steps.append(step)
        if victim is None and 3 * step["step"] >= arguments.steps:
            victim = job.processes[arguments.kill]
            print(f"kill -9 {victim.pid}, which is rank {arguments.kill}, and a new process comes", flush=True)
            victim.kill()
            job.start(None)
    for process in job.processes:
        process.join()
    if any(process.exitcode != 0 for process in job.processes if process is not victim):
        sys.exit("a rank has failed")
    return steps


def draw(steps: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (losses, ranks) = pyplot.subplots(
        2, 1, figsize=(8, 5), sharex=True, height_ratios=[3, 1], layout="constrained"
    )
    seconds = [each["time"] - steps[0]["time"] for each in steps]
    losses.plot(seconds, [each["loss"] for each in steps], linewidth=1)
    ranks.step(seconds, [each["ranks"] for each in steps], where="post")
    losses.set(ylabel="loss, nats per byte")
    ranks.set(xlabel="seconds", ylabel="ranks", ylim=(0, RANKS + 0.5), yticks=range(RANKS + 1))
    for axes in (losses, ranks):
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
    print(f"drawn: {path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="default: " + text.describe(None))
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--kill", type=int, default=0, help="the rank; default 0")
    parser.add_argument("--plot", type=Path, help="a PNG to draw: loss and number of ranks by time")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        steps = run(arguments, f"{folder}/store")
    if arguments.plot:
        draw(steps, arguments.plot)


if __name__ == "__main__":
    main()
