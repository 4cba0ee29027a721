"""Three torchft replicas train with qccl.torchft.OuterLoop. Replica 1 is killed in its 25th step; when the others have
done a round without it, it is started again. Each replica that finishes prints a line of JSON: its number, the sizes of
the groups of its rounds, its steps, and a digest of the global model."""

import hashlib
import json
import os
import signal

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torchft import Manager
from torchft.coordination import LighthouseServer

import qccl.torchft

REPLICAS, EVERY, ROUNDS_TOGETHER = 3, 10, 4


def replica(number, lighthouse, are_ready, is_going_on_without):
    """are_ready: None in the second life of the replica that is killed."""
    torch.manual_seed(number)  # the first replica's values become all replicas'
    model = torch.nn.Sequential(torch.nn.Linear(64, 100), torch.nn.Tanh(), torch.nn.Linear(100, 64))
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=qccl.torchft.ProcessGroupQCCL(), min_replica_size=2, load_state_dict=model.load_state_dict,
        state_dict=model.state_dict, rank=0, world_size=1, replica_id=f"{number}", lighthouse_addr=lighthouse,
        store_addr="localhost", store_port=store.port, use_async_quorum=False,
    )  # fmt: skip
    if are_ready:
        are_ready.wait()  # the lighthouse knows all three
    outer = qccl.torchft.OuterLoop(manager, model, every=EVERY, fragments=2, delay=2, compression="int:bits=4")
    optimizer = torch.optim.AdamW(model.parameters())
    while not is_complete(outer.stats()):
        inputs = torch.randn(16, 64)
        loss = torch.nn.functional.mse_loss(model(inputs), inputs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number == 1 and are_ready and outer.steps == 24:
            os.kill(os.getpid(), signal.SIGKILL)
        outer.step()
        if sizes(outer.stats())[-1:] == [REPLICAS - 1]:
            is_going_on_without.set()
    outer.finish()
    state = b"".join(each.numpy().tobytes() for each in outer.global_state().values())
    row = {"replica": number, "sizes": changes(outer.stats()), "steps": outer.steps,
           "model": hashlib.sha256(state).hexdigest(), "loss": loss.item()}  # fmt: skip
    print("ROW " + json.dumps(row), flush=True)
    manager.shutdown()


def sizes(rounds):
    return [each["ranks"] for each in rounds]


def changes(rounds):
    found = sizes(rounds)
    return [size for i, size in enumerate(found) if i == 0 or found[i - 1] != size]


def is_complete(rounds):
    """Some rounds of all replicas, the last ones, after the killed one came back; a newcomer has no others."""
    found = sizes(rounds)
    together = len(found) - max((i + 1 for i, size in enumerate(found) if size < REPLICAS), default=0)
    is_back = len(found) > together or (bool(rounds) and rounds[0]["round"] > 1)
    return is_back and together == ROUNDS_TOGETHER


def start(context, number, *arguments):
    process = context.Process(target=replica, args=(number, *arguments))
    process.start()
    return process


if __name__ == "__main__":
    context = mp.get_context("spawn")
    lighthouse = LighthouseServer(bind="[::]:0", min_replicas=2, join_timeout_ms=20000, heartbeat_timeout_ms=1000)
    is_going_on_without = context.Event()
    are_ready = context.Barrier(REPLICAS)
    first = [start(context, each, lighthouse.address(), are_ready, is_going_on_without) for each in range(REPLICAS)]
    is_going_on_without.wait()
    second = start(context, 1, lighthouse.address(), None, is_going_on_without)
    for process in [*first, second]:
        process.join()
    lighthouse.shutdown()
    assert [each.exitcode for each in [*first, second]] == [0, -signal.SIGKILL, 0, 0]
