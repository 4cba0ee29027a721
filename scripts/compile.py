#!/usr/bin/env python3
"""Builds targets of a build folder and reports the progress: "compiling 41 of 160, about 2 minutes left".

    compile.py FOLDER [TARGET...]     without targets: what `cmake --build FOLDER` builds

A terminal gets one line that is updated, anything else a line every 15 seconds. Compiler messages are passed on. The
exit status is that of the build. JOBS sets the number of processes (default: all cores).
"""

import os
import re
import subprocess
import sys
import time

STATUS = re.compile(r"^\x1e(\d+)/(\d+) ")
INTERVAL_SECONDS = 15.0
# Before this many seconds and this share of the files, the pace predicts little: the slowest files come first.
PACE_SECONDS = 10.0
PACE_SHARE = 0.1


def time_left(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes < 1:
        return "less than a minute left"
    return f"about {minutes} minute{'s' if minutes > 1 else ''} left"


def progress_line(finished: int, total: int, elapsed: float) -> str:
    line = f"compiling {finished} of {total}"
    if elapsed < PACE_SECONDS or finished < PACE_SHARE * total or finished == total:
        return line
    return f"{line}, {time_left(elapsed / finished * (total - finished))}"


class ProgressWriter:
    """Writes progress lines to stdout; `clock` returns seconds."""

    def __init__(self, out, is_terminal: bool, clock=time.monotonic) -> None:
        self._out, self._is_terminal, self._clock = out, is_terminal, clock
        self._start = self._written = clock()
        self._line_open = False

    def on_output(self, line: str) -> None:
        """Takes a line of the build tool: a status, or text that is passed on."""
        match = STATUS.match(line)
        if match:
            self._on_status(int(match[1]), int(match[2]))
        elif line.strip() != "ninja: no work to do.":
            self.close_line()
            self._out.write(line)
            self._out.flush()

    def close_line(self) -> None:
        if self._line_open:
            self._out.write("\n")
            self._line_open = False

    def _on_status(self, finished: int, total: int) -> None:
        now = self._clock()
        line = progress_line(finished, total, now - self._start)
        if self._is_terminal:
            self._out.write(f"\r\x1b[K{line}")
            self._line_open = True
        elif finished < total and now - self._written < INTERVAL_SECONDS:
            return
        else:
            self._out.write(line + "\n")
        self._written = now
        self._out.flush()


def main() -> int:
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    folder, *targets = sys.argv[1:]
    command = ["cmake", "--build", folder, "--parallel", os.environ.get("JOBS") or str(os.cpu_count())]
    if targets:
        command += ["--target", *targets]
    writer = ProgressWriter(sys.stdout, sys.stdout.isatty())
    environment = {**os.environ, "NINJA_STATUS": "\x1e%f/%t "}
    build = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, errors="replace")
    assert build.stdout
    for line in build.stdout:
        writer.on_output(line)
    writer.close_line()
    return build.wait()


if __name__ == "__main__":
    sys.exit(main())
