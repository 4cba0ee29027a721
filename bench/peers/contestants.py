"""The libraries that bench/peers/compare runs, and how each is started on a network so that it uses only that one.

All are bound alike: each rank to a core, or none. Open MPI's ranks yield while they wait if there are too few cores.
"""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from bench.networks import ROOT, SHARED_MEMORY, Network

BUILD = ROOT / "build" / "bench"
SHARED = "shared"  # qccl:shared: uncompressed, in buffers from Communicator::allocate()
PORT = 29500  # the hosts of a shaped network are new: all their ports are free


@dataclass(frozen=True)
class Launch:
    """Processes to start. Rank 0 prints its measurements to the standard output of one of them."""

    commands: list[list[str]]
    environments: list[dict[str, str]]


def bound(net: Network, program: list[str]) -> list[str]:
    """Binds all libraries' ranks alike. Each launcher binds differently, or not at all if ranks outnumber cores."""
    if not net.bind:
        return program
    cores = sorted(os.sched_getaffinity(0))
    cases = " ".join(f"{rank}) core={cores[rank % len(cores)]};;" for rank in range(net.ranks))
    local = "${OMPI_COMM_WORLD_LOCAL_RANK:-${MPI_LOCALRANKID:-${LOCAL_RANK:-$PMI_RANK}}}"
    return ["sh", "-c", f'case {local} in {cases} esac; exec taskset -c "$core" "$@"', "sh", *program]


