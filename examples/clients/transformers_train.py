"""transformers' Trainer over QCCL: the process group is made before the Trainer's arguments, which take it."""

import torch
import torch.distributed as dist
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import qccl

dist.init_process_group("qccl", pg_options=qccl.Options(compression="int:bits=8"))
arguments = TrainingArguments(
    output_dir="transformers_output", use_cpu=True, num_train_epochs=3, per_device_train_batch_size=8,
    learning_rate=3e-3, logging_steps=8, save_strategy="no", report_to="none", disable_tqdm=True,
)  # fmt: skip
model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=32, n_embd=128, n_layer=2, n_head=4))
ramps = (torch.arange(32) + torch.arange(128)[:, None]) % 32  # each token follows from the one before it
data = [{"input_ids": ramp, "labels": ramp} for ramp in ramps]
trainer = Trainer(model=model, args=arguments, train_dataset=data)
trainer.train()
losses = [float(entry["loss"]) for entry in trainer.state.log_history if "loss" in entry]
sent = f"{qccl.traffic().bytes_sent / 1e6:.1f} MB sent"
if dist.get_rank() == 0:
    print("\n".join(f"loss {loss:.4f} over {dist.get_backend()}, {sent}" for loss in losses))
dist.destroy_process_group()
