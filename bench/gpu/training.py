"""Steps of the demo's training on each rank's device, as `make gpu` times them: one row for each compression.

QCCL_STREAM_ORDER=gate lets streams wait for calls, instead of the host.

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
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import qccl

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "demo"))
import devices  # noqa: E402
import text  # noqa: E402
import train  # noqa: E402
from model import GPT, Shape  # noqa: E402

WARM_UP_STEPS = 3
WAYS = ("ddp", "fsdp2")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=devices.KINDS, required=True)
    parser.add_argument("--way", choices=WAYS, default="ddp")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("compressions", nargs="+")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    device = devices.of_rank(arguments.device)
    tokens = text.load(None)[0]
    dist.init_process_group("qccl")
    for compression in arguments.compressions:
        milliseconds, loss = steps(compression, arguments, tokens, device)
        row = {"ranks": dist.get_world_size(), "way": arguments.way, "compression": compression}
        row |= {"ms": milliseconds, "loss": loss}
        if dist.get_rank() == 0:
            print("ROW " + json.dumps(row), flush=True)
    dist.destroy_process_group()


def parallel(way: str, device: torch.device, group: dist.ProcessGroup) -> torch.nn.Module:
    """The demo's model; FSDP2 shards each of its layers."""
    model = GPT(Shape()).to(device)
    if way == "ddp":
        return DistributedDataParallel(model, process_group=group)
    mesh = DeviceMesh.from_group(group, device.type)
    for layer in model.blocks:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def steps(
    compression: str, arguments: argparse.Namespace, tokens: torch.Tensor, device: torch.device
) -> tuple[float, float]:
    """The median milliseconds of a step, and the last loss."""
    torch.manual_seed(train.SEED)
    group = dist.new_group(pg_options=qccl.Options(compression=compression))
    model = parallel(arguments.way, device, group)
    optimizer = torch.optim.AdamW(model.parameters(), lr=train.LEARNING_RATE, betas=(0.9, 0.95), fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / train.WARM_UP_STEPS))
    generator = torch.Generator().manual_seed(train.SEED + 1 + dist.get_rank())
    batches = train.Batches(tokens, train.SEQUENCES_PER_RANK, Shape().context, generator, device)
    taken, loss = [], 0.0
    for _ in range(WARM_UP_STEPS + arguments.steps):
        dist.barrier()
        start = time.perf_counter()
        loss = train.train_step(model, optimizer, schedule, batches)  # its loss.item() waits for the device
        taken.append(time.perf_counter() - start)
    dist.destroy_process_group(group)
    return 1e3 * statistics.median(taken[WARM_UP_STEPS:]), loss


if __name__ == "__main__":
    main()
