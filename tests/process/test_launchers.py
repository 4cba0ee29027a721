"""qccl::init() under every launcher: the real launcher if it is installed, otherwise with hand-made variables."""

import random

import pytest
from job import free_port
from launchers import OPEN_MPI, TORCHRUN, cluster, execute, mpirun, reached, said, start_all
from program import PROGRAM

DOCTOR = (PROGRAM, "doctor")


def assert_joined(done, source: str, world: int) -> None:
    assert done.returncode == 0, done.stdout + (done.stderr or "")
    assert said(done.stdout, "rank").startswith(f"0 of {world}, "), done.stdout
    assert source in said(done.stdout, "rank"), done.stdout
    assert [line.split()[2] for line in reached(done.stdout)] == [str(rank) for rank in range(world)]


# ---- installed launchers


def test_torchrun():
    done = execute(*TORCHRUN, "--standalone", "--nproc-per-node=2", "--no-python", *DOCTOR)
    assert_joined(done, "torchrun", 2)
    assert "served by the launcher" in said(done.stdout, "rendezvous")


@pytest.mark.parametrize(("name", "source"), [("Open MPI", "Open MPI"), ("MPICH", "PMI (MPICH")])
@pytest.mark.parametrize("ranks", [1, 3])
def test_mpirun_on_one_host_needs_no_options(name, source, ranks):
    done = execute(*mpirun(name), "-n", ranks, *DOCTOR)
    assert_joined(done, source, ranks)
    assert f"local rank 0 of {ranks}" in said(done.stdout, "rank")
    assert said(done.stdout, "not torchrun") == "RANK and WORLD_SIZE are not set"
    if ranks > 1:
        assert said(done.stdout, "rendezvous").startswith("unix socket @qccl/")


@pytest.mark.parametrize("name", ["Open MPI", "MPICH"])
def test_jobs_of_one_launcher_at_once_do_not_meet(name, tmp_path):
    """Each mpirun has a separate TMPDIR: Open MPI's mpiruns may fail if they make their common folder at once."""
    jobs = []
    for ranks in (2, 3):
        folder = tmp_path / str(ranks)
        folder.mkdir()
        jobs.append(((*mpirun(name), "-n", ranks, *DOCTOR), OPEN_MPI | {"TMPDIR": str(folder)}))
    for ranks, done in zip((2, 3), start_all(*jobs), strict=True):
        assert len(reached(done.stdout)) == ranks, done.stdout


@pytest.mark.parametrize(
    ("name", "forward"), [("Open MPI", ("-x", "{name}={value}")), ("MPICH", ("-genv", "{name}", "{value}"))]
)
def test_mpirun_with_a_master_of_the_users(name, forward):
    port = str(free_port())
    master = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    given = [word.format(name=key, value=value) for key, value in master.items() for word in forward]
    done = execute(*mpirun(name), "-n", 2, *given, *DOCTOR)
    assert done.returncode == 0, done.stdout + done.stderr
    assert said(done.stdout, "rendezvous") == f"127.0.0.1:{port}, served by this rank"


def mpirun_on_hosts(name, agent):
    """Two ranks, each on a separate host."""
    if name == "MPICH":
        launcher = ("-launcher", "ssh", "-launcher-exec", agent, "-iface", "eth0")
        return (*mpirun(name), *launcher, "-hosts", "10.77.0.1,10.77.0.2", "-n", 2)
    launcher = ("--mca", "plm_rsh_agent", agent, "--mca", "oob_tcp_if_include", "eth0")
    return (*mpirun(name), *launcher, "--host", "10.77.0.1,10.77.0.2", "-n", 2)


@pytest.mark.parametrize("name", ["Open MPI", "MPICH"])
def test_mpirun_on_several_hosts_needs_no_options(name, tmp_path):
    mpirun(name)
    with cluster(2, tmp_path) as (on_host, agent):
        done = execute(*on_host(1), *mpirun_on_hosts(name, agent), *DOCTOR)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ["tcp to rank 1" in reached(done.stdout)[0], "tcp to rank 0" in reached(done.stdout)[1]] == [True, True]
    assert "local rank 0 of 1" in said(done.stdout, "rank")
    expected = "10.77.0.1:" if name == "Open MPI" else "at rank 0, whose address comes from the launcher (PMI)"
    assert said(done.stdout, "rendezvous").startswith(expected)


def test_open_mpi_started_where_no_rank_0_is_says_what_to_give(tmp_path):
    mpirun("Open MPI")
    with cluster(3, tmp_path) as (on_host, agent):
        command = mpirun_on_hosts("Open MPI", agent)
        failed = execute(*on_host(3), *command, *DOCTOR, "--timeout", 10)
        given = execute(
            *on_host(3), *command, "-x", "MASTER_ADDR=10.77.0.1", "-x", f"MASTER_PORT={free_port()}", *DOCTOR
        )
    assert failed.returncode != 0
    assert "rank 0 is not on the host of mpirun (10.77.0.3)" in failed.stdout
    assert "mpirun -x MASTER_ADDR=HOST" in failed.stdout
    assert given.returncode == 0, given.stdout + given.stderr


