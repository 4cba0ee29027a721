"""DeepSpeed's own launcher starts a program over the backend from a hostfile, and qccl.init_distributed() from it."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMIT_SECONDS = 500
# The engine then finds the process group that is there, as after deepspeed.init_distributed().
INIT_BY_QCCL = """
import os, deepspeed, torch, torch.distributed as dist, qccl
qccl.init_distributed()
deepspeed.init_distributed()
ones = torch.ones(3)
deepspeed.comm.all_reduce(ones)
words = [deepspeed.comm.get_world_size(), dist.get_backend(), int(ones[0]), os.environ["LOCAL_RANK"]]
print("joined", *words, flush=True)
"""


def deepspeed(hostfile: Path, *program: object) -> str:
    launcher = Path(sys.executable).parent / "deepspeed"
    done = subprocess.run(
        [sys.executable, launcher, "--hostfile", hostfile, "--no_ssh_check", *map(str, program)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_deepspeeds_launcher_trains(tmp_path):
    hostfile = tmp_path / "hosts.txt"
    hostfile.write_text("localhost slots=2\n")
    said = deepspeed(hostfile, "examples/deepspeed_train.py", "--stage", 1, "--compression", "minmax:bits=4")
    first, last = re.search(r"loss ([\d.]+) at first, ([\d.]+) after", said).groups()
    assert float(last) < float(first)


def test_the_group_of_init_distributed_is_deepspeeds(tmp_path):
    hostfile = tmp_path / "hosts.txt"
    hostfile.write_text("localhost slots=2\n")
    program = tmp_path / "program.py"
    program.write_text(INIT_BY_QCCL)
    said = deepspeed(hostfile, program)
    assert sorted(re.findall("^joined .*", said, re.MULTILINE)) == ["joined 2 qccl 2 0", "joined 2 qccl 2 1"]
