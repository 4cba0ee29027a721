"""Writes gradients of the demo's model as raw float32, for `qccl codec bench --data FILE`.

One process trains the model for some steps and writes the gradients of the last step, all parameters one after the
other in the model's order.
"""

import argparse
import sys
from pathlib import Path

import torch

import text
from model import GPT, Shape

SEED = 20
SEQUENCES = 8
LEARNING_RATE = 2e-3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="the file to write")
    parser.add_argument("--steps", type=int, default=50, help="training steps before (default 50)")
    parser.add_argument("--data", help="text file to train on (default: the sources of Python's standard library)")
    arguments = parser.parse_args()
    try:
        training, _ = text.load(arguments.data)
    except text.TextError as error:
        print(f"dump_gradients: {error}", file=sys.stderr)
        return 1
    gradients = train(training, arguments.steps)
    gradients.numpy().astype("<f4").tofile(arguments.output)
    print(f"{arguments.output}: {gradients.numel()} gradients after {arguments.steps} steps")
    return 0


def train(tokens: torch.Tensor, steps: int) -> torch.Tensor:
    """The gradients that step number `steps` would apply."""
    shape = Shape()
    torch.manual_seed(SEED)
    model = GPT(shape)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95))
    for step in range(steps + 1):
        starts = torch.randint(len(tokens) - shape.context - 1, (SEQUENCES,))
        rows = torch.stack([tokens[start : start + shape.context + 1] for start in starts]).long()
        optimizer.zero_grad()
        model(rows[:, :-1], rows[:, 1:]).backward()
        if step < steps:
            optimizer.step()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


if __name__ == "__main__":
    sys.exit(main())
