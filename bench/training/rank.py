"""One rank of bench/training/compare: trains the demo's model once for each compression of its gradients and each seed.

Rank 0 prints one JSON object for each run: its name, and the validation loss at some steps.
"""

import argparse
import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import qccl

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "demo"))
import text  # noqa: E402
from model import GPT, Shape  # noqa: E402
from train import LEARNING_RATE, VALIDATION_SEQUENCES_PER_RANK, WARM_UP_STEPS, Batches, train_step, validate  # noqa: E402

VALIDATIONS = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", required=True)
    parser.add_argument("--sequences", type=int, required=True, help="of all ranks together, a step")
    parser.add_argument("runs", nargs="+", help="specifications; '+ef' after one adds error feedback")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    training, validation = text.load(None)
    dist.init_process_group("qccl")
    for seed in arguments.seeds:
        for run in arguments.runs:
            losses = train(run, seed, arguments, training, validation)
            if dist.get_rank() == 0:
                print(json.dumps({"run": run, "seed": seed, "losses": losses}), flush=True)
    dist.destroy_process_group()


def train(run: str, seed: int, arguments: argparse.Namespace, training: torch.Tensor, validation: torch.Tensor) -> list:
    """[(step, validation loss), ...]; all runs of a seed have the same initial weights and the same batches."""
    rank, shape = dist.get_rank(), Shape()
    torch.manual_seed(seed)
    model = DistributedDataParallel(GPT(shape))
    spec, _, feedback = run.partition("+")
    state = qccl.ddp.State(model, spec, error_feedback=feedback == "ef")
    model.register_comm_hook(state, qccl.ddp.compress_hook)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), fused=True)
    # The rate goes up, then down to zero, so that the noise of the last steps does not affect the final loss.
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / WARM_UP_STEPS, (arguments.steps - step) / arguments.steps)
    )

    def batches(tokens: torch.Tensor, sequences: int) -> Batches:
        generator = torch.Generator().manual_seed(1000 * seed + rank)
        return Batches(tokens, sequences, shape.context, generator)

    source = batches(training, arguments.sequences // dist.get_world_size())
    held_out = batches(validation, 4 * VALIDATION_SEQUENCES_PER_RANK // dist.get_world_size()).next()
    losses = []
    for step in range(arguments.steps + 1):
        if step % max(1, arguments.steps // VALIDATIONS) == 0 or step == arguments.steps:
            losses.append((step, validate(model.module, held_out)))
        if step < arguments.steps:
            train_step(model, optimizer, schedule, source)
    return losses


if __name__ == "__main__":
    main()
