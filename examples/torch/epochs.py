"""The code that bert_mrpc.py and gpt2_wikitext2.py share: timed epochs of DDP training, on different numbers of ranks.

Started by hand, a program starts itself with torchrun for each number of ranks, prints the measurements and draws them.
Started by a launcher, it is one rank, which trains the model once for each compression.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import qccl

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "demo"))
import text  # noqa: E402

SEED = 7
MARK = "epoch "  # begins the lines with which ranks report their measurements


@dataclass
class Task:
    """A model to train, whose call with a batch returns the loss, and its data, as sequences of tensors by row."""

    model: Callable[[], nn.Module]
    training: tuple[Tensor, ...]
    validation: tuple[Tensor, ...]
    batch: int  # rows per rank and step
    rate: float
    correct: Callable[[nn.Module, tuple[Tensor, ...]], int] | None = None  # counts the rows that the model gets right


@dataclass
class Epoch:
    compression: str
    ranks: int
    number: int
    seconds: float
    megabytes: float  # sent by a rank
    results: dict[str, float]  # by name


def load_words(file: str | None, byte_limit: int) -> tuple[list[str], list[str]]:
    """The words to train on and those to validate with; an end of line is a word."""
    parts = (bytes(part[:byte_limit].tolist()).decode(errors="replace") for part in text.load(file))
    training, validation = (re.findall(r"<unk>|\w+|[^\w\s]|\n", part) for part in parts)
    return training, validation


class Vocabulary:
    """Numbers for the commonest words, the commonest first; 0 stands for all others, like <unk> in WikiText."""

    def __init__(self, words: list[str], size: int) -> None:
        counts: dict[str, int] = {}
        for word in words:
            counts[word] = counts.get(word, 0) + 1
        counts.pop("<unk>", None)
        kept = sorted(counts, key=lambda word: (-counts[word], word))[: size - 1]
        self._numbers = {word: number for number, word in enumerate(kept, 1)}

    def numbers(self, words: list[str]) -> list[int]:
        return [self._numbers.get(word, 0) for word in words]


def own_batches(rows: tuple[Tensor, ...], batch: int, epoch: int) -> Iterator[tuple[Tensor, ...]]:
    """This rank's part of an epoch: all ranks get equally many batches, in an order that changes with the epoch."""
    order = torch.randperm(len(rows[0]), generator=torch.Generator().manual_seed(1000 * SEED + epoch))
    world = dist.get_world_size()
    steps = len(order) // (batch * world)
    own = order[: steps * batch * world].view(steps, world, batch)[:, dist.get_rank()]
    return (tuple(part[chosen] for part in rows) for chosen in own)


def train(task: Task, compression: str, epochs: int) -> Iterator[Epoch]:
    """Trains from the same initial weights, on the same rows in each epoch, for any compression and number of ranks."""
    torch.manual_seed(SEED)
    model = DistributedDataParallel(task.model())
    model.register_comm_hook(qccl.ddp.State(model, compression), qccl.ddp.compress_hook)
    optimizer = torch.optim.AdamW(model.parameters(), lr=task.rate)
    for number in range(1, epochs + 1):
        dist.barrier()
        began, sent = time.perf_counter(), qccl.traffic().bytes_sent
        losses = []
        for batch in own_batches(task.training, task.batch, number):
            optimizer.zero_grad()
            loss = model(*batch)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())  # tensors that stay alive would keep the heap around them from being reused
        seconds = time.perf_counter() - began
        megabytes = (qccl.traffic().bytes_sent - sent) / 1e6
        mean = torch.tensor(losses).mean()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        results = {"training loss": mean.item(), **validate(task, model.module)}
        yield Epoch(compression, dist.get_world_size(), number, seconds, megabytes, results)


@torch.no_grad()
def validate(task: Task, model: nn.Module) -> dict[str, float]:
    """Means over the validation rows; each rank computes a share."""
    model.eval()
    rank, world = dist.get_rank(), dist.get_world_size()
    totals: dict[str, float] = {}
    for begin in range(rank * task.batch, len(task.validation[0]), world * task.batch):
        rows = tuple(part[begin : begin + task.batch] for part in task.validation)
        found = {"validation loss": model(*rows).item() * len(rows[0]), "rows": float(len(rows[0]))}
        if task.correct is not None:
            found["accuracy"] = task.correct(model, rows)
        totals = {name: totals.get(name, 0.0) + value for name, value in found.items()}
    model.train()
    everyone: list[dict[str, float]] = [{}] * world
    dist.all_gather_object(everyone, totals)
    names = [name for name in max(everyone, key=len) if name != "rows"]
    rows_seen = sum(each.get("rows", 0.0) for each in everyone)
    return {name: sum(each.get(name, 0.0) for each in everyone) / rows_seen for name in names}


