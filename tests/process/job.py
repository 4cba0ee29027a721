"""Ranks as real processes for tests: started here, watched with deadlines, always ended."""

import contextlib
import os
import pathlib
import queue
import signal
import socket
import subprocess
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("QCCL_BUILD", ROOT / "build"))
WORKER = BUILD / "tests" / "fault_worker"
PATIENCE = 60  # seconds that a healthy job never needs


def free_port():
    """A port that was free a moment ago; rank 0 binds it again at once."""
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Rank:
    """One process, its lines as they come and when they came."""

    def __init__(self, rank, world, port, arguments, environment):
        variables = {"RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": world,
                     "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        self.rank = rank
        self.process = subprocess.Popen(
            [str(WORKER), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            start_new_session=True,
            env={**os.environ, **{k: str(v) for k, v in {**variables, **environment}.items()}})
        self.lines = queue.Queue()
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put((time.monotonic(), line.strip()))
        self.lines.put((time.monotonic(), "EOF"))

    def expect(self, *beginnings, seconds=PATIENCE):
        """The first line that begins so, with its time; fails on the process' end or the deadline."""
        deadline = time.monotonic() + seconds
        seen = []
        while True:
            try:
                moment, line = self.lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"rank {self.rank}: no {beginnings} within {seconds} s, only {seen}") from None
            if line.startswith(beginnings):
                return moment, line
            seen.append(line)
            if line == "EOF":
                raise AssertionError(f"rank {self.rank} ended without {beginnings}: {seen}")

    def release(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def send_signal(self, number):
        os.kill(self.process.pid, number)

    def end(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE)
        self.thread.join(PATIENCE)
        self.process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()


@contextlib.contextmanager
def job(world, arguments, transport="auto", environment=None, missing=(), port=None):
    """Starts `world` ranks; `arguments` is one list for all or a function of the rank."""
    port = port or free_port()
    variables = {"QCCL_TRANSPORT": transport, "QCCL_INIT_TIMEOUT": "30", **(environment or {})}
    ranks = [None] * world
    try:
        for rank in range(world):
            if rank not in missing:
                own = arguments(rank) if callable(arguments) else arguments
                ranks[rank] = Rank(rank, world, port, own, variables)
        yield ranks
    finally:
        for rank in ranks:
            if rank is not None:
                rank.end()
