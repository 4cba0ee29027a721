"""Lightning over QCCL: lightning_train.py ddp, or fsdp, which is FSDP2: FSDPStrategy runs on GPUs only."""

import sys

import lightning
import torch
import torch.distributed as dist
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy
from torch.distributed.fsdp import fully_shard

import qccl

STRATEGIES = {
    "ddp": DDPStrategy(process_group_backend="qccl"),
    "fsdp": ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1, process_group_backend="qccl"),
}


class Model(lightning.LightningModule):
    def configure_model(self):
        torch.manual_seed(1)
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.Tanh(), torch.nn.Linear(512, 64))
        if sys.argv[1] == "fsdp":
            fully_shard(self.layers, mesh=self.device_mesh["data_parallel"])

    def training_step(self, batch, index):
        loss = torch.nn.functional.mse_loss(self.layers(batch[0]), batch[0].roll(1, dims=1))
        if index % 8 == 0 and self.trainer.is_global_zero:
            print(f"loss {loss.item():.4f} over {dist.get_backend()}, {qccl.traffic().bytes_sent / 1e6:.1f} MB sent")
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
trainer = lightning.Trainer(accelerator="cpu", devices=2, max_epochs=3, strategy=STRATEGIES[sys.argv[1]], **quiet)
data = torch.utils.data.TensorDataset(torch.randn(1024, 64))
trainer.fit(Model(), torch.utils.data.DataLoader(data, batch_size=32))
