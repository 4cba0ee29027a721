"""qccl.init_distributed(): under every launcher, without mpi4py; and called again, late or with wrong arguments."""

import sys

import pytest
from job import free_port
from launchers import OPEN_MPI, TORCHRUN, cluster, execute, mpirun, start_all
from program import PROGRAM
from test_launchers import open_mpi_variables, slurm_variables

ADD_UP = """
import os, sys
import torch, torch.distributed as dist, qccl
qccl.init_distributed(*sys.argv[1:])
ones = torch.ones(4)
dist.all_reduce(ones)
assert "mpi4py" not in sys.modules
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
words = ["sum", str(int(ones[0])), dist.get_backend(), *(os.environ[name] for name in names)]
os.write(1, (" ".join(words) + "\\n").encode())
dist.destroy_process_group()
"""
PYTHON = (sys.executable, "-c", ADD_UP)


def sums(*outputs: str) -> list[str]:
    return sorted(line for output in outputs for line in output.splitlines() if line.startswith("sum "))


def expected(world: int, local_world: int | None = None, backend: str = "qccl") -> list[str]:
    local_world = local_world or world
    return [f"sum {world} {backend} {rank} {world} {rank % local_world} {local_world}" for rank in range(world)]


# ---- launchers


def test_torchrun(tmp_path):
    file = tmp_path / "program.py"
    file.write_text(ADD_UP)
    done = execute(*TORCHRUN, "--standalone", "--nproc-per-node=2", file)
    assert sums(done.stdout) == expected(2), done.stderr


def test_qccl_run():
    done = execute(PROGRAM, "run", "-n", 3, "--", *PYTHON)
    assert sums(done.stdout) == expected(3), done.stderr


@pytest.mark.parametrize("backend", ["qccl", "gloo"])
@pytest.mark.parametrize("name", ["Open MPI", "MPICH"])
def test_mpirun(name, backend):
    done = execute(*mpirun(name), "-n", 2, *PYTHON, backend)
    assert sums(done.stdout) == expected(2, backend=backend), done.stdout + done.stderr


def test_slurm():
    job = {"SLURM_JOB_ID": str(free_port())}
    done = start_all(*((PYTHON, slurm_variables(rank, 3, **job)) for rank in range(3)))
    assert sums(*(each.stdout for each in done)) == expected(3), done[0].stdout


def test_slurm_on_two_hosts(tmp_path):
    with cluster(2, tmp_path) as (on_host, _):
        job = {"SLURM_JOB_NODELIST": "10.77.0.[1-2]", "SLURM_TASKS_PER_NODE": "1(x2)", "SLURM_JOB_ID": "77"}
        ranks = [slurm_variables(rank, 2, **job) | {"SLURM_LOCALID": "0", "SLURM_NODEID": str(rank)} for rank in (0, 1)]
        done = start_all(*(((*on_host(rank + 1), *PYTHON), ranks[rank]) for rank in (0, 1)))
    assert sums(*(each.stdout for each in done)) == expected(2, 1), done[0].stdout


def test_azureml():
    azure = {"AZUREML_EXPERIMENT_ID": "e", "AZ_BATCHAI_MPI_MASTER_NODE": "localhost", "MASTER_PORT": str(free_port())}
    done = start_all(*((PYTHON, open_mpi_variables(rank, 2) | azure) for rank in (0, 1)))
    assert sums(*(each.stdout for each in done)) == expected(2), done[0].stdout


