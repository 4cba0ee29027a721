"""One rank of bench/gpu/against_gloo: all contestants alternate on the same ranks and tensors.

Rank 0 prints a row of JSON for each size, with seconds of one call of each contestant on the slowest rank. Samples with
the same index were taken back to back.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

import qccl

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from bench.comparison import sizes  # noqa: E402
from bench.peers.against_gloo_rank import in_turns  # noqa: E402

MOST_REPEATS = 10  # sums of sums stay in range
BYTES_A_SAMPLE = 16 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cuda", "cpu"], required=True)
    parser.add_argument("--codecs", nargs="+", required=True)
    parser.add_argument("--pairs", type=int, required=True)
    parser.add_argument("--min-bytes", required=True)
    parser.add_argument("--max-bytes", required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    device = own_device(arguments.device)
    dist.init_process_group("qccl")
    groups = {codec: dist.new_group(pg_options=qccl.Options(compression=codec)) for codec in arguments.codecs}
    groups["gloo"] = dist.new_group(backend="gloo")
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    for size in sizes(arguments.min_bytes, arguments.max_bytes):
        row = {"device": name, "bytes": size, "samples": measure(size, device, groups, arguments.pairs)}
        if dist.get_rank() == 0:
            print("ROW " + json.dumps(row), flush=True)
    dist.destroy_process_group()


def own_device(kind: str) -> torch.device:
    if kind == "cpu":
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def measure(
    size: int, device: torch.device, groups: dict[str, dist.ProcessGroup], pairs: int
) -> dict[str, list[float]]:
    base = torch.randn(size // 4, generator=torch.Generator().manual_seed(dist.get_rank())).to(device)
    tensor = torch.empty_like(base)
    repeats = max(1, min(MOST_REPEATS, BYTES_A_SAMPLE // size))

    def calls(group: dist.ProcessGroup) -> Callable[[], float]:
        return lambda: timed(lambda: dist.all_reduce(tensor, group=group))

    def timed(once: Callable[[], object]) -> float:
        tensor.copy_(base)
        wait_for(device)
        dist.barrier()
        start = time.perf_counter()
        for _ in range(repeats):
            once()
        wait_for(device)
        return (time.perf_counter() - start) / repeats

    host = torch.empty(size // 4, pin_memory=device.type == "cuda")

    def copies() -> None:
        host.copy_(tensor, non_blocking=True)
        tensor.copy_(host, non_blocking=True)

    contestants = {name: calls(group) for name, group in groups.items()} | {"copies": lambda: timed(copies)}
    check_sums(base, tensor, groups)
    in_turns(contestants, 1)
    return slowest(in_turns(contestants, pairs))


def wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def check_sums(base: torch.Tensor, tensor: torch.Tensor, groups: dict[str, dist.ProcessGroup]) -> None:
    """Ends the program if an uncompressed sum is not gloo's, but for the order in which ranks are added."""
    sums = []
    for name in ("gloo", "none"):
        tensor.copy_(base)
        dist.all_reduce(tensor, group=groups[name])
        sums.append(tensor.cpu())
    if not torch.allclose(*sums, rtol=1e-5, atol=1e-5):
        sys.exit(f"rank {dist.get_rank()}: QCCL's sum is not gloo's")


def slowest(samples: dict[str, list[float]]) -> dict[str, list[float]]:
    """Of all ranks, for each sample."""
    names = sorted(samples)
    times = torch.tensor([samples[name] for name in names], dtype=torch.float64)
    dist.all_reduce(times, dist.ReduceOp.MAX)
    return dict(zip(names, times.tolist(), strict=True))


if __name__ == "__main__":
    main()
