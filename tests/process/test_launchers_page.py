"""Every command of docs/launchers.md is run as it stands there, hosts being network namespaces.

Slurm can't be had here: a script of a few lines in srun's place starts the tasks with its variables.
"""

import os
import re
import stat

import pytest
from job import free_port
from launchers import OPEN_MPI, TORCHRUN, cluster, mpirun, reached, start_all
from program import PROGRAM, ROOT

PAGE = (ROOT / "docs" / "launchers.md").read_text()
HOSTFILE = re.search(r"```text\n(# hosts.txt\n.*?)```", PAGE, re.DOTALL).group(1)
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
NEEDS_HOSTS = re.compile("node1|hosts.txt")

SRUN = """#!/bin/sh
# srun -n TASKS PROGRAM: all tasks on this host
export SLURM_NTASKS=$2 SLURM_JOB_ID=$$ SLURM_STEP_ID=0 SLURM_JOB_NODELIST=localhost SLURM_NODEID=0
shift 2
SLURM_PROCID=1 SLURM_LOCALID=1 "$@" & other=$!
SLURM_PROCID=0 SLURM_LOCALID=0 "$@" && wait $other
"""


def put(folder, name: str, text: str) -> None:
    file = folder / name
    file.write_text(text)
    file.chmod(file.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def path(tmp_path):
    """A PATH on which the page's programs are."""
    put(tmp_path, "torchrun", f'#!/bin/sh\nexec {" ".join(TORCHRUN)} "$@"\n')
    put(tmp_path, "qccl", f'#!/bin/sh\nexec {PROGRAM} "$@"\n')
    put(tmp_path, "srun", SRUN)
    return f"{tmp_path}:{os.environ['PATH']}"


def test_the_page_has_commands_for_what_can_be_started():
    assert {re.sub(r"^\w+=\S+ ", "", command).split()[0] for command in COMMANDS} >= {
        "torchrun", "mpirun.openmpi", "mpirun.mpich", "srun", "qccl"}  # fmt: skip


def own(text: str) -> str:
    """Ports and hosts on the page are examples."""
    text = re.sub(r"\b295\d\d\b", str(free_port()), text)
    return text.replace("node1", "10.77.0.1").replace("node2", "10.77.0.2")


def need(command: str) -> None:
    for name, program in (("Open MPI", "mpirun.openmpi"), ("MPICH", "mpirun.mpich")):
        if program in command:
            mpirun(name)


@pytest.mark.parametrize("command", [command for command in COMMANDS if not NEEDS_HOSTS.search(command)])
def test_commands_for_one_host(command, path):
    need(command)
    (done,) = start_all((("sh", "-c", own(command)), OPEN_MPI | {"PATH": path}))
    assert done.returncode == 0 and len(reached(done.stdout)) == 2, done.stdout


@pytest.mark.parametrize("command", [command for command in COMMANDS if NEEDS_HOSTS.search(command)])
def test_commands_for_several_hosts(command, path, tmp_path):
    need(command)
    with cluster(2, tmp_path) as (on_host, agent):
        # What a site has set up once: how to get to other hosts, and their names.
        site = OPEN_MPI | {
            "PATH": path,
            "OMPI_MCA_plm_rsh_agent": str(agent),
            "HYDRA_LAUNCHER": "ssh",
            "HYDRA_LAUNCHER_EXEC": str(agent),
            "HYDRA_IFACE": "eth0",
        }
        command = f"cd {tmp_path} && {own(command)}"
        put(tmp_path, "hosts.txt", own(HOSTFILE))
        put(tmp_path, "ssh", f'#!/bin/sh\nshift 2\nexec {agent} "$@"\n')  # -o BatchMode=yes
        ranks = [((*on_host(1), "sh", "-c", command), site)]
        if "--node-rank 0" in command:  # of torchrun each host's is started by hand
            there = command.replace("--node-rank 0", "--node-rank 1")
            ranks.append(((*on_host(2), "sh", "-c", there), site))
        done = start_all(*ranks)
    assert done[0].returncode == 0 and len(reached(done[0].stdout)) == 2, done[0].stdout
    assert "tcp to rank 1" in done[0].stdout