def test_deepspeeds_variables():
    port = str(free_port())
    deepspeed = {"WORLD_SIZE": "2", "LOCAL_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    code = ADD_UP.replace('"LOCAL_WORLD_SIZE"', '"LOCAL_SIZE"')
    ranks = [deepspeed | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in (0, 1)]
    done = start_all(*(((sys.executable, "-c", code), variables) for variables in ranks))
    assert sums(*(each.stdout for each in done)) == expected(2), done[0].stdout


def test_a_missing_local_rank_is_found_where_all_ranks_are_here():
    variables = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    done = start_all(*((PYTHON, variables | {"RANK": str(rank)}) for rank in (0, 1)))
    assert sums(*(each.stdout for each in done)) == expected(2), done[0].stdout


def test_a_single_process():
    done = execute(*PYTHON)
    assert sums(done.stdout) == expected(1), done.stderr


# ---- calls in an unexpected state

BEGIN = "import os, logging, torch, torch.distributed as dist, qccl\nlogging.basicConfig(level=logging.INFO)\n"


def says(code: str, **variables: str) -> str:
    done = execute(sys.executable, "-c", BEGIN + code, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_a_second_call_changes_nothing_and_a_destroyed_group_can_be_made_again():
    said = says("""
qccl.init_distributed()
first = dist.group.WORLD
qccl.init_distributed()
qccl.init_distributed("gloo", dist_init_required=True)
assert dist.group.WORLD is first and dist.get_backend() == "qccl"
qccl.init_distributed(dist_init_required=False)
dist.destroy_process_group()
qccl.init_distributed("gloo")
assert dist.get_backend() == "gloo"
""")
    assert "INFO:qccl:1 ranks with backend qccl, ranks from a single process" in said
    assert "INFO:qccl:there is a process group already, with backend qccl" in said
    assert "WARNING:qccl:the process group that exists has backend qccl, not gloo: it stays" in said


def test_torchs_own_group_is_left_as_it_is():
    said = says("""
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
qccl.init_distributed(verbose=False)
assert dist.get_backend() == "gloo" and "RANK" not in os.environ
""")
    assert "INFO" not in said


def test_the_configuration_says_whether_there_is_a_log(tmp_path):
    """The configuration also applies if a group exists, as in DeepSpeed; without log settings it does nothing."""
    file = tmp_path / "deepspeed.json"
    file.write_text('{"comms_logger": {"enabled": true, "prof_ops": ["barrier"], "prof_all": false}}')
    says(f"""
from types import SimpleNamespace
log = qccl.comms_logger
qccl.init_distributed(config={{"train_batch_size": 8}})
assert not log.enabled
qccl.init_distributed(config={str(file)!r})
assert log.enabled and log.prof_ops == ["barrier"] and not log.prof_all
qccl.init_distributed(config={{"comms_logger": {{"enabled": False}}}})
assert not log.enabled
dist.destroy_process_group()
def parsed(**settings):  # DeepSpeed's own DeepSpeedConfig has this
    section = SimpleNamespace(prof_all=True, prof_ops=[], verbose=False, debug=False, **settings)
    return SimpleNamespace(comms_config=SimpleNamespace(comms_logger_enabled=True, comms_logger=section))
qccl.init_distributed(config=parsed(enabled=True))
dist.barrier()
assert log.get_total_operations() == 1
qccl.init_distributed(config=SimpleNamespace(comms_config=SimpleNamespace(comms_logger_enabled=False)))
assert log.enabled
qccl.configure_log(parsed(enabled=False))
assert not log.enabled
""")


def test_wrong_calls_are_errors_that_say_what_to_do():
    says("""
def refusal(kind, *arguments, **settings):
    try:
        qccl.init_distributed(*arguments, **settings)
    except kind as error:
        assert not dist.is_initialized()
        return str(error)
    raise AssertionError("accepted")
assert "there is no process group yet" in refusal(RuntimeError, dist_init_required=False)
assert "must be a datetime.timedelta, got int" in refusal(TypeError, timeout=30)
assert "RANK expected, but not set" in refusal(ValueError, auto_mpi_discovery=False)
os.environ["RANK"] = "1"
assert "RANK is set but WORLD_SIZE is not" in refusal(ValueError)
os.environ.update(WORLD_SIZE="2", OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_SIZE="2")
assert "RANK is 1 but OMPI_COMM_WORLD_RANK is 0" in refusal(ValueError)
""")


def test_given_port_and_place_are_used():
    port = free_port()
    says(f"""
qccl.init_distributed(distributed_port={port})
assert os.environ["MASTER_PORT"] == "{port}"
dist.destroy_process_group()
for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
    del os.environ[name]
qccl.init_distributed(init_method="tcp://127.0.0.1:{free_port()}", rank=0, world_size=1)
assert dist.get_world_size() == 1 and "RANK" not in os.environ
""")


def test_ranks_that_do_not_come_are_named():
    code = BEGIN + "from datetime import timedelta\nqccl.init_distributed(timeout=timedelta(seconds=2))"
    lonely = slurm_variables(0, 2, SLURM_JOB_ID=str(free_port()))
    (done,) = start_all(((sys.executable, "-c", code), lonely | OPEN_MPI))
    assert done.returncode != 0 and "rank 1 did not appear within 2.0 s" in done.stdout
