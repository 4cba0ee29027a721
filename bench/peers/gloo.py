"""torch's gloo as a contestant of bench/peers/compare.

torch's package has no gloo to compile against, so gloo is called from Python. That costs some microseconds per call,
which the contestants in C do not pay. sweep.h describes the measurement.
"""

import json
import sys
import time

import torch
import torch.distributed as dist

SETTLE_SECONDS = 0.3


def settle(group: dist.ProcessGroup | None = None) -> None:
    start, elapsed = time.perf_counter(), torch.zeros(1, dtype=torch.float64)
    while elapsed.item() < SETTLE_SECONDS:
        for _ in range(10):
            dist.all_reduce(torch.zeros(256), group=group)
        elapsed[0] = time.perf_counter() - start
        dist.all_reduce(elapsed, dist.ReduceOp.MAX, group=group)


def timed_batch(buffer: torch.Tensor, value: float, batch: int) -> float:
    if batch == 1:
        buffer.fill_(value)
    dist.barrier()
    start = time.perf_counter()
    for _ in range(batch):
        if batch > 1:
            buffer.fill_(value)
        dist.all_reduce(buffer)
    return (time.perf_counter() - start) / batch


def measure(size: int, warmup: int, samples: int, batch: int) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    buffer = torch.empty(size // 4)
    seconds = [timed_batch(buffer, rank + 1, batch) for _ in range(warmup + samples)][warmup:]
    expected = world * (world + 1) / 2
    if not bool((buffer == expected).all()):
        sys.exit(f"rank {rank}: not all of {buffer.numel()} elements are {expected}")
    slowest = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    if rank == 0:
        print("ROW " + json.dumps({"bytes": size, "samples": slowest.tolist()}))


def main() -> None:
    if len(sys.argv) < 3 or sys.argv[1] != "all_reduce":
        sys.exit("usage: peers_gloo.py all_reduce BYTES:WARMUP:SAMPLES:BATCH ...")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    settle()
    for what in sys.argv[2:]:
        measure(*map(int, what.split(":")))
    sys.stdout.flush()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
