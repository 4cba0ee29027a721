"""Local SGD: every rank trains alone for some steps, then all average their changes, compressed.

    torchrun --nproc-per-node 2 examples/torch/local_sgd.py --period 8
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn

import qccl


class Averager:
    """Averages the ranks' changes since the last average, at 4 bits with error feedback."""

    def __init__(self, model: nn.Module) -> None:
        self._parameters = list(model.parameters())
        self._agreed = torch.nn.utils.parameters_to_vector(self._parameters).detach().clone()
        self._feedback = qccl.ErrorFeedback(self._agreed.numel())

    @torch.no_grad()
    def average(self) -> None:
        change = torch.nn.utils.parameters_to_vector(self._parameters) - self._agreed
        qccl.all_reduce(change, dist.ReduceOp.AVG, compression="minmax:bits=4", error_feedback=self._feedback)
        self._agreed += change
        torch.nn.utils.vector_to_parameters(self._agreed.clone(), self._parameters)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--period", type=int, default=8, help="steps between two averages")
    parser.add_argument("--steps", type=int, default=64)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("qccl")
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 8))
    averager = Averager(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for step in range(1, arguments.steps + 1):
        inputs = torch.randn(64, 64, generator=generator)
        loss = nn.functional.mse_loss(model(inputs), inputs[:, :8])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % arguments.period == 0:
            averager.average()
            total = loss.detach().clone()
            dist.all_reduce(total, dist.ReduceOp.AVG)
            if dist.get_rank() == 0:
                print(f"step {step}: loss {total.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
