"""OuterLoop in C++ (outer_rank.cc) and in Python: the same parameters, the same saved state, the same bytes sent."""

import struct
import subprocess
from pathlib import Path

import pytest
import torch
from ranks import run_ranks

import qccl

BUILD = Path(__file__).resolve().parents[3] / "build"
PROGRAM = BUILD / "tests/outer_rank"
STEPS = 19


class Blocks(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(torch.nn.Linear(100, 90) for _ in range(3))
        with torch.no_grad():
            for each in self.parameters():
                each.copy_(((torch.arange(each.numel()) * 37 % 101 - 50) / 64).view_as(each))

    @torch.no_grad()
    def train_step(self, rank, step):
        """Every change is exact in float32, so that the sums are those of any other program."""
        for number, each in enumerate(self.parameters()):
            drawn = (torch.arange(each.numel()) * 7919 + step * 104_729 + rank * 1_299_709 + number * 17) % 2001
            each += ((drawn - 1000) / 65536).view_as(each)


@pytest.mark.skipif(not PROGRAM.exists(), reason="build/tests/outer_rank is not built")
@pytest.mark.parametrize("compression", ["none", "int:bits=4", "h4:bits=2", "topk:density=0.05,values=int2"])
def test_programs_in_cpp_and_python_have_the_same_bytes(compression, tmp_path):
    def body(rank):
        model = Blocks()
        outer = qccl.outer.OuterLoop(
            model, every=4, fragments=2, delay=1, blend=0.25, compression=compression, error_decay=0.9
        )
        for step in range(STEPS):
            model.train_step(rank, step)
            outer.step()
        parameters = b"".join(each.detach().numpy().tobytes() for each in model.parameters())
        saved = outer.state_dict()["saved"].numpy().tobytes()
        sent = b"".join(struct.pack("=Q", each["bytes"]) for each in outer.stats())
        outer.finish()
        return parameters, saved, sent

    command = [BUILD / "qccl", "run", "-n", "2", "--", PROGRAM, tmp_path, compression]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    for rank, of_python in enumerate(run_ranks(body, 2)):
        for kind, ours in zip(("parameters", "state", "sent"), of_python, strict=True):
            theirs = (tmp_path / f"{rank}.{kind}").read_bytes()
            assert len(theirs) > 0 and theirs == ours, f"{kind} of rank {rank}"
