"""Accelerate over QCCL: the process group is made before the Accelerator, which takes the one that exists."""

import torch
import torch.distributed as dist
from accelerate import Accelerator

import qccl

dist.init_process_group("qccl", pg_options=qccl.Options(compression="int:bits=8"))
accelerator = Accelerator(cpu=True)
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.Tanh(), torch.nn.Linear(512, 64))
inputs = torch.randn(1024, 64)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, inputs.roll(1, dims=1)), batch_size=32)
model, optimizer, data = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=3e-3), data)
for _ in range(3):
    for batch, target in data:
        loss = torch.nn.functional.mse_loss(model(batch), target)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    mean = accelerator.gather(loss.detach().reshape(1)).mean().item()
    accelerator.print(f"loss {mean:.4f} over {dist.get_backend()}, {qccl.traffic().bytes_sent / 1e6:.1f} MB sent")
accelerator.end_training()
