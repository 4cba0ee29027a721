"""Shared by the launcher tests: ranks started by hand, MPI's own launchers, network namespaces as hosts."""

import contextlib
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from program import DEADLINE, ROOT, environment

NETNS = ROOT / "scripts" / "netns.sh"
TORCHRUN = (sys.executable, "-m", "torch.distributed.run")
# Lets root use mpirun, for example in a container.
OPEN_MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
# --oversubscribe, because the tests' ranks usually share cores.
MPIRUN = {"Open MPI": ("mpirun.openmpi", "--oversubscribe"), "MPICH": ("mpirun.mpich",)}


def mpirun(name: str) -> tuple[str, ...]:
    """The command of an MPI's launcher; without it the test is skipped."""
    command = MPIRUN[name]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{name} is not installed: scripts/install_packages.sh scripts/packages_launchers.txt")
    return command


def execute(*command: object, **variables: str) -> subprocess.CompletedProcess:
    """Runs a command to its end."""
    return subprocess.run(
        [*map(str, command)],
        env=environment(**OPEN_MPI, **variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )


def start_all(*ranks: tuple[tuple, dict[str, str]], cwd: Path | None = None) -> list[subprocess.CompletedProcess]:
    """Starts a process per pair of command and variables, all at once; returns their results (stderr in stdout)."""
    processes = []
    try:
        for command, variables in ranks:
            process = subprocess.Popen(
                [*map(str, command)],
                env=environment(**variables),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                cwd=cwd,
            )
            processes.append(process)
        outputs = [process.communicate(timeout=DEADLINE)[0] for process in processes]
        return [
            subprocess.CompletedProcess(process.args, process.returncode, output)
            for process, output in zip(processes, outputs, strict=True)
        ]
    finally:
        for process in processes:
            process.kill()
            process.wait()


@contextlib.contextmanager
def cluster(hosts: int, folder):
    """Network namespaces as hosts: a function that returns the command of a host (1 ..), and a replacement for ssh."""
    check = subprocess.run([NETNS, "check"], capture_output=True, text=True)
    if check.returncode != 0:
        pytest.skip(check.stderr.strip())
    name = f"t{uuid.uuid4().hex[:8]}"
    agent = folder / "agent"
    agent.write_text(f'#!/bin/sh\nexec {NETNS} agent {name} "$@"\n')
    agent.chmod(0o755)
    subprocess.run([NETNS, "up", name, str(hosts), "1gbit"], check=True, capture_output=True)
    try:
        yield (lambda host: (NETNS, "exec", name, str(host))), agent
    finally:
        subprocess.run([NETNS, "down", name], check=True, capture_output=True)


def said(output: str, topic: str) -> str:
    """The text of `qccl doctor` for a topic; the first of several lines."""
    for line in output.splitlines():
        if line.startswith(topic) and line[len(topic) :].startswith("  "):
            return line[len(topic) :].strip()
    raise AssertionError(f"nothing about {topic!r} in:\n{output}")


def reached(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith("reached")]
