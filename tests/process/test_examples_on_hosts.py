"""Training programs from examples/ on two hosts, which are network namespaces, under launchers that reach both."""

import os
import sys

import pytest
from job import free_port
from launchers import TORCHRUN, cluster, start_all
from program import PROGRAM, ROOT

DDP = (ROOT / "examples" / "torch" / "ddp.py", "--steps", 11)
PYTHON_PATH = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")} if "PYTHONPATH" in os.environ else {}


def losses(output: str) -> list[float]:
    return [float(line.split()[3]) for line in output.splitlines() if line.startswith("step")]


def test_torchrun_on_two_hosts_trains(tmp_path):
    port = free_port()
    with cluster(2, tmp_path) as (on_host, _):
        shared = ("--nnodes", 2, "--nproc-per-node", 2, "--master-addr", "10.77.0.1", "--master-port", port)
        hosts = [(*on_host(host + 1), *TORCHRUN, *shared, "--node-rank", host, *DDP) for host in (0, 1)]
        done = start_all(*((command, {**PYTHON_PATH, "OMP_NUM_THREADS": "1"}) for command in hosts))
    assert [each.returncode for each in done] == [0, 0], done[0].stdout + done[1].stdout
    first, *_, last = losses(done[0].stdout)
    assert last < first


@pytest.mark.parametrize(
    ("program", "says"),
    [((sys.executable, *DDP), "step"), ((ROOT / "build" / "examples" / "data_parallel",), "loss")],
    ids=["Python", "C++"],
)
def test_qccl_run_on_two_hosts_trains(program, says, tmp_path):
    with cluster(2, tmp_path) as (on_host, agent):
        command = (PROGRAM, "run", "--hosts", "10.77.0.1:2,10.77.0.2:2", "--ssh", agent, "--", *program)
        (done,) = start_all(((*on_host(1), *command), PYTHON_PATH))
    assert done.returncode == 0 and says in done.stdout, done.stdout
