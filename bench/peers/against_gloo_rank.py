"""One rank of bench/peers/against_gloo: both backends alternate on the same ranks and the same work.

Rank 0 prints a row of JSON for each measurement, with the samples of each contestant: seconds of one call, step or
series. Samples with the same index in their lists were taken back to back.
"""

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
import torch.distributed as dist

import qccl

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from bench.comparison import sizes  # noqa: E402
from bench.peers.gloo import settle  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "demo"))

STEPS_A_SAMPLE = 3
SERIES_A_SAMPLE = 10
WARM_UP_STEPS = 5
PACED_BYTES = 64 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("--min-bytes")
    parser.add_argument("--max-bytes")
    parser.add_argument("--pairs", type=int, help="samples of each contestant")
    parser.add_argument("--in-flight", type=int, help="of calls: how many at a time")
    parser.add_argument("--program", type=json.loads, help="of buckets: the C++ program's command line, as JSON")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("qccl")
    for row in MODES[arguments.mode](arguments):
        if dist.get_rank() == 0:
            print("ROW " + json.dumps(row), flush=True)
    dist.destroy_process_group()


def both_groups() -> dict[str, dist.ProcessGroup]:
    groups = {"qccl": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    for group in groups.values():
        settle(group)
    return groups


def in_turns(contestants: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Takes samples of each in the order A B C, C B A, ..., every one after a barrier."""
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds):
        for name in list(contestants)[:: 1 if number % 2 == 0 else -1]:
            dist.barrier()
            samples[name].append(contestants[name]())
    return samples


# ---- calls


def calls(arguments: argparse.Namespace) -> Iterable[dict]:
    """Measures blocking all_reduces, or asynchronous ones with a given number in flight."""
    groups = both_groups()
    for size in sizes(arguments.min_bytes, arguments.max_bytes):
        tensors = [torch.empty(size // 4) for _ in range(max(1, arguments.in_flight))]
        repeats = max(len(tensors), min(50, 1_000_000 // size))
        asynchronous = arguments.in_flight > 0
        contestants = {name: calls_of(group, tensors, asynchronous, repeats) for name, group in groups.items()}
        in_turns(contestants, 1)
        pairs = arguments.pairs if size * len(tensors) < 1 << 26 else max(6, arguments.pairs // 4)
        yield {"bytes": size, "samples": in_turns(contestants, pairs)}


def calls_of(group: dist.ProcessGroup, tensors: list[torch.Tensor], asynchronous: bool, repeats: int) -> Callable:
    def blocking() -> None:
        for tensor in itertools.islice(itertools.cycle(tensors), repeats):
            dist.all_reduce(tensor, group=group)

    def in_flight() -> None:
        works = deque()
        for tensor in itertools.islice(itertools.cycle(tensors), repeats):
            if len(works) == len(tensors):
                works.popleft().wait()
            works.append(dist.all_reduce(tensor, group=group, async_op=True))
        for work in works:
            work.wait()

    def sample() -> float:
        for tensor in tensors:
            tensor.fill_(1)
        dist.barrier()
        start = time.perf_counter()
        in_flight() if asynchronous else blocking()
        return (time.perf_counter() - start) / repeats

    return sample


# ---- training


def steps(arguments: argparse.Namespace) -> Iterable[dict]:
    """Measures steps of the demo's training over each backend; steps of ranks that only synchronize, with one number
    per bucket; and steps of ranks that train alone, each in its own group."""
    from torch.nn.parallel import DistributedDataParallel

    import text
    import train
    from model import GPT, Shape

    shape, tokens = Shape(), text.load(None)[0]

    number = torch.zeros(1)

    def meet(_state: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        return dist.all_reduce(number, async_op=True).get_future().then(lambda _: bucket.buffer())

    def contestant(group: dist.ProcessGroup, hook: Callable | None = None) -> Callable[[], float]:
        torch.manual_seed(train.SEED)
        model = DistributedDataParallel(GPT(shape), process_group=group)
        if hook:
            model.register_comm_hook(None, hook)
        optimizer = torch.optim.AdamW(model.parameters(), lr=train.LEARNING_RATE, betas=(0.9, 0.95), fused=True)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / train.WARM_UP_STEPS))
        generator = torch.Generator().manual_seed(train.SEED + 1 + dist.get_rank())
        batches = train.Batches(tokens, train.SEQUENCES_PER_RANK, shape.context, generator)

        def sample(count: int = STEPS_A_SAMPLE) -> float:
            start = time.perf_counter()
            for _ in range(count):
                train.train_step(model, optimizer, schedule, batches)
            return (time.perf_counter() - start) / count

        sample(WARM_UP_STEPS)
        buckets.append(model._get_ddp_logging_data()["rebuilt_bucket_sizes"])
        return sample

    buckets: list[str] = []
    alone, _ = dist.new_subgroups(1)
    contestants = {name: contestant(group) for name, group in (both_groups() | {"alone": alone}).items()}
    contestants["meeting"] = contestant(dist.group.WORLD, meet)
    samples = in_turns(contestants, arguments.pairs)
    yield {"buckets": [int(size) for size in buckets[0].split(",")], "samples": samples}


def series(arguments: argparse.Namespace) -> Iterable[dict]:
    """Compares the all_reduces of a step's buckets, as DDP makes them, with the C++ program's for the same sizes."""
    row = next(iter(steps(argparse.Namespace(pairs=0))))
    tensors = [torch.zeros(size // 4) for size in row["buckets"]]

    def through_torch(group: dist.ProcessGroup) -> Callable[[], float]:
        def one() -> float:
            start = time.perf_counter()
            works = [dist.all_reduce(tensor, group=group, async_op=True) for tensor in tensors]
            for future in [work.get_future() for work in works]:  # DDP waits for the futures
                future.wait()
            return time.perf_counter() - start

        return lambda: statistics.median([one() for _ in range(SERIES_A_SAMPLE)])

    def through_program() -> float:
        return sum(program_seconds(arguments.program, size) for size in row["buckets"]) if dist.get_rank() == 0 else 0.0

    contestants = {name: through_torch(group) for name, group in both_groups().items()} | {"program": through_program}
    in_turns(contestants, 1)
    yield row | {"samples": in_turns(contestants, arguments.pairs)}


def program_seconds(command: list[str], size: int) -> float:
    """Seconds of one in-place call, in the program's own ranks; the ranks of this job wait meanwhile."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        flags = ["-b", str(size), "-e", str(size), "-w", "3", "-n", str(SERIES_A_SAMPLE), "--json", file.name]
        subprocess.run([*command, *flags], check=True, stdout=subprocess.DEVNULL)
        results = json.load(file)["results"]
    return 1e-6 * next(result["time_us"]["median"] for result in results if result["in_place"])


# ---- paced links


def paced(arguments: argparse.Namespace) -> Iterable[dict]:
    original = torch.randn(PACED_BYTES // 4, generator=torch.Generator().manual_seed(dist.get_rank()))
    for spec in ("none", "minmax:bits=8", "minmax:bits=4"):
        qccl.set_compression(dist.group.WORLD, spec)
        samples = []
        for _ in range(4):
            tensor = original.clone()
            dist.barrier()
            start = time.perf_counter()
            dist.all_reduce(tensor)
            samples.append(time.perf_counter() - start)
        yield {"compression": spec, "bytes": PACED_BYTES, "samples": {"qccl": samples[1:]}}


MODES = {"calls": calls, "steps": steps, "series": series, "paced": paced}

if __name__ == "__main__":
    main()
