"""torch's programs on two hosts, which are network namespaces: examples under torchrun, and QCCL in the place of gloo
or nccl, with the variables that users set for those, and what a job says of itself."""

import os
import sys
import textwrap

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


# ---- in the place of another backend

PROGRAM = """
    import torch, torch.distributed as dist

    def sent():
        rows = [line.split() for line in open("/proc/net/dev").readlines()[2:]]
        return {row[0].strip(":"): int(row[9]) for row in rows}

    dist.init_process_group("gloo")
    before = sent()
    dist.all_reduce(torch.ones(400_000))
    dist.barrier()
    print(*(f"{name}={bytes - before[name]}" for name, bytes in sent().items()))
    dist.destroy_process_group()
"""


def run_program(folder, hosts, world=2, **variables):
    """A rank for each command in `hosts`: its output, with standard error."""
    program = folder / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    job = {
        "WORLD_SIZE": str(world),
        "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": "1",
        **PYTHON_PATH,
        **variables,
    }
    commands = [
        ((*host, sys.executable, program), {**job, "RANK": str(rank), "LOCAL_RANK": "0"})
        for rank, host in enumerate(hosts)
    ]
    return start_all(*commands)


def outputs(done):
    assert [each.returncode for each in done] == [0] * len(done), "\n".join(each.stdout for each in done)
    return [each.stdout for each in done]


@pytest.mark.parametrize(
    ("variables", "used"),
    [
        ({}, "eth0"),
        ({"GLOO_SOCKET_IFNAME": "eth1"}, "eth1"),
        ({"GLOO_SOCKET_IFNAME": "eth1", "NCCL_SOCKET_IFNAME": "eth0"}, "eth1"),
        ({"GLOO_SOCKET_IFNAME": "eth1", "QCCL_SOCKET_IFNAME": "eth0"}, "eth0"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else value,
)
def test_gloos_variable_chooses_the_interface(variables, used, tmp_path):
    with cluster(2, tmp_path) as (on_host, _):
        names = [on_host(host)[2] + f"-{host}" for host in (1, 2)]
        links = f"ip link add eth1 netns {names[0]} type veth peer name eth1 netns {names[1]}"
        commands = [links]
        for host, name in enumerate(names, 1):
            commands += [f"ip -n {name} addr add 10.78.0.{host}/24 dev eth1", f"ip -n {name} link set eth1 up"]
        outputs(start_all((("sh", "-ec", "; ".join(commands)), {})))
        ranks = run_program(
            tmp_path, [on_host(1), on_host(2)], QCCL_REPLACE="gloo", MASTER_ADDR="10.77.0.1", **variables
        )
        for output in outputs(ranks):
            sent = dict(word.split("=") for word in output.splitlines()[-1].split())
            other = {"eth0": "eth1", "eth1": "eth0"}[used]
            assert int(sent[used]) > 800_000 > 100_000 > int(sent[other]), output


def run_here(folder, **variables):
    return run_program(folder, [(), ()], MASTER_ADDR="127.0.0.1", **variables)


def lines_of_qccl(output):
    return [line for line in output.splitlines() if line.startswith("qccl: ")]


def test_rank_0_says_what_the_job_is(tmp_path):
    first, second = outputs(run_here(tmp_path, QCCL_REPLACE="gloo", QCCL_COMPRESSION="int:bits=8"))
    line, end = lines_of_qccl(first)
    assert end.startswith("qccl: info: rank 0 of 2: ") and " by compression; " in end
    assert line.startswith("qccl: info: 2 ranks on 1 host over shm, compression int:bits=8"), line
    assert line.endswith(", in place of gloo")
    assert lines_of_qccl(second) == []


def test_the_log_level_silences_it(tmp_path):
    done = outputs(run_here(tmp_path, QCCL_REPLACE="gloo", QCCL_LOG="warning"))
    assert lines_of_qccl("".join(done)) == []


def test_variables_that_do_not_count_are_named(tmp_path):
    ignored = {"GLOO_DEVICE_TRANSPORT": "UV", "NCCL_IB_DISABLE": "1", "NCCL_VERSION": "2.28", "QCCL_LOG": "warning"}
    first, second = outputs(run_here(tmp_path, QCCL_REPLACE="gloo,nccl", **ignored))
    assert lines_of_qccl(first) == [
        "qccl: warning: in gloo's place, QCCL ignores GLOO_DEVICE_TRANSPORT",
        "qccl: warning: in nccl's place, QCCL ignores NCCL_IB_DISABLE",
    ]
    assert lines_of_qccl(second) == []


def test_what_gloo_would_encrypt_is_not_sent_in_clear(tmp_path):
    for each in run_here(tmp_path, QCCL_REPLACE="gloo", GLOO_DEVICE_TRANSPORT="TCP_TLS"):
        assert each.returncode != 0 and "asks for encryption" in each.stdout and "QCCL_KEY_FILE" in each.stdout
    outputs(run_here(tmp_path, QCCL_REPLACE="gloo", GLOO_DEVICE_TRANSPORT="TCP_TLS", QCCL_KEY="a key of sixteen bytes"))
