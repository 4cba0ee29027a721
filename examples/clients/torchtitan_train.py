"""torchtitan's Llama, meshes and FSDP over QCCL. torchtitan's own Trainer needs a GPU."""

import torch
import torch.distributed as dist
import torchtitan.tools.utils as titan

titan.device_type, titan.device_module = "cpu", torch.cpu  # before the imports below, which copy them

from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig  # noqa: E402
from torchtitan.distributed import ParallelDims  # noqa: E402
from torchtitan.models.common.attention import ScaledDotProductAttention  # noqa: E402
from torchtitan.models.llama3 import model_registry  # noqa: E402

import qccl  # noqa: E402

dist.init_process_group("qccl", pg_options=qccl.Options(compression="int:bits=8"))
parallelism = ParallelismConfig(spmd_backend="partial_dtensor")
dims = ParallelDims.from_config(parallelism, dist.get_world_size())
spec = model_registry("debugmodel")
for layer in spec.model.layers:
    layer.attention.inner_attention = ScaledDotProductAttention.Config()  # flex_attention trains on GPUs only
with torch.device("meta"):
    model = spec.model.build()
spec.parallelize_fn(
    model, parallel_dims=dims, training=TrainingConfig(), parallelism=parallelism,
    compile_config=CompileConfig(), ac_config=None, dump_folder=".",
)  # fmt: skip
model.to_empty(device="cpu")
with torch.no_grad():
    model.init_weights()
optimizer = torch.optim.AdamW(model.parameters(), lr=8e-4)
tokens = torch.randint(2048, (2, 65), generator=torch.Generator().manual_seed(dist.get_rank()))
for _ in range(9):
    loss = torch.nn.functional.cross_entropy(model(tokens[:, :-1]).float().flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if dist.get_rank() == 0:
        print(f"loss {loss.item():.4f} over {dist.get_backend()}, {qccl.traffic().bytes_sent / 1e6:.1f} MB sent")
dist.destroy_process_group()
