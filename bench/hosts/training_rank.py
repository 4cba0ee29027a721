"""One rank of bench/hosts/training: steps of DDP with the demo's model. Rank 0 prints a row with their seconds."""

import argparse
import json
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import qccl

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "demo"))
from model import GPT, Shape  # noqa: E402


def line_bytes() -> int:
    """What this host has sent by its interfaces but the loopback, as the system counts it."""
    rows = [line.split() for line in Path("/proc/self/net/dev").read_text().splitlines()[2:]]
    return sum(int(row[9]) for row in rows if row[0] != "lo:")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--layers", type=int, required=True)
    parser.add_argument("--inside", help="of qccl.Options")
    parser.add_argument("--policy", help="of qccl.ddp.State, in place of QCCL_COMPRESSION")
    parser.add_argument("backend", choices=["gloo", "qccl"])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    options = qccl.Options(inside=arguments.inside) if arguments.inside else None
    dist.init_process_group(arguments.backend, timeout=timedelta(minutes=5), pg_options=options)
    torch.manual_seed(1)
    shape = Shape(layers=arguments.layers)
    model = DistributedDataParallel(GPT(shape))
    if arguments.policy:
        model.register_comm_hook(qccl.ddp.State(model, arguments.policy), qccl.ddp.compress_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = torch.Generator().manual_seed(dist.get_rank())
    losses = []

    def step() -> float:
        started = time.perf_counter()
        optimizer.zero_grad()
        tokens = torch.randint(256, (1, shape.context + 1), generator=batches)
        loss = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        return time.perf_counter() - started

    for _ in range(arguments.steps):
        step()

    def sent_bytes() -> int:
        return qccl.traffic().bytes_sent if arguments.backend == "qccl" else 0

    before, line_before = sent_bytes(), line_bytes()
    seconds = [step() for _ in range(arguments.steps)]
    sent, on_line = sent_bytes() - before, line_bytes() - line_before
    if dist.get_rank() == 0:
        parameters = sum(each.numel() for each in model.parameters())
        elements = 2 * (1 - 1 / dist.get_world_size()) * parameters * arguments.steps  # of gradients and of sums
        row = {
            "parameters": parameters,
            "seconds": seconds,
            "bits": 8 * sent / elements,
            "line_bytes": on_line,
            "loss": losses[-1],
        }
        print("ROW " + json.dumps(row), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