def run_rank(task: Task, compressions: list[str], epochs: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("qccl")
    for compression in compressions if dist.get_world_size() > 1 else ["none"]:
        for epoch in train(task, compression, epochs):
            if dist.get_rank() == 0:
                print(MARK + json.dumps(vars(epoch)), flush=True)
    dist.destroy_process_group()


def parse_arguments(description: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="default: " + text.describe(None))
    parser.add_argument("--quick", action="store_true", help="a tiny model and little data: half a minute")
    parser.add_argument("--epochs", type=int, help="default 3, with --quick 2")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4], help="one training for each; default 1 2 4")
    parser.add_argument("--compressions", nargs="+", default=["none", "minmax:bits=8", "minmax:bits=4"])
    parser.add_argument("--link-rate", default="200mbit", help='what a rank may send; "none" for no limit')
    parser.add_argument("--plot", type=Path, help="a PNG to draw: an epoch's seconds by ranks, loss by epochs")
    arguments = parser.parse_args()
    arguments.epochs = arguments.epochs or (2 if arguments.quick else 3)
    return arguments


def main(description: str, make_task: Callable[[argparse.Namespace], Task]) -> None:
    arguments = parse_arguments(description)
    if "RANK" in os.environ:
        run_rank(make_task(arguments), arguments.compressions, arguments.epochs)
        return
    epochs = [epoch for ranks in arguments.ranks for epoch in start(ranks, arguments.link_rate)]
    if arguments.plot:
        draw(epochs, arguments.plot, Path(sys.argv[0]).stem, arguments.link_rate)


def start(ranks: int, link_rate: str) -> Iterator[Epoch]:
    """Runs this program on this many ranks, which talk TCP as between machines, and yields their measurements."""
    variables = {"QCCL_TRANSPORT": "tcp", "OMP_NUM_THREADS": "1"}
    if link_rate != "none":
        variables["QCCL_LINK_RATE"] = link_rate
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", *sys.argv]
    with subprocess.Popen(command, env={**os.environ, **variables}, stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout is not None
        for line in job.stdout:
            if line.startswith(MARK):
                epoch = Epoch(**json.loads(line[len(MARK) :]))
                print(describe(epoch), flush=True)
                yield epoch
    if job.returncode != 0:
        sys.exit(f"the ranks ended with exit code {job.returncode}")


def describe(epoch: Epoch) -> str:
    results = ", ".join(f"{name} {value:.4f}" for name, value in epoch.results.items())
    return (
        f"{epoch.ranks} ranks, {epoch.compression}, epoch {epoch.number}: {epoch.seconds:.2f} s, "
        f"{epoch.megabytes:.1f} MB sent, {results}"
    )


def draw(epochs: list[Epoch], path: Path, title: str, link_rate: str) -> None:
    """Draws seconds of the fastest epoch against ranks, and loss against epochs with the most ranks. One rank sends
    nothing, so it is the same for all compressions."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    most, last = max(epoch.ranks for epoch in epochs), max(epoch.number for epoch in epochs)
    figure, (times, losses) = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for compression in dict.fromkeys(epoch.compression for epoch in epochs):
        own = [epoch for epoch in epochs if epoch.compression == compression or epoch.ranks == 1]
        fastest = {one.ranks: min(each.seconds for each in own if each.ranks == one.ranks) for one in own}
        series: list[Any] = sorted(fastest.items())
        times.plot(*zip(*series, strict=True), marker="o", label=compression)
        series = [(epoch.number, epoch.results["validation loss"]) for epoch in own if epoch.ranks == most]
        losses.plot(*zip(*series, strict=True), marker="o", label=compression)
    times.set(xlabel="ranks", ylabel="seconds of an epoch", ylim=(0, None), xticks=sorted({e.ranks for e in epochs}))
    losses.set(xlabel=f"epochs on {most} ranks", ylabel="validation loss", xticks=range(1, last + 1))
    for axes in (times, losses):
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
    figure.suptitle(f"{title}, " + ("links without limit" if link_rate == "none" else f"each rank sends {link_rate}"))
    figure.savefig(path, dpi=120)
    print(f"drawn: {path}")
