"""Runs every command of docs/launchers.md and of the launchers' own pages as written there, with network namespaces as
hosts: each launcher starts the same C++ program and the same torch program on 4 ranks.

Slurm is not available here: a short script in place of srun starts the tasks with srun's variables. DeepSpeed's
launcher is tested where DeepSpeed is installed, in tests/integration.
"""

import os
import re
import stat
import sys

import pytest
from job import free_port
from launchers import OPEN_MPI as AS_ROOT
from launchers import TORCHRUN, cluster, mpirun, reached, start_all
from program import PROGRAM, ROOT

PAGES = {path.stem: path.read_text() for path in (ROOT / "docs" / "launchers").glob("*.md")}
OWN = {name: text for name, text in PAGES.items() if name != "deepspeed"}
OVERVIEW = (ROOT / "docs" / "launchers.md").read_text()
NEEDS_HOSTS = re.compile("node1|srun -N")
OPEN_MPI = AS_ROOT | {"OMPI_MCA_rmaps_base_oversubscribe": "1"}  # for machines with only 2 cores
PROGRAMS = ("build/examples/interface", "examples/torch/all_reduce.py")

SRUN = """#!/bin/sh
# srun [-N HOSTS] -n TASKS PROGRAM: equally many tasks on each host; without -N all on this one
hosts=1 SLURM_JOB_NODELIST=localhost
[ "$1" != -N ] || { hosts=$2 SLURM_JOB_NODELIST="10.77.0.[1-$2]"; shift 2; }
each=$(($2 / hosts))
export SLURM_NTASKS=$2 SLURM_TASKS_PER_NODE="$each(x$hosts)" SLURM_JOB_ID=$$ SLURM_STEP_ID=0 SLURM_JOB_NODELIST
shift 2
run_task() {
  export SLURM_PROCID=$1 SLURM_NODEID=$(($1 / each)) SLURM_LOCALID=$(($1 % each))
  shift
  if [ $hosts = 1 ]; then "$@"; else "$SITE_AGENT" 10.77.0.$((SLURM_NODEID + 1)) "$@"; fi
}
others=
for task in $(seq 1 $((SLURM_NTASKS - 1))); do
  run_task $task "$@" & others="$others $!"
done
run_task 0 "$@" || exit
for task in $others; do wait $task || exit; done
"""


def commands(text: str) -> list[str]:
    return [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]


COMMANDS = list(dict.fromkeys(command for text in (OVERVIEW, *OWN.values()) for command in commands(text)))


def put(folder, name: str, text: str) -> None:
    file = folder / name
    file.write_text(text)
    file.chmod(file.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def path(tmp_path):
    """A PATH that has the pages' programs."""
    put(tmp_path, "torchrun", f'#!/bin/sh\nexec {" ".join(TORCHRUN)} "$@"\n')
    put(tmp_path, "qccl", f'#!/bin/sh\nexec {PROGRAM} "$@"\n')
    put(tmp_path, "srun", SRUN)
    return f"{tmp_path}:{os.environ['PATH']}"


@pytest.mark.parametrize("name", PAGES)
def test_each_page_starts_both_programs_and_is_linked(name):
    for program in PROGRAMS:
        assert any(program in command for command in commands(PAGES[name])), program
    assert f"(launchers/{name}.md)" in OVERVIEW


def own(text: str, folder) -> str:
    """Replaces the ports, hosts and folders of the pages, which are examples."""
    text = re.sub(r"\b295\d\d\b", str(free_port()), text)
    text = text.replace("--log-dir logs", f"--log-dir {folder}/logs")
    text = text.replace("build/examples", str(ROOT / "build" / "examples")).replace(".venv/bin/python", sys.executable)
    return text.replace("node1", "10.77.0.1").replace("node2", "10.77.0.2")


def need(command: str) -> None:
    for name, program in (("Open MPI", "mpirun.openmpi"), ("MPICH", "mpirun.mpich")):
        if program in command:
            mpirun(name)


def assert_done(command: str, done) -> None:
    """Each of the programs prints how many ranks have joined, and fails if a sum is wrong."""
    assert done.returncode == 0, done.stdout
    if any(program in command for program in PROGRAMS):
        assert re.search(r"^(\[0\]: )?4 ranks: passed$", done.stdout, re.MULTILINE), done.stdout
    elif "doctor" in command:
        assert len(reached(done.stdout)) == 2, done.stdout


@pytest.mark.parametrize("command", [command for command in COMMANDS if not NEEDS_HOSTS.search(command)])
def test_commands_for_one_host(command, path, tmp_path):
    need(command)
    (done,) = start_all((("sh", "-c", own(command, tmp_path)), OPEN_MPI | {"PATH": path}), cwd=ROOT)
    assert_done(command, done)


@pytest.mark.parametrize("command", [command for command in COMMANDS if NEEDS_HOSTS.search(command)])
def test_commands_for_several_hosts(command, path, tmp_path):
    need(command)
    with cluster(2, tmp_path) as (on_host, agent):
        # A site sets this up once: the way to reach other hosts, and their names.
        site = OPEN_MPI | {
            "PATH": path,
            "OMPI_MCA_plm_rsh_agent": str(agent),
            "HYDRA_LAUNCHER": "ssh",
            "HYDRA_LAUNCHER_EXEC": str(agent),
            "HYDRA_IFACE": "eth0",
            "SITE_AGENT": str(agent),
        }
        here = own(command, tmp_path)
        ranks = [((*on_host(1), "sh", "-c", here), site)]
        if "--node-rank 0" in command:  # torchrun is started by hand on each host
            there = here.replace("--node-rank 0", "--node-rank 1")
            ranks.append(((*on_host(2), "sh", "-c", there), site))
        done = start_all(*ranks, cwd=ROOT)
    assert_done(command, done[0])
    if "doctor" in command:
        assert "tcp to rank 1" in done[0].stdout
