"""`qccl ps`: its description of ranks that hang, seen from outside."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import threading

import pytest
from program import PROGRAM, Job, run
from test_run import wait_until


def busy(count: int) -> str:
    """Code of a rank that makes all_reduces forever, of about `count` elements."""
    sizes = ["-b", str(4 * count), "-e", str(5 * count), "-i", "4"]
    direct = ["--algorithm", "sra"]  # in which every rank waits for all others
    flags = [*sizes, *direct, "-w", "0", "-c", "0", "-n", "1000000"]
    return f"os.execv({str(PROGRAM)!r}, ['qccl', 'perf', 'all_reduce', *{flags}])"


LATE = """
import torch, torch.distributed as dist
dist.init_process_group("qccl")
if rank == "0":
    print("joined")
    sys.stdin.readline()
dist.barrier()
"""


def rows(job: Job) -> dict[int, str]:
    """The text for each of the job's ranks; other jobs may run on the machine."""
    text = run("ps", "--wait", 0.5).stdout
    found = re.findall(r"^ +(\d+) +(\d+)  (.*(?:\n {16,}.*)*)", text, re.MULTILINE)
    said = {int(pid): (int(rank), rest) for rank, pid, rest in found}
    return {rank: said[pid][1] for rank, pid in job.ranks().items() if pid in said and said[pid][0] == rank}


def number_in(text: str) -> int:
    return int(re.search(r"number (\d+) of 'world'", text).group(1))


def seconds_in(text: str) -> float:
    return float(re.search(r"for ([\d.]+) s", text).group(1))


@pytest.mark.parametrize(("transport", "count"), [("shm", 1000), ("shm", 1 << 20), ("tcp", 1 << 20)])
def test_a_rank_that_is_stopped_is_whom_the_others_wait_for(transport, count):
    with Job(3, busy(count), "--transport", transport) as job:
        # All ranks have joined and passed the first barrier.
        wait_until(lambda: sum("all_reduce(" in row for row in rows(job).values()) == 3)
        os.kill(job.ranks()[1], signal.SIGSTOP)
        hangs = re.compile(
            rf"\w+ +all_reduce\(count={str(count)[0]}\d+, .* number \d+ of 'world' for [\d.]+ s, waits for rank 1, "
            r"got \d+ of \d+ bytes$"
        )

        def hanging(found: dict[int, str]) -> bool:
            stopped = re.fullmatch(r"stopped +does not answer", found.get(1, ""))
            return stopped and all(hangs.match(found.get(rank, "")) for rank in (0, 2))

        def numbers(found: dict[int, str]) -> list[int]:
            return [number_in(found[rank]) for rank in (0, 2)]

        # The first look may come before the ranks have received everything that rank 1 had sent.
        def hanging_still() -> list[int] | None:
            first, second = rows(job), rows(job)
            if not (hanging(first) and hanging(second) and numbers(first) == numbers(second)):
                return None
            return numbers(first) if seconds_in(first[0]) < seconds_in(second[0]) else None

        hung = wait_until(hanging_still)
        assert abs(hung[0] - hung[1]) <= 1, "rank 1 may have done its part of a call for one of them alone"
        os.kill(job.ranks()[1], signal.SIGCONT)
        wait_until(lambda: "number" in (found := rows(job).get(0, "")) and number_in(found) > hung[0])


def test_a_rank_that_has_not_made_the_call_is_in_none():
    with Job(3, LATE, stdin=subprocess.PIPE) as job:
        assert job.read_lines(1) == ["joined"]
        waiting = re.compile(r"\w+ +barrier.*, waits for rank 0, got .*")
        late = re.compile(r"\w+ +in no call; made \d+ of 'world'")

        def all_say_so() -> bool:
            found = rows(job)
            expected = {0: late, 1: waiting, 2: waiting}
            return all(row.fullmatch(found.get(rank, "")) for rank, row in expected.items())

        wait_until(all_say_so)
        assert job.end("go\n")[0] == 0


def test_ranks_that_have_ended_leave_nothing():
    with Job(2, busy(1000)) as job:
        wait_until(lambda: rows(job).keys() == {0, 1})
        ranks = job.ranks()
        os.kill(ranks[0], signal.SIGKILL)
        assert job.end()[0] == 128 + signal.SIGKILL
        text = run("ps", "--wait", 0.5).stdout
        assert not any(re.search(rf"^ +\d+ +{pid}  ", text, re.MULTILINE) for pid in ranks.values())


@contextlib.contextmanager
def impostor(job: str, answer: bytes, times: int = 1):
    """Listens like a QCCL rank, and sends `answer` this many times to the first client."""

    def serve() -> None:
        try:
            with listener.accept()[0] as asked:
                asked.recv(5)  # the question
                for _ in range(times):
                    asked.sendall(answer)
        except OSError:
            pass  # no client connected, or it stopped reading

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0qccl/status/{os.geteuid()}/{job}/1/0/{os.getpid()}")
        listener.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_what_is_printed_does_not_steer_the_terminal():
    group = {"name": "world", "failure": "\x1b[2Jfailed"}
    call = {"group": "\x1b]0;group\x07", "call": "\x9b5mcall", "operation": "\x1b[5m"}
    with impostor("\x1b[31mjob", json.dumps({"groups": [group], "calls": [call]}).encode()):
        result = run("ps", "--wait", 5)
    assert "[2Jfailed" in result.stdout and "[31mjob" in result.stdout
    assert not any(ord(c) < 32 and c != "\n" or 127 <= ord(c) < 160 for c in result.stdout)


def test_an_answer_without_end_is_none():
    with impostor("endless", b'{"groups": [' + b'{"name": "world"}, ' * 4096, times=10_000):
        result = run("ps", "--wait", 5)
    assert re.search(r"job endless, 1 rank\n.*\n.* does not answer\n", result.stdout)


def test_wrong_flags_and_help():
    result = run("ps", "--wait", "soon")
    assert result.returncode == 2 and "soon" in result.stderr
    assert "Examples:" in run("ps", "--help").stdout
