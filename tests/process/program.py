"""The built `qccl` program, jobs that tests start with it, and the processes that remain of them."""

import functools
import os
import re
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("QCCL_PROGRAM") or ROOT / "build" / "qccl")
DEADLINE = 120  # seconds until a test gives up on a process; nothing waits for it to pass

MARK = "QCCL_TEST_JOB"


def _has_devices() -> bool:
    cache = PROGRAM.parent / "CMakeCache.txt"
    text = cache.read_text() if cache.exists() else ""
    return re.search(r"^QCCL_DEVICES:\w+=(OFF|0|NO|FALSE|N)$", text, re.MULTILINE | re.IGNORECASE) is None


DEVICES = _has_devices()
needs_devices = pytest.mark.skipif(not DEVICES, reason="built without devices (QCCL_DEVICES=OFF)")

# Under nohup or in the background these are ignored, and the jobs would ignore them too.
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)

# In front of every rank's code: a print() that writes each line at once and whole.
PREAMBLE = """
import os, signal, subprocess, sys
rank = os.environ["RANK"]
def print(*words): os.write(1, (" ".join(map(str, words)) + "\\n").encode())
"""


def environment(**variables: str) -> dict[str, str]:
    """This process's environment without the variables that a launcher around the tests may have set."""
    ours = "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT OMP_NUM_THREADS PYTHONUNBUFFERED"
    families = ("QCCL_", "NCCL_SOCKET_", "TORCHELASTIC_", "OMPI_COMM_", "PMI", "MPI_LOCAL", "SLURM_", "AZ", "SM_")
    families += ("MV2_COMM_", "JSM_", "FLUX_", "PALS_", "HOROVOD_", "PET_", "GROUP_")
    kept = {k: v for k, v in os.environ.items() if k not in ours.split() and not k.startswith(families)}
    return kept | variables


def run(*arguments: object, **variables: str) -> subprocess.CompletedProcess:
    """Runs the program to its end; standard input is empty."""
    command = [str(PROGRAM), *map(str, arguments)]
    return subprocess.run(
        command,
        env=environment(**variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )


@functools.cache
def algorithms(collective: str) -> tuple[str, ...]:
    """The names of the collective's algorithms, in the order in which the program lists them."""
    done = run("plan", "check", "--collective", collective, "--max-world", 1)
    assert done.returncode == 0, done.stderr
    return tuple(re.findall(rf"^ +{collective} +(\w+) ", done.stdout, re.M))


class Job:
    """A running `qccl run` whose ranks execute Python code. The job ends with the test."""

    def __init__(
        self, ranks: int, code: str, *flags: str, wrapper: tuple[str, ...] = (), stdin: int = subprocess.DEVNULL,
        **variables: str,
    ):  # fmt: skip
        self.mark = variables.pop(MARK, uuid.uuid4().hex)
        command = [*wrapper, str(PROGRAM), "run", "-n", str(ranks), *flags, "--", sys.executable, "-c", PREAMBLE + code]
        self.process = subprocess.Popen(
            command,
            env=environment(**variables, **{MARK: self.mark}),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, *_: object) -> None:
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.kill()
        self.process.communicate()

    @property
    def pid(self) -> int:
        return self.process.pid

    def read_lines(self, count: int) -> list[str]:
        """The next lines of standard output, sorted; ranks print in any order."""
        return sorted(self.process.stdout.readline().rstrip("\n") for _ in range(count))

    def end(self, text: str | None = None) -> tuple[int, str, str]:
        """Waits until every process that holds the pipes has ended; returns exit code, rest of stdout, stderr."""
        out, err = self.process.communicate(text, timeout=DEADLINE)
        return self.process.returncode, out, err

    def processes(self) -> list[int]:
        """Every process that inherited the job's environment."""
        found = []
        for folder in Path("/proc").iterdir():
            try:
                if folder.name.isdigit() and f"{MARK}={self.mark}".encode() in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
            except OSError:
                pass  # gone, or not ours
        return found

    def ranks(self) -> dict[int, int]:
        """The processes that are ranks, by rank. Their children have the same variables but are younger."""
        found = {}
        for pid in sorted(self.processes(), reverse=True):
            try:
                entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            found |= {int(entry[len(b"RANK=") :]): pid for entry in entries if entry.startswith(b"RANK=")}
        return found

    def children(self, pid: int) -> list[int]:
        return [child for child in self.processes() if parent_of(child) == pid]


def stat_fields(pid: int) -> list[str]:
    """/proc/PID/stat from the state on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def parent_of(pid: int) -> int:
    try:
        return int(stat_fields(pid)[1])
    except OSError:
        return -1


def state_of(pid: int) -> str:
    try:
        return stat_fields(pid)[0]
    except OSError:
        return "gone"
