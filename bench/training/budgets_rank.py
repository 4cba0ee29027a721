"""One rank of bench/training/budgets: trains the model of language_model.py once for each run.

Rank 0 prints one JSON object for each run: its name, the validation losses, and the bits an element that it sent.
"""

import argparse
import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import qccl

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[2] / "demo")]
from language_model import CONTEXT, LanguageModel  # noqa: E402

import text  # noqa: E402
from train import Batches, validate  # noqa: E402

SEQUENCES, HELD_OUT_SEQUENCES = 8, 256  # of all ranks together
WARM_UP_STEPS, VALIDATIONS, LARGEST_NORM = 20, 4, 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--optimizer", choices=["adamw", "sgd"], required=True)
    parser.add_argument("runs", nargs="+", help="policies; '+adam' after one gives it the optimizer")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    texts = text.load(None)
    dist.init_process_group("qccl")
    for run in arguments.runs:
        row = train(run, arguments, *texts)
        if dist.get_rank() == 0:
            print("ROW " + json.dumps(row), flush=True)
    dist.destroy_process_group()


def train(run: str, arguments: argparse.Namespace, training: torch.Tensor, validation: torch.Tensor) -> dict:
    """All runs of a seed have the same initial weights and the same batches."""
    torch.manual_seed(arguments.seed)
    model = DistributedDataParallel(LanguageModel())
    optimizer, schedule = make_optimizer(arguments, model)
    policy, _, weighted = run.partition("+")
    state = qccl.ddp.State(model, policy, optimizer=optimizer if weighted else None)
    model.register_comm_hook(state, qccl.ddp.compress_hook)
    generator = torch.Generator().manual_seed(1000 * arguments.seed + dist.get_rank())
    held_out = Batches(validation, HELD_OUT_SEQUENCES // dist.get_world_size(), CONTEXT, generator).next()
    source = Batches(training, SEQUENCES // dist.get_world_size(), CONTEXT, generator)
    losses, sent = [], 0
    for step in range(arguments.steps + 1):
        if step % max(1, arguments.steps // VALIDATIONS) == 0 or step == arguments.steps:
            losses.append((step, validate(model.module, held_out)))
        if step == arguments.steps:
            break
        before = qccl.traffic().bytes_sent
        optimizer.zero_grad()
        model(*source.next()).backward()
        if step >= WARM_UP_STEPS:
            sent += qccl.traffic().bytes_sent - before
        torch.nn.utils.clip_grad_norm_(model.parameters(), LARGEST_NORM)
        optimizer.step()
        schedule.step()
    # In an all_reduce a rank sends its part of the gradients to each owner, and its own sums to each rank.
    elements = sum(each.numel() for each in model.parameters()) * (arguments.steps - WARM_UP_STEPS)
    parts = 2 * (dist.get_world_size() - 1) / dist.get_world_size()
    bits = 8 * sent / elements / parts
    return {"run": run, "optimizer": arguments.optimizer, "seed": arguments.seed, "bits": bits, "losses": losses}


def make_optimizer(arguments: argparse.Namespace, model: torch.nn.Module) -> tuple:
    if arguments.optimizer == "adamw":
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.95), fused=True)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    # The rate goes up, then down to zero, so that the noise of the last steps does not affect the final loss.
    steps = arguments.steps
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / WARM_UP_STEPS, (steps - step) / steps)
    )
    return optimizer, schedule


if __name__ == "__main__":
    main()
