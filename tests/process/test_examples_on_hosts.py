"""Training programs from examples/ on two hosts, which are network namespaces, under torchrun."""

import os

import pytest
from job import free_port
from launchers import TORCHRUN, cluster, start_all
from program import ROOT

DDP = (ROOT / "examples" / "torch" / "ddp.py", "--steps", 11)
PYTHON_PATH = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")} if "PYTHONPATH" in os.environ else {}


def losses(output: str) -> list[float]:
    return [float(line.split()[3]) for line in output.splitlines() if line.startswith("step")]


@pytest.mark.parametrize(
    ("program", "says"),
    [(DDP, "step"), (("--no-python", ROOT / "build" / "examples" / "data_parallel"), "loss")],
    ids=["Python", "C++"],
)
def test_torchrun_on_two_hosts_trains(program, says, tmp_path):
    port = free_port()
    with cluster(2, tmp_path) as (on_host, _):
        shared = ("--nnodes", 2, "--nproc-per-node", 2, "--master-addr", "10.77.0.1", "--master-port", port)
        hosts = [(*on_host(host + 1), *TORCHRUN, *shared, "--node-rank", host, *program) for host in (0, 1)]
        done = start_all(*((command, {**PYTHON_PATH, "OMP_NUM_THREADS": "1"}) for command in hosts))
    assert [each.returncode for each in done] == [0, 0], done[0].stdout + done[1].stdout
    assert says in done[0].stdout, done[0].stdout
    if says == "step":
        first, *_, last = losses(done[0].stdout)
        assert last < first