# ---- launchers whose variables are made by hand


def open_mpi_variables(rank: int, world: int) -> dict[str, str]:
    return {
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_SIZE": str(world),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(rank),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(world),
    }


def slurm_variables(rank: int, world: int, **more: str) -> dict[str, str]:
    return {
        "SLURM_PROCID": str(rank),
        "SLURM_NTASKS": str(world),
        "SLURM_LOCALID": str(rank),
        "SLURM_NODEID": "0",
        "SLURM_JOB_NODELIST": "localhost",
        "SLURM_STEP_ID": "0",
        **more,
    }


def test_slurm_derives_the_port_from_the_job():
    job = {"SLURM_JOB_ID": str(random.randrange(1, 2**31))}
    done = start_all(*((DOCTOR, slurm_variables(rank, 3, **job)) for rank in range(3)))
    assert_joined(done[0], "Slurm (srun)", 3)
    assert "local rank 0 of 3" in said(done[0].stdout, "rank")
    address, port = said(done[0].stdout, "rendezvous").split(",")[0].split(":")
    assert address == "localhost" and 10000 <= int(port) < 30000


def test_slurm_on_two_hosts_expands_the_list(tmp_path):
    with cluster(2, tmp_path) as (on_host, _):
        # Addresses as names: they differ only in the list's brackets.
        job = {"SLURM_JOB_NODELIST": "10.77.0.[1-2]", "SLURM_TASKS_PER_NODE": "1(x2)", "SLURM_JOB_ID": "77"}
        ranks = [slurm_variables(rank, 2, **job) | {"SLURM_LOCALID": "0", "SLURM_NODEID": str(rank)} for rank in (0, 1)]
        results = start_all(*(((*on_host(rank + 1), *DOCTOR), ranks[rank]) for rank in (0, 1)))
    assert_joined(results[0], "Slurm (srun)", 2)
    assert said(results[0].stdout, "rendezvous").startswith("10.77.0.1:")
    assert "local rank 0 of 1" in said(results[0].stdout, "rank")


def test_azureml_on_one_node():
    port = str(free_port())
    azure = {"AZUREML_EXPERIMENT_ID": "e", "AZ_BATCHAI_MPI_MASTER_NODE": "localhost", "MASTER_PORT": port}
    done = start_all(*((DOCTOR, open_mpi_variables(rank, 2) | azure) for rank in (0, 1)))
    assert_joined(done[0], "AzureML", 2)
    assert said(done[0].stdout, "rendezvous").startswith(f"localhost:{port}")


def test_azureml_on_two_nodes_avoids_docker(tmp_path):
    with cluster(2, tmp_path) as (on_host, _):
        azure = {"AZUREML_EXPERIMENT_ID": "e", "AZ_BATCH_MASTER_NODE": "10.77.0.1:6000"}
        local = {"OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}
        ranks = [open_mpi_variables(rank, 2) | azure | local for rank in (0, 1)]
        results = start_all(*(((*on_host(rank + 1), *DOCTOR), ranks[rank]) for rank in (0, 1)))
    assert_joined(results[0], "AzureML", 2)
    assert said(results[0].stdout, "rendezvous").startswith("10.77.0.1:6105")
    assert "lo 127.0.0.1" not in said(results[0].stdout, "interfaces")


def test_sagemaker():
    sagemaker = {"SM_TRAINING_ENV": "{}", "SM_HOSTS": '["algo-1"]', "MASTER_PORT": str(free_port())}
    done = start_all(*((DOCTOR, open_mpi_variables(rank, 2) | sagemaker) for rank in (0, 1)))
    assert_joined(done[0], "SageMaker", 2)


def test_a_single_process():
    done = execute(*DOCTOR)
    assert_joined(done, "a single process", 1)
    for name in ("torchrun", "AzureML", "SageMaker", "Open MPI", "PMI", "PMIx", "Slurm"):
        assert said(done.stdout, f"not {name}").endswith("not set")


# ---- launchers inside launchers


def test_torchrun_under_slurm_is_torchruns_job():
    outer = slurm_variables(0, 2, SLURM_JOB_ID="1")
    done = execute(*TORCHRUN, "--standalone", "--nproc-per-node=2", "--no-python", *DOCTOR, **outer)
    assert_joined(done, "torchrun", 2)
    assert said(done.stdout, "not Slurm") == "SLURM_PROCID=0, SLURM_NTASKS=2, but torchrun comes first"


def test_qccl_run_under_mpirun_is_a_job_of_its_own():
    done = execute(*mpirun("Open MPI"), "-n", 2, PROGRAM, "run", "-n", 2, "--", *DOCTOR)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("\nrank ") == 2
    assert sorted(line.split()[2] for line in reached(done.stdout)) == ["0", "0", "1", "1"]
