"""One rank of bench/outer/compare on a line: the calls of each method with the model's parameters, against the clock.

Rank 0 prints a row for each method: the seconds of a step. Steps of ranks that synchronise change their parameters by
a fixed tensor. A data parallel rank posts the gradients in parts, evenly over the last two thirds of a step, as
backward passes do.
"""

import argparse
import json
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

import qccl

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "demo"))
from clock import measure, wait_until  # noqa: E402
from losses import outer_loop  # noqa: E402
from methods import METHODS, Method  # noqa: E402

from model import GPT, Shape  # noqa: E402

STEPS = 3  # timed ones of data parallel ranks
PARTS = 4  # of a step's gradients
TIMEOUT = timedelta(minutes=10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", type=int, nargs=4, required=True, metavar=("LAYERS", "WIDTH", "HEADS", "CONTEXT"))
    parser.add_argument("--step-seconds", type=float, required=True)
    parser.add_argument("methods", nargs="+")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("qccl", timeout=TIMEOUT)
    torch.manual_seed(1)
    for name in arguments.methods:
        method, model = METHODS[name], GPT(Shape(*arguments.shape))
        dist.barrier()
        seconds = torch.tensor(
            synchronised(method, model, arguments.step_seconds)
            if method.every
            else data_parallel(method, model, arguments.step_seconds),
            dtype=torch.float64,
        )
        dist.all_reduce(seconds, dist.ReduceOp.MAX)
        if dist.get_rank() == 0:
            print("ROW " + json.dumps({"method": name, "seconds": seconds.item()}), flush=True)
    dist.destroy_process_group()


def synchronised(method: Method, model: GPT, step_seconds: float) -> float:
    outer = outer_loop(method, model)
    dist.barrier()  # the first model has come to all ranks
    parameters = [each.detach() for each in model.parameters()]
    changes = [1e-3 * torch.randn_like(each) for each in parameters]

    def step(begin: float) -> None:
        for parameter, change in zip(parameters, changes, strict=True):
            parameter += change
        wait_until(begin + step_seconds)
        outer.step()

    # The timed steps hold the end of one round of each fragment.
    seconds = measure(step, method.delay + 1, method.every)
    outer.finish()
    return seconds


def data_parallel(method: Method, model: GPT, step_seconds: float) -> float:
    group = dist.new_group(timeout=TIMEOUT, pg_options=qccl.Options(compression=method.compression))
    parts = torch.randn(sum(each.numel() for each in model.parameters())).chunk(PARTS)

    def step(begin: float) -> None:
        works = []
        for number, part in enumerate(parts, start=1):
            wait_until(begin + step_seconds * (1 + 2 * number / len(parts)) / 3)
            works.append(dist.all_reduce(part, dist.ReduceOp.AVG, group=group, async_op=True))
        for work in works:
            work.wait()

    seconds = measure(step, 1, STEPS)
    dist.destroy_process_group(group)
    return seconds


if __name__ == "__main__":
    main()
