"""Everything on docs/groups.md runs as written there: its Python on 8 ranks, its C++ as part of the example."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks

import qccl

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "groups.md").read_text()


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def words(text):
    return " ".join(text.split())


@pytest.mark.parametrize("number", range(len(blocks("python"))))
def test_python_runs_on_8_ranks(number):
    def body(rank):
        exec(blocks("python")[number], {"torch": torch, "dist": dist, "qccl": qccl})

    run_ranks(body, 8)


@pytest.mark.parametrize("number", range(len(blocks("cpp"))))
def test_cpp_stands_in_the_example(number):
    assert words(blocks("cpp")[number]) in words((ROOT / "examples" / "groups.cc").read_text())


def test_commands_print_what_the_ranks_agree_on():
    (command,) = [line for block in blocks("sh") for line in block.splitlines()]
    done = subprocess.run(shlex.split(command), cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "average gradient: 0.5",
        "output of the last stage: 2",
        "rows in the sum: 8, row 7: 17",
    ]
