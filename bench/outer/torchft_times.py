"""torchft's DiLoCo over gloo in the place of bench/outer/times.py: the same model, step and clock. Needs torchft."""

import argparse
import json
import os
import socket
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torchft import Manager, ProcessGroupGloo
from torchft.coordination import LighthouseServer
from torchft.local_sgd import DiLoCo

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "demo"))
from clock import measure, wait_until  # noqa: E402
from methods import METHODS, Method  # noqa: E402

from model import GPT, Shape  # noqa: E402

TIMEOUT = timedelta(minutes=10)
LIGHTHOUSE_PORT = 29501  # the hosts of a shaped line are new: all their ports are free


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", type=int, nargs=4, required=True, metavar=("LAYERS", "WIDTH", "HEADS", "CONTEXT"))
    parser.add_argument("--step-seconds", type=float, required=True)
    parser.add_argument("method")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rank, world, leader = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), os.environ["MASTER_ADDR"]
    ends = dist.TCPStore(leader, int(os.environ["MASTER_PORT"]), world, is_master=rank == 0)
    lighthouse = LighthouseServer(bind=f"0.0.0.0:{LIGHTHOUSE_PORT}", min_replicas=world) if rank == 0 else None
    torch.manual_seed(1)
    model, method = GPT(Shape(*arguments.shape)), METHODS[arguments.method]
    address = own_address(leader)
    own = dist.TCPStore(address, 0, is_master=True, wait_for_workers=False)  # serves until this function ends
    manager = Manager(
        pg=ProcessGroupGloo(timeout=TIMEOUT), min_replica_size=world, use_async_quorum=False, rank=0, world_size=1,
        load_state_dict=model.load_state_dict, state_dict=model.state_dict, replica_id=f"{rank}", hostname=address,
        lighthouse_addr=f"http://{leader}:{LIGHTHOUSE_PORT}", store_addr=address, store_port=own.port,
        timeout=TIMEOUT, quorum_timeout=TIMEOUT, init_sync=False,
    )  # fmt: skip
    seconds = train(manager, model, method, arguments.step_seconds)
    if rank == 0:
        print("ROW " + json.dumps({"method": arguments.method, "seconds": seconds}), flush=True)
    manager.shutdown()
    # Rank 0 serves the lighthouse and the store: it leaves last.
    ends.set(f"{rank}", "ended")
    if lighthouse:
        ends.wait([f"{each}" for each in range(world)], TIMEOUT)
        lighthouse.shutdown()


def own_address(leader: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as towards:
        towards.connect((leader, LIGHTHOUSE_PORT))
        return towards.getsockname()[0]


def train(manager: Manager, model: GPT, method: Method, step_seconds: float) -> float:
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    inner = torch.optim.SGD(model.parameters(), lr=1e-3)
    outer = torch.optim.SGD(model.parameters(), lr=method.learning_rate, momentum=method.momentum, nesterov=True)
    with DiLoCo(manager, [model], inner, outer, sync_every=method.every, pin_memory=False):

        def step(begin: float) -> None:
            wait_until(begin + step_seconds)
            inner.step()

        # The first round also makes the group.
        return measure(step, method.every + 1, method.every)


if __name__ == "__main__":
    main()
