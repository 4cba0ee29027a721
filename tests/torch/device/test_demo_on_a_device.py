"""The demo's own training, as `make demo` runs it, on a device."""

import json
import sys
from pathlib import Path

import pytest
import torch
import torch._dynamo  # noqa: F401  DDP asks for it: seconds here, once, or in every rank
from device_ranks import DEVICE, needs_device, on_device
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "demo"))
import train  # noqa: E402

pytestmark = needs_device


def test_the_demo_learns_on_a_device_what_it_learns_on_the_processors(tmp_path: Path) -> None:
    def body(rank: int) -> None:
        words = torch.frombuffer(bytearray(b"the quick brown fox jumps over the lazy dog; " * 200), dtype=torch.uint8)
        events = train.Events(tmp_path / "events")
        for device in ("cpu", DEVICE):
            with sdpa_kernel(SDPBackend.MATH):  # a device has no other without kernels of its own
                train.train("minmax:bits=8", 2, (words, words), torch.device(device), events)

    on_device(body, longest_delay=500)
    events = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
    losses = [event["loss"] for event in events if event["event"] == "validation"]
    assert len(losses) == 6 and losses[0] > losses[2]
    assert losses[:3] == pytest.approx(losses[3:], rel=1e-5)  # the optimizer's fused steps may differ
