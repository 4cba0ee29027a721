"""DeepSpeed's own launcher starts a program over the backend from a hostfile, also with qccl.init_distributed()."""

import re
import shlex
import sys
from pathlib import Path

import pytest
from documented import run_python

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "launchers" / "deepspeed.md").read_text()
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
# DeepSpeed's engine then finds the existing process group, as after deepspeed.init_distributed().
INIT_BY_QCCL = """
import os, deepspeed, torch, torch.distributed as dist, qccl
qccl.init_distributed()
deepspeed.init_distributed()
ones = torch.ones(3)
deepspeed.comm.all_reduce(ones)
words = [deepspeed.comm.get_world_size(), dist.get_backend(), int(ones[0]), os.environ["LOCAL_RANK"]]
os.write(1, f"joined {' '.join(map(str, words))}\\n".encode())  # at once, since the launcher's Python buffers nothing
"""


def deepspeed(*arguments: object) -> str:
    """The output of the launcher and its ranks; AssertionError if it fails."""
    return run_python(Path(sys.executable).parent / "deepspeed", *arguments)


@pytest.fixture
def two_ranks(tmp_path):
    hostfile = tmp_path / "hosts.txt"
    hostfile.write_text("localhost slots=2\n")
    return ("--hostfile", hostfile, "--no_ssh_check", "--master_addr", "localhost")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_launchers_page(command, tmp_path):
    (tmp_path / "hosts.txt").write_text(re.search(r"```text\n(.*?)```", PAGE, re.DOTALL).group(1))
    launcher, *arguments = shlex.split(command.replace("hosts.txt", str(tmp_path / "hosts.txt")))
    assert launcher == "deepspeed"
    assert re.search("^4 ranks: passed$", deepspeed(*arguments), re.MULTILINE)


def test_deepspeeds_launcher_trains(two_ranks):
    said = deepspeed(*two_ranks, "examples/deepspeed_train.py", "--stage", 1, "--compression", "minmax:bits=4")
    first, last = re.search(r"loss ([\d.]+) at first, ([\d.]+) after", said).groups()
    assert float(last) < float(first)


def test_the_group_of_init_distributed_is_deepspeeds(two_ranks, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(INIT_BY_QCCL)
    said = deepspeed(*two_ranks, program)
    assert sorted(re.findall("^joined .*", said, re.MULTILINE)) == ["joined 2 qccl 2 0", "joined 2 qccl 2 1"]
