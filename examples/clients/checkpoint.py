"""torch's distributed checkpoint over QCCL: an FSDP2 model is saved by its ranks and loaded into another."""

import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.fsdp import fully_shard


def make_model(seed):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.Tanh(), torch.nn.Linear(512, 64))
    return fully_shard(model)


def digest(model):
    return sum(parameter.full_tensor().double().sum().item() for parameter in model.parameters())


dist.init_process_group("qccl")
saved, loaded = make_model(1), make_model(2)
checkpoint.save(get_model_state_dict(saved), checkpoint_id=sys.argv[1])
group = dist.new_group()  # for a thread that saves while others train
checkpoint.async_save(get_model_state_dict(saved), checkpoint_id=sys.argv[1] + "/later", process_group=group).result()
before, state = digest(loaded), get_model_state_dict(loaded)
checkpoint.load(state, checkpoint_id=sys.argv[1] + "/later")
set_model_state_dict(loaded, state)
print(f"{dist.get_backend()}: saved {digest(saved)}, loaded {digest(loaded)} in place of {before}", flush=True)
dist.destroy_process_group()
