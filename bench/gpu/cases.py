"""What `make gpu` and its first contact with a GPU both run."""

import signal
from typing import Any

COMPRESSIONS = ["none", "minmax:bits=8", "minmax:bits=4"]
# Cases of gpu_gates, with the exit codes of those that end well.
GATE_CASES = {"streams": 0, "free": 0, "abort": 0, "deadline": 0, "exit": 0, "_exit": 0, "quick_exit": 0,
              "kill": -signal.SIGKILL}  # fmt: skip
# CUDA_DEVICE_MAX_CONNECTIONS: the driver's default, that of programs such as Megatron, a few and the most.
CONNECTIONS = ["8", "1", "2", "32"]
ORDERS = ["host", "gate"]  # QCCL_STREAM_ORDER
# Of tests/torch/device; the others hold the streams of the fake device.
TORCH_TESTS = ["calls", "device_tensors", "parallel", "training", "demo_on_a_device"]
SANITIZERS = ["memcheck", "racecheck"]
SANITIZER_FOUND = 9  # its exit code
SANITIZED_SIZES = ["--elements", 100_000, "--slice", 32_768, "--bytes", 1 << 20, "--samples", 0]
LOSS_DIFFERENCE = 1e-3


def losses_that_differ(own: dict[str, Any], nccl: dict[str, Any], compressed: dict[str, Any]) -> list[str]:
    """Uncompressed losses differ by the order of sums only; compressed ones go down."""
    ranks, found = own["ranks"], []
    pairs = zip(own["losses"], nccl["losses"], strict=True)
    if not all(abs(one - other) <= LOSS_DIFFERENCE for one, other in pairs):
        found.append(f"{ranks} ranks: losses differ by more than {LOSS_DIFFERENCE:g} from the qccl backend's")
    if not compressed["losses"][-1] < compressed["losses"][0]:
        found.append(f"{ranks} ranks: losses do not go down with {COMPRESSIONS[1]}")
    if compressed["losses"] == nccl["losses"]:
        found.append(f"{ranks} ranks: {COMPRESSIONS[1]} makes no difference")
    return found
