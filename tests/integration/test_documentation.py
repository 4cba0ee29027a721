"""DeepSpeed over the backend behaves as docs/deepspeed.md describes."""

import re

import pytest
from documented import blocks, commands, run

LOSSES = re.compile(r"loss ([\d.]+) at first, ([\d.]+) after")


@pytest.mark.parametrize("command", commands(onebit=False))
def test_command_trains(command):
    ((first, last),) = LOSSES.findall(run(command))
    assert float(last) < float(first) / 2


def test_megatron_program_runs(tmp_path):
    (program,) = [block for block in blocks("python") if "parallel_state" in block]
    file = tmp_path / "program.py"
    file.write_text(program)
    printed = run(f"torchrun --standalone --nproc-per-node 4 {file}")
    assert len(re.findall(r"rank \d", printed)) >= 4
