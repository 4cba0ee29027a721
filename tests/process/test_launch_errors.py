"""Mistakes in starting a job: one error that names the mistake, in time, and an exit code that is not 0."""

import socket
import sys

import pytest
from job import free_port
from launchers import execute, mpirun, start_all
from program import PROGRAM

DOCTOR = (PROGRAM, "doctor", "--timeout", "3")

TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}
TWO_HOSTS = OPEN_MPI | {"OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}
PMI = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
SLURM = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "localhost"}


def without(variables: dict[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in variables.items() if name not in names}


# Name: variables, words of the error.
WRONG_VARIABLES = {
    "rank alone": ({"RANK": "0"}, ["RANK is set but WORLD_SIZE is not"]),
    "world alone": ({"WORLD_SIZE": "2"}, ["WORLD_SIZE is set but RANK is not"]),
    "master alone": ({"MASTER_ADDR": "a"}, ["MASTER_ADDR is set but RANK is not"]),
    "rank is a word": (TORCHRUN | {"RANK": "one"}, ['RANK is "one"', "0 to 1023"]),
    "rank is negative": (TORCHRUN | {"RANK": "-1"}, ['RANK is "-1"']),
    "rank beyond the world": (TORCHRUN | {"RANK": "2"}, ["RANK is 2 but WORLD_SIZE is 2"]),
    "world of none": (TORCHRUN | {"WORLD_SIZE": "0"}, ['WORLD_SIZE is "0"', "1 to 1024"]),
    "world too large": (TORCHRUN | {"WORLD_SIZE": "5000"}, ['WORLD_SIZE is "5000"', "1 to 1024"]),
    "port out of range": (TORCHRUN | {"MASTER_PORT": "65536"}, ['MASTER_PORT is "65536"', "1 to 65535"]),
    "no master": (without(TORCHRUN, "MASTER_ADDR"), ["MASTER_ADDR is not set: set MASTER_ADDR to rank 0's host"]),
    "no port": (without(TORCHRUN, "MASTER_PORT"), ["MASTER_PORT is not set"]),
    "master that does not exist": (TORCHRUN | {"MASTER_ADDR": "no-such.invalid"}, ['"no-such.invalid"', "MASTER_ADDR"]),
    "stale rank under Open MPI": (TORCHRUN | {"RANK": "0"} | OPEN_MPI, ["RANK is 0", "OMPI_COMM_WORLD_RANK is 1"]),
    "stale world under Slurm": (SLURM | {"WORLD_SIZE": "8"}, ["SLURM_NTASKS is 2", "WORLD_SIZE is 8"]),
    "a world of one under srun": (
        SLURM | {"SLURM_STEP_ID": "0", "WORLD_SIZE": "1"},
        ["SLURM_NTASKS is 2", "WORLD_SIZE is 1"],
    ),
    "MVAPICH2 without a master": (
        {"MV2_COMM_WORLD_RANK": "0", "MV2_COMM_WORLD_SIZE": "2"},
        ["MASTER_ADDR is not set", "mpirun_rsh"],
    ),
    "nodes of a torchrun with several ranks": (
        {"PET_NODE_RANK": "1", "PET_NNODES": "2", "PET_NPROC_PER_NODE": "8"},
        ["PET_NODE_RANK is 1", "PET_NNODES is 2", "start it by torchrun"],
    ),
    "one node of several": (
        {"NODE_RANK": "0", "NNODES": "2"},
        ["NODE_RANK is 0", "NNODES is 2", "one of several", "unset both"],
    ),
    "two MPIs": (OPEN_MPI | PMI | {"PMI_RANK": "0"}, ["OMPI_COMM_WORLD_RANK is 1", "PMI_RANK is 0"]),
    "Open MPI without its daemon": (OPEN_MPI, ["MASTER_ADDR is not set", "mpirun -x MASTER_ADDR=HOST"]),
    "Open MPI with half of its variables": (
        without(OPEN_MPI, "OMPI_COMM_WORLD_SIZE"),
        ["OMPI_COMM_WORLD_RANK is set but OMPI_COMM_WORLD_SIZE is not"],
    ),
    "PMI without its connection": (PMI, ["PMI_RANK is set but PMI_FD is not", "-genv MASTER_ADDR"]),
    "PMI with a closed connection": (PMI | {"PMI_FD": "987"}, ["PMI_FD=987", "is not open in this process"]),
    "PMIx alone": ({"PMIX_RANK": "0"}, ["PMIX_RANK is set but the world size is not"]),
    "Slurm with a list that is none": (SLURM | {"SLURM_JOB_NODELIST": "n[1-"}, ["SLURM_JOB_NODELIST", '"n[1-"']),
    "Slurm without a list": (without(SLURM, "SLURM_JOB_NODELIST"), ["MASTER_ADDR is not set", "before srun"]),
    "AzureML without a master": (TWO_HOSTS | {"AZUREML_EXPERIMENT_ID": "e"}, ["AZ_BATCH_MASTER_NODE"]),
    "SageMaker without hosts": (TWO_HOSTS | {"SM_TRAINING_ENV": "{}", "SM_HOSTS": "[]"}, ['SM_HOSTS is "[]"']),
    "no such interface": (TORCHRUN | {"QCCL_SOCKET_IFNAME": "=no0"}, ['filter "=no0"', "unset QCCL_SOCKET_IFNAME"]),
    "no such interface for NCCL": (
        TORCHRUN | {"NCCL_SOCKET_IFNAME": "no"},
        ['filter "no"', "unset NCCL_SOCKET_IFNAME"],
    ),
}


def assert_one_error(done, *words: str) -> None:
    broken = [line for line in done.stdout.splitlines() if line.startswith("BROKEN")]
    assert done.returncode not in (0, None) and len(broken) == 1, done.stdout
    told = done.stdout[done.stdout.index("BROKEN") :]
    for word in words:
        assert word in told, told


@pytest.mark.parametrize(("variables", "words"), WRONG_VARIABLES.values(), ids=WRONG_VARIABLES.keys())
def test_wrong_variables(variables, words):
    done = execute(*DOCTOR, **variables)
    assert_one_error(done, *words)


def torchrun_rank(rank: int, world: int, port: int) -> tuple[tuple, dict[str, str]]:
    return DOCTOR, TORCHRUN | {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_PORT": str(port)}


def test_two_processes_of_one_rank_are_both_named():
    port = free_port()
    done = start_all(*(torchrun_rank(rank, 3, port) for rank in (0, 1, 1)))
    twice = [each for each in done if "rank 1" in each.stdout and "another process" in each.stdout]
    assert twice, "".join(each.stdout for each in done)
    for each in done:
        assert_one_error(each)


def test_ranks_that_disagree_about_the_world_size():
    port = free_port()
    for done in start_all(torchrun_rank(0, 2, port), torchrun_rank(1, 3, port)):
        assert_one_error(done, "the world size is 3 on rank 1", "but 2 on rank 0", "WORLD_SIZE")


def test_a_port_that_is_in_use():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = execute(*DOCTOR, **TORCHRUN | {"RANK": "0", "MASTER_PORT": str(taken.getsockname()[1])})
    assert_one_error(done, "rank 0 of 2", "uses MASTER_PORT", "choose another port")


def test_a_master_that_no_process_serves():
    port = free_port()
    assert_one_error(
        execute(*DOCTOR, **TORCHRUN | {"MASTER_PORT": str(port)}),
        f"can't reach the store at 127.0.0.1:{port}", "is rank 0 running?",
    )  # fmt: skip


def test_a_missing_rank():
    (done,) = start_all(torchrun_rank(0, 2, free_port()))
    assert_one_error(done, "rank 1 did not appear within 3.0 s")


@pytest.mark.parametrize("name", ["Open MPI", "MPICH"])
def test_a_missing_rank_of_mpirun(name):
    """Rank 0 joins, rank 1 is another program. They are one job, so mpirun reports the failure."""
    work = "[ ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} = 1 ] || exec " + " ".join(map(str, DOCTOR))
    done = execute(*mpirun(name), "-n", 2, "sh", "-c", work)
    assert_one_error(done, "rank 1 did not appear within 3.0 s", "unix socket @qccl/")


def test_a_missing_rank_0_of_mpirun():
    work = "[ $OMPI_COMM_WORLD_RANK = 0 ] || exec " + " ".join(map(str, DOCTOR))
    done = execute(*mpirun("Open MPI"), "-n", 2, "sh", "-c", work)
    assert_one_error(done, "can't reach the store at unix socket @qccl/", "is rank 0 running?")


def test_mpich_with_its_connection_closed_by_a_program_in_between():
    command = [*map(str, DOCTOR)]
    script = f"import subprocess; raise SystemExit(subprocess.run({command}, close_fds=True).returncode)"
    done = execute(*mpirun("MPICH"), "-n", 2, sys.executable, "-c", script)
    assert done.returncode != 0
    assert "is not open in this process: a program between the launcher and this one has closed it" in done.stdout
