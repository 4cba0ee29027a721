"""DeepSpeed's compressed all-reduce over gloo, for bench/peers/onebit: signs packed by numpy, scales apart.

Written for this comparison from the description in include/qccl/onebit.h. The steps, their order and the number of
collectives (an all_to_all and three all_gathers) are those of DeepSpeed's backends. The timing and rank 0's commands
are those of onebit_qccl.cc.
"""

import math
import sys
import time

import numpy as np
import torch
import torch.distributed as dist


def signs_of(values: torch.Tensor) -> torch.Tensor:
    """+1 for zero and NaN."""
    return values.sign().add_(1).bool().float().sub_(0.5).mul_(2.0)


def packed(values: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.packbits(values.sign().add_(1).bool().numpy()))


def unpacked(bits: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.unpackbits(bits.numpy())).float().sub_(0.5).mul_(2.0)


def gathered(value: torch.Tensor) -> list[torch.Tensor]:
    parts = [torch.zeros_like(value) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, value)
    return parts


class Contestant:
    def __init__(self, count: int) -> None:
        self.world, self.rank = dist.get_world_size(), dist.get_rank()
        unit = 8 * self.world
        padded = (count + unit - 1) // unit * unit
        self.count = count
        self.worker_error = torch.zeros(padded)
        self.server_error = torch.zeros(padded // self.world)
        self.input = (torch.arange(count) * 7 + 3 * self.rank).remainder_(11).float().div_(4).sub_(1.25)

    def onebit(self, buffer: torch.Tensor) -> torch.Tensor:
        if self.worker_error.numel() != self.count:
            buffer = torch.cat([buffer, torch.zeros(self.worker_error.numel() - self.count)])
        buffer.add_(self.worker_error)
        scale = torch.linalg.norm(buffer) / math.sqrt(buffer.numel())
        self.worker_error.set_(buffer - scale * signs_of(buffer))
        outgoing = packed(buffer).view(self.world, -1)
        incoming = torch.zeros_like(outgoing)
        dist.all_to_all_single(incoming, outgoing)
        scales = torch.stack(gathered(scale.view(1))).view(self.world, 1)
        mean = unpacked(incoming.view(-1)).view(self.world, -1).mul_(scales / self.world).sum(0)
        mean.add_(self.server_error)
        server_scale = torch.linalg.norm(mean) / math.sqrt(mean.numel())
        self.server_error.set_(mean - server_scale * signs_of(mean))
        signs = torch.cat(gathered(packed(mean)))
        server_scales = torch.stack(gathered(server_scale.view(1))).view(self.world, 1)
        buffer.copy_(unpacked(signs).view(self.world, -1).mul_(server_scales).view(-1))
        return buffer[: self.count]

    def run(self, command: str) -> None:
        buffer = self.input.clone()
        dist.barrier()
        start = time.perf_counter()
        if command == "onebit":
            buffer = self.onebit(buffer)
        else:
            dist.all_reduce(buffer)
        seconds = torch.tensor([time.perf_counter() - start], dtype=torch.float64)
        dist.all_reduce(seconds, dist.ReduceOp.MAX)
        if self.rank == 0:
            print(f"ROW {seconds.item():.9f} {buffer[0].item():.9g}", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    contestant = Contestant(int(sys.argv[1]))
    while True:
        line = sys.stdin.readline().strip() if dist.get_rank() == 0 else ""
        command = [line]
        dist.broadcast_object_list(command)
        if not command[0]:
            break
        contestant.run(command[0])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
