"""One rank of bench/training/compare and sent_bits: trains the demo's model once for each compression of its gradients
and each seed.

Rank 0 prints one JSON object for each run: its name, the validation loss at some steps, the bits an element that its
compressed parameters took between these steps, and what State.report() says at the end.
"""

import argparse
import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import qccl
from qccl._budget import Budgets

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
    parser.add_argument(
        "runs",
        nargs="+",
        help="policies; after one, '+ef' adds error feedback, '+optimizer' weighs errors by Adam's second moments, and "
        "'+moment' measures a budget's costs with the residual of the moment",
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    training, validation = text.load(None)
    dist.init_process_group("qccl")
    qccl.configure_log(enabled=True)
    for seed in arguments.seeds:
        for run in arguments.runs:
            result = train(run, seed, arguments, training, validation)
            if dist.get_rank() == 0:
                print(json.dumps({"run": run, "seed": seed, **result}), flush=True)
    dist.destroy_process_group()


class MeasuredWithTheResidual(Budgets):
    """Takes the residual of the moment for the one that the next steps will have, which State does not do."""

    def __init__(self, state: qccl.ddp.State, optimizer: torch.optim.Optimizer | None) -> None:
        super().__init__(None, optimizer, error_feedback=False)
        self._state = state

    def measure(self, name: str, parameter: torch.Tensor, budget: float, gradient: torch.Tensor) -> None:
        owed = self._state.owed(name)
        super().measure(name, parameter, budget, gradient if owed is None else gradient + owed)


def sent_bits() -> float:
    """An element, of the compressed calls since this was asked last."""
    compressed = [record for record in qccl.comms_logger.records() if record["compression"] != "none"]
    qccl.comms_logger.reset_data()
    plain = sum(record["plain_bytes"] for record in compressed)
    return 32 * sum(record["payload_bytes"] for record in compressed) / plain if plain else 32.0


def train(run: str, seed: int, arguments: argparse.Namespace, training: torch.Tensor, validation: torch.Tensor) -> dict:
    """What rank 0 prints; all runs of a seed have the same initial weights and the same batches."""
    rank, shape = dist.get_rank(), Shape()
    torch.manual_seed(seed)
    model = DistributedDataParallel(GPT(shape))
    policy, *options = run.split("+")
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), fused=True)
    weighs = optimizer if "optimizer" in options else None
    every = max(1, arguments.steps // VALIDATIONS)
    state = qccl.ddp.State(model, policy, error_feedback="ef" in options, optimizer=weighs, gauge_every=every)
    if "moment" in options:
        state._budgets = MeasuredWithTheResidual(state, weighs)
    model.register_comm_hook(state, qccl.ddp.compress_hook)
    # The rate goes up, then down to zero, so that the noise of the last steps does not affect the final loss.
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / WARM_UP_STEPS, (arguments.steps - step) / arguments.steps)
    )

    def batches(tokens: torch.Tensor, sequences: int) -> Batches:
        generator = torch.Generator().manual_seed(1000 * seed + rank)
        return Batches(tokens, sequences, shape.context, generator)

    source = batches(training, arguments.sequences // dist.get_world_size())
    held_out = batches(validation, 4 * VALIDATION_SEQUENCES_PER_RANK // dist.get_world_size()).next()
    losses, bits = [], []
    qccl.comms_logger.reset_data()
    for step in range(arguments.steps + 1):
        if step % every == 0 or step == arguments.steps:
            bits.append((step, sent_bits()))
            losses.append((step, validate(model.module, held_out)))
        if step < arguments.steps:
            train_step(model, optimizer, schedule, source)
    nmse = state.report().scalars("nmse")
    return {"losses": losses, "bits": bits[1:], "nmse": nmse, "report": str(state.report())}


if __name__ == "__main__":
    main()