def launch_ranks(
    net: Network, program: list[str], environment: dict[str, str], port: int = PORT, ranks_a_host: int = 1
) -> Launch:
    """Ranks that find each other by RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. `net`: of one rank for each host."""
    program = bound(net, program)
    if not net.shaped:
        return Launch([[str(ROOT / "build/qccl"), "run", "-n", str(net.ranks), "--", *program]], [environment])
    job = {"WORLD_SIZE": str(net.ranks * ranks_a_host), "LOCAL_WORLD_SIZE": str(ranks_a_host), "OMP_NUM_THREADS": "1",
           "MASTER_ADDR": net.address(1), "MASTER_PORT": str(port)}
    ranks = range(net.ranks * ranks_a_host)
    return Launch([net.on_host(rank // ranks_a_host + 1, program) for rank in ranks],
                  [environment | job | {"RANK": str(rank), "LOCAL_RANK": str(rank % ranks_a_host)} for rank in ranks])


def launch_qccl(net: Network, work: list[str], compression: str, build: Path) -> Launch:
    transport = "shm" if net.name == SHARED_MEMORY else "tcp"
    shared = ["--shared-buffers"] if compression == SHARED else []
    environment = {"QCCL_TRANSPORT": transport, "QCCL_COMPRESSION": "none" if shared else compression}
    return launch_ranks(net, [str(build / "bench" / "peers_qccl"), *shared, *work], environment)


def launch_gloo(net: Network, work: list[str]) -> Launch:
    program = [str(ROOT / ".venv/bin/python"), str(ROOT / "bench/peers/gloo.py"), *work]
    return launch_ranks(net, program, {"GLOO_SOCKET_IFNAME": net.interface})


def hosts(net: Network) -> str:
    return ",".join(net.address(rank + 1) for rank in range(net.ranks))


def launch_openmpi(net: Network, work: list[str]) -> Launch:
    command = ["mpirun.openmpi", "--oversubscribe", "--mca", "pml", "ob1"]
    command += ["--bind-to", "none"]
    if net.name == SHARED_MEMORY:
        command += ["--mca", "btl", "vader,self"]
    else:
        command += ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", net.interface]
    if net.shaped:
        command += ["--mca", "plm_rsh_agent", net.agent, "--mca", "oob_tcp_if_include", net.interface]
        command += ["--host", hosts(net)]
        if net.ranks > (os.cpu_count() or 1):  # each host sees all cores, but the hosts share them
            command += ["--mca", "mpi_yield_when_idle", "1"]
    command += ["-n", str(net.ranks), *bound(net, [str(BUILD / "peers_mpi.openmpi"), *work])]
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return Launch([net.on_host(1, command)], [root])


def launch_mpich(net: Network, work: list[str]) -> Launch:
    """Debian builds MPICH on UCX (until 12) or on libfabric, so the variables of both are set."""
    command = ["mpirun.mpich"]
    environment = {}
    if net.name != SHARED_MEMORY:
        environment = {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": net.interface,
                       "FI_PROVIDER": "tcp", "FI_TCP_IFACE": net.interface}
    if net.shaped:
        command += ["-launcher", "ssh", "-launcher-exec", net.agent, "-iface", net.interface, "-hosts", hosts(net)]
    command += ["-n", str(net.ranks), *bound(net, [str(BUILD / "peers_mpi.mpich"), *work])]
    return Launch([net.on_host(1, command)], [environment])


def build_of(name: str) -> Path:
    """The build folder of qccl or qccl@FOLDER."""
    return Path(name.partition(":")[0].partition("@")[2] or ROOT / "build")


def is_qccl(name: str) -> bool:
    """This checkout's; another build of QCCL (qccl@FOLDER) counts as a peer."""
    return name.split(":")[0] == "qccl"


def compression(name: str) -> str:
    """The codec in a name such as qccl:minmax:bits=8."""
    return name.partition(":")[2] or "none"


PEERS = {"openmpi": launch_openmpi, "mpich": launch_mpich, "gloo": launch_gloo}


def launch(name: str, net: Network, work: list[str]) -> Launch:
    """The processes to start for the contestant; `work` is the command line of a rank."""
    if name in PEERS:
        return PEERS[name](net, work)
    return launch_qccl(net, work, compression(name), build_of(name))


def contestant(name: str) -> str:
    """Checks a name from the command line."""
    if name not in PEERS and not re.fullmatch(r"qccl(@[^:]+)?(:.+)?", name):
        raise ValueError(f"'{name}' is none of {', '.join(PEERS)}, qccl, qccl:shared, qccl:CODEC and qccl@FOLDER")
    if name not in PEERS and "@" in name and not (program := build_of(name) / "bench" / "peers_qccl").exists():
        raise ValueError(f"there is no {program}: build its target peers_qccl")
    return name


def prepare(names: list[str]) -> None:
    """Installs and compiles the contestants' dependencies."""
    mpis = [name for name in names if name in ("openmpi", "mpich")]
    if mpis:
        subprocess.run([ROOT / "scripts/install_packages.sh", "bench/peers/packages.txt"], check=True)
    if (ROOT / "build/build.ninja").exists() and (ROOT / ".venv/bin/python").exists():
        targets = ["--target", "qccl_program", "peers_qccl"]
        subprocess.run(["cmake", "--build", ROOT / "build", *targets], check=True, stdout=subprocess.DEVNULL)
    else:
        subprocess.run(["make", "-C", ROOT, "build"], check=True)
    for name in mpis:
        source, target = ROOT / "bench/peers/mpi.c", BUILD / f"peers_mpi.{name}"
        subprocess.run([f"mpicc.{name}", "-std=gnu11", "-O2", "-o", target, source], check=True)


def versions(names: list[str]) -> dict[str, str]:
    """The versions of the compared libraries."""
    asked = {"openmpi": ["mpirun.openmpi", "--version"], "mpich": ["mpichversion"],
             "gloo": [str(ROOT / ".venv/bin/python"), "-c", "import torch; print('torch', torch.__version__)"]}
    commands = {name: asked.get(name) or [str(build_of(name) / "qccl"), "version"]
                for name in sorted({name.partition(":")[0] for name in names})}
    return {name: subprocess.check_output(command, text=True).splitlines()[0].strip()
            for name, command in commands.items()}

