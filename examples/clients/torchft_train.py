"""torchft over QCCL: two replicas train; one of them dies after 30 steps, and the other goes on alone."""

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torchft import DistributedDataParallel, Manager, Optimizer
from torchft.coordination import LighthouseServer

import qccl.torchft


def replica(number, lighthouse):
    torch.manual_seed(number)  # the manager copies one replica's parameters to the other
    model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.Tanh(), torch.nn.Linear(512, 64))
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    group = qccl.torchft.ProcessGroupQCCL(options=qccl.Options(compression="int:bits=8"))
    manager = Manager(
        pg=group, min_replica_size=1, load_state_dict=model.load_state_dict, state_dict=model.state_dict, rank=0,
        world_size=1, replica_id=f"{number}", lighthouse_addr=lighthouse, store_addr="localhost", store_port=store.port,
    )  # fmt: skip
    optimizer = Optimizer(manager, torch.optim.AdamW(model.parameters()))
    model = DistributedDataParallel(manager, model)
    while (step := manager.current_step()) < 60:
        inputs = torch.randn(32, 64)
        optimizer.zero_grad()  # the replicas agree on who takes part
        loss = torch.nn.functional.mse_loss(model(inputs), inputs.roll(1, dims=1))
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step}: loss {loss.item():.4f}, {manager.num_participants()} replicas", flush=True)
        if number == 1 and step == 30:
            os._exit(0)
    manager.shutdown()


if __name__ == "__main__":
    lighthouse = LighthouseServer(bind="[::]:0", min_replicas=1, join_timeout_ms=5000, heartbeat_timeout_ms=1000)
    mp.spawn(replica, (lighthouse.address(),), nprocs=2)
