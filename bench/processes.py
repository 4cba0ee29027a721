"""The processes of a measurement: starts them, reads the rows that rank 0 prints for each measurement, ends them."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator


def start(commands: list[list[str]], environments: list[dict[str, str]]) -> list[subprocess.Popen]:
    return [
        subprocess.Popen(command, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         text=True, start_new_session=True)
        for command, environment in zip(commands, environments, strict=True)
    ]  # fmt: skip


def end(processes: list[subprocess.Popen], grace: float) -> bool:
    """Waits, then sends SIGTERM (an mpirun then ends its ranks), then SIGKILL. Returns True if no signal was needed."""
    clean = True
    for number in (0, signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            if process.poll() is None and number != 0:
                os.killpg(process.pid, number)
                clean = False
        deadline = time.monotonic() + grace
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
    return clean


def read_rows(processes: list[subprocess.Popen], count: int, timeout: float) -> Iterator[dict]:
    """The rows that rank 0 prints, as they come; fewer if all processes end or the timeout passes first."""
    lines: queue.Queue[str | None] = queue.Queue()

    def read(stream) -> None:
        for line in stream:
            lines.put(line)
        lines.put(None)

    for process in processes:
        threading.Thread(target=read, args=(process.stdout,), daemon=True).start()
    found, open_streams, deadline = 0, len(processes), time.monotonic() + timeout
    while found < count and open_streams > 0:
        try:
            line = lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        if line is None:
            open_streams -= 1
        elif line.startswith("ROW "):
            found += 1
            yield json.loads(line[4:])
        else:
            print(line, end="", file=sys.stderr)
