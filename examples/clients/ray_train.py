"""Ray Train over QCCL: the name of the backend is a setting of TorchConfig."""

import ray
import torch
import torch.distributed as dist
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer, prepare_model

import qccl


def train():
    torch.manual_seed(1)
    model = prepare_model(torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.Tanh(), torch.nn.Linear(512, 64)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(40):
        inputs = torch.randn(32, 64)
        loss = torch.nn.functional.mse_loss(model(inputs), inputs.roll(1, dims=1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 13 == 0 and dist.get_rank() == 0:
            print(f"loss {loss.item():.4f} over {dist.get_backend()}, {qccl.traffic().bytes_sent / 1e6:.1f} MB sent")


ray.init(num_cpus=2, runtime_env={"env_vars": {"QCCL_COMPRESSION": "int:bits=8"}})
trainer = TorchTrainer(
    train, torch_config=TorchConfig(backend="qccl"), scaling_config=ScalingConfig(num_workers=2), run_config=RunConfig()
)
trainer.fit()
