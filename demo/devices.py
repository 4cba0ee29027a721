"""The devices that ranks train on."""

import os

import torch

KINDS = ("cpu", "cuda")


class DeviceError(Exception):
    """There is no such device; the message says why and what to do."""


def check(kind: str) -> None:
    """Raises DeviceError if this machine has no device of the kind."""
    if kind == "cpu" or torch.cuda.is_available():
        return
    if torch.version.cuda is None:
        why = f"this torch ({torch.__version__}) is built without CUDA: docs/gpu.md says how to get one with CUDA"
    else:
        why = "torch finds no GPU: see whether nvidia-smi lists one"
    raise DeviceError(f"--device cuda: {why}, or leave --device out to train on the processors")


def describe(kind: str, ranks: int) -> str:
    if kind == "cpu":
        return "this machine's processors"
    gpus = torch.cuda.device_count()
    names = ", ".join(sorted({torch.cuda.get_device_name(index) for index in range(gpus)}))
    return f"{min(gpus, ranks)} of {gpus} GPUs ({names})"


def of_rank(kind: str) -> torch.device:
    """This rank's device, which becomes the current one: GPUs are dealt in turn, and ranks may share one."""
    if kind == "cpu":
        return torch.device("cpu")
    check(kind)
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device
