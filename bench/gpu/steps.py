"""Commands that run one after the other, each with a limit of time, whose results are written after each of them.

In a folder: `results.jsonl`, a line for each step; `log.txt`, what all of them printed; `table.txt`, the table of what
there is so far. Whatever ends the run, or the machine, what was measured until then is there.
"""

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

OK, FAILED, LEFT_OUT = "ok", "FAILED", "left out"
NO_GPU = 3
KILL_SECONDS = 5  # for a killed process to end; one that a driver holds may not
LEAST_SECONDS = 2  # with less time left no step begins


class NoGpu(Exception):
    """There is no GPU; the message says what the driver or its loader said."""


@dataclass(frozen=True)
class Step:
    name: str
    command: list[object]
    limit: float  # seconds
    variables: dict[str, str] = field(default_factory=dict)
    good: tuple[int, ...] = (0,)  # exit codes
    writes_json: bool = False  # takes --json FILE, whose document becomes the result's
    reads: Callable[[str], Any] | None = None  # makes the result's document of what the command prints


@dataclass
class Result:
    part: str
    name: str
    outcome: str
    why: str = ""
    seconds: float = 0.0
    document: Any = None
    output: str = ""


class Runner:
    """`table` makes a text of all results so far. `environment` is that of all commands."""

    def __init__(self, folder: Path, environment: dict[str, str], table: Callable[[list[Result]], str]) -> None:
        self.folder = folder
        self.environment = environment
        self.results: list[Result] = []
        self._table = table
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("results.jsonl", "log.txt", "table.txt"):
            (folder / name).write_text("")

    def of(self, part: str) -> list[Result]:
        return [result for result in self.results if result.part == part]

    def run(self, part: str, step: Step, end: float) -> Result:
        """Runs the step until its limit or `end`, by time.monotonic(). Raises NoGpu if the first program finds none."""
        limit = min(step.limit, end - time.monotonic())
        if limit < LEAST_SECONDS:
            return self.leave_out(part, step.name, "for lack of time")
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="qccl-gpu-") as scratch:
            file = Path(scratch) / "figures.json"
            command = [str(word) for word in step.command] + (["--json", str(file)] if step.writes_json else [])
            code, output = self._run(command, step.variables, limit, Path(scratch) / "output")
            document = json.loads(file.read_text()) if file.exists() else None
        if step.reads is not None:
            document = step.reads(output)
        if code == NO_GPU and not any(result.outcome == OK for result in self.results):
            raise NoGpu(output.strip().splitlines()[-1] if output.strip() else step.name)
        result = Result(part, step.name, OK, seconds=round(time.monotonic() - start, 2))
        result.document, result.output = document, output
        if code is None:
            result.outcome, result.why = FAILED, f"did not end within {limit:.0f} s"
        elif code not in step.good:
            result.outcome, result.why = FAILED, f"exit code {code}: {last_line(output)}"
        return self._add(result, " ".join(command))

    def leave_out(self, part: str, name: str, why: str) -> Result:
        return self._add(Result(part, name, LEFT_OUT, why), "")

    def fail(self, part: str, name: str, why: str) -> Result:
        return self._add(Result(part, name, FAILED, why), "")

    def _run(
        self, command: list[str], variables: dict[str, str], limit: float, file: Path
    ) -> tuple[int | None, str]:
        """The exit code, None if the command did not end, and what it printed."""
        environment = self.environment | variables
        with file.open("wb") as output:
            try:
                process = subprocess.Popen(
                    command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                    start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                return 127, str(error)
            code: int | None = None
            try:
                code = process.wait(limit)
            except subprocess.TimeoutExpired:
                pass
            finally:
                kill_group(process)
        return code, file.read_text(errors="replace")

    def _add(self, result: Result, command: str) -> Result:
        self.results.append(result)
        with (self.folder / "log.txt").open("a") as log:
            log.write(f"==== {result.part}: {result.name}: {result.outcome} {result.why}\n{command}\n{result.output}\n")
        line = asdict(result)
        del line["output"]
        with (self.folder / "results.jsonl").open("a") as lines:
            lines.write(json.dumps(line) + "\n")
        (self.folder / "table.txt").write_text(self._table(self.results))
        why = f": {result.why}" if result.why else ""
        print(f"{result.part}: {result.name}: {result.outcome}{why}, {result.seconds:.1f} s", flush=True)
        return result


def kill_group(process: subprocess.Popen) -> None:
    """Ends what the command has left running, and the command."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    try:
        process.wait(KILL_SECONDS)
    except subprocess.TimeoutExpired:
        pass


def last_line(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it printed nothing"
