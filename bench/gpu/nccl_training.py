"""Losses of the demo's training through a backend of torch, as `make gpu` compares them: one row.

  build/qccl run -n 2 -- env LD_PRELOAD=build/libqccl_nccl.so .venv-gpu/bin/python bench/gpu/nccl_training.py --steps 10
"""

import argparse
import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "demo"))
import devices  # noqa: E402
import text  # noqa: E402
import train  # noqa: E402
from model import GPT, Shape  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=devices.KINDS, default="cuda")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--backend", choices=["nccl", "qccl", "gloo"], default="nccl")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    device = devices.of_rank(arguments.device)
    if arguments.backend == "qccl":
        import qccl  # noqa: F401  through nccl, a program knows nothing of it
    dist.init_process_group(arguments.backend)
    row = {"ranks": dist.get_world_size(), "backend": arguments.backend}
    row |= {"compression": os.environ.get("QCCL_COMPRESSION", "none"), "losses": losses(arguments.steps, device)}
    if dist.get_rank() == 0:
        print("ROW " + json.dumps(row), flush=True)
    dist.destroy_process_group()


def losses(steps: int, device: torch.device) -> list[float]:
    torch.manual_seed(train.SEED)
    model = DistributedDataParallel(GPT(Shape()).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=train.LEARNING_RATE, betas=(0.9, 0.95), fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / 3))
    generator = torch.Generator().manual_seed(train.SEED + 1 + dist.get_rank())
    tokens = text.load(None)[0]
    batches = train.Batches(tokens, train.SEQUENCES_PER_RANK, Shape().context, generator, device)
    return [train.train_step(model, optimizer, schedule, batches) for _ in range(steps)]


if __name__ == "__main__":
    main()
