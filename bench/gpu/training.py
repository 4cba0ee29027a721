"""Steps of the demo's training on each rank's device, as `make gpu` times them: one row for each compression.

  build/qccl run -n 2 -- .venv/bin/python bench/gpu/training.py --device cuda --steps 30 none minmax:bits=4
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import qccl

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "demo"))
import devices  # noqa: E402
import text  # noqa: E402
import train  # noqa: E402
from model import GPT, Shape  # noqa: E402

WARM_UP_STEPS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=devices.KINDS, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("compressions", nargs="+")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    device = devices.of_rank(arguments.device)
    tokens = text.load(None)[0]
    dist.init_process_group("qccl")
    for compression in arguments.compressions:
        milliseconds, loss = steps(compression, arguments.steps, tokens, device)
        row = {"ranks": dist.get_world_size(), "compression": compression, "ms": milliseconds, "loss": loss}
        if dist.get_rank() == 0:
            print("ROW " + json.dumps(row), flush=True)
    dist.destroy_process_group()


def steps(compression: str, count: int, tokens: torch.Tensor, device: torch.device) -> tuple[float, float]:
    """The median milliseconds of a step, and the last loss."""
    shape = Shape()
    torch.manual_seed(train.SEED)
    group = dist.new_group(pg_options=qccl.Options(compression=compression))
    model = DistributedDataParallel(GPT(shape).to(device), process_group=group)
    optimizer = torch.optim.AdamW(model.parameters(), lr=train.LEARNING_RATE, betas=(0.9, 0.95), fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / train.WARM_UP_STEPS))
    generator = torch.Generator().manual_seed(train.SEED + 1 + dist.get_rank())
    batches = train.Batches(tokens, train.SEQUENCES_PER_RANK, shape.context, generator, device)
    taken, loss = [], 0.0
    for _ in range(WARM_UP_STEPS + count):
        dist.barrier()
        start = time.perf_counter()
        loss = train.train_step(model, optimizer, schedule, batches)  # its loss.item() waits for the device
        taken.append(time.perf_counter() - start)
    dist.destroy_process_group(group)
    return 1e3 * statistics.median(taken[WARM_UP_STEPS:]), loss


if __name__ == "__main__":
    main()
