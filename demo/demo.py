"""Trains a small GPT on several ranks over a slow link: uncompressed, then with 8 and 4 bits per element.

The ranks are processes of this machine that talk TCP; with --device cuda they train on GPUs. QCCL limits what each
sends to --link-rate, so that the wire is the bottleneck as between machines. Ends with a table, report.png and
report.json.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

import devices
import report
import text

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
STEPS = 120
QUICK_STEPS = 20
LINK_RATE = "100mbit"
# The compressions to train with, by their names in the report.
COMPRESSIONS = {"uncompressed": "none", "8 bit": "minmax:bits=8", "4 bit": "minmax:bits=4"}
SILENCE_LIMIT_SECONDS = 90


class DemoError(Exception):
    """The demo can't go on; the message says why and what to do."""


def main() -> int:
    arguments = parse_arguments()
    console = Console()
    try:
        devices.check(arguments.device)
        text.load(arguments.data)
        console.print(introduction(arguments))
        result = report.Result.collect(run(arguments, console), COMPRESSIONS, arguments.ranks, arguments.link_rate)
    except (DemoError, devices.DeviceError, text.TextError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    arguments.output.mkdir(parents=True, exist_ok=True)
    result.write_json(arguments.output / "report.json")
    result.draw(arguments.output / "report.png")
    console.print(result.table())
    print(f"Report: {arguments.output / 'report.png'} and {arguments.output / 'report.json'}")
    print(result.conclusion())
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_STEPS} steps, about a minute in all")
    parser.add_argument("--steps", type=int, help=f"training steps of each run (default {STEPS})")
    parser.add_argument("--ranks", type=int, default=4, help="processes (default 4)")
    parser.add_argument(
        "--link-rate",
        default=LINK_RATE,
        help=f"what each rank may send, for example 1gbit; default {LINK_RATE}, so slow that communication is the "
        "bottleneck for a model that this machine can train; none for no limit",
    )
    parser.add_argument(
        "--device",
        choices=devices.KINDS,
        default="cpu",
        help="cpu (default), or cuda: GPUs, dealt to the ranks in turn; several ranks share one if there are fewer",
    )
    parser.add_argument("--data", help="text file to train on (default: the sources of Python's standard library)")
    parser.add_argument("--output", type=Path, default=HERE, help="folder of the report (default demo/)")
    arguments = parser.parse_args()
    if arguments.steps is None:
        arguments.steps = QUICK_STEPS if arguments.quick else STEPS
    if arguments.steps < 1 or arguments.ranks < 1:
        parser.error("--steps and --ranks must be at least 1")
    return arguments


def introduction(arguments: argparse.Namespace) -> str:
    training = (
        f"{arguments.ranks} ranks train a small GPT on {text.describe(arguments.data)}, {arguments.steps} steps, on "
        f"{devices.describe(arguments.device, arguments.ranks)}"
    )
    if arguments.link_rate == "none":
        return f"{training}, over TCP on an unpaced link."
    return (
        f"{training}, over TCP on a link paced to {arguments.link_rate} a rank. The default, {LINK_RATE}, is chosen so "
        "that communication is the bottleneck, not this machine's processors; --link-rate changes it."
    )


def run(arguments: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    """Trains on all ranks and returns the events."""
    with tempfile.TemporaryDirectory(prefix="qccl-demo-") as folder:
        events_file, log_file = Path(folder) / "events", Path(folder) / "log"
        events_file.touch()
        with launched(command(arguments, events_file), environment(arguments), log_file) as launcher:
            with progress_bars(console, arguments.steps) as (progress, tasks):
                events = follow(launcher, events_file, lambda event: show(event, progress, tasks))
            if launcher.returncode != 0 or not events or events[-1]["event"] != "end":
                raise DemoError(
                    f"training ended with exit status {launcher.returncode}. The ranks' last words:\n{tail(log_file)}"
                )
    return events


def command(arguments: argparse.Namespace, events_file: Path) -> list[str]:
    program = [sys.executable, str(HERE / "train.py"), "--steps", str(arguments.steps), "--events", str(events_file)]
    program += ["--device", arguments.device]
    if arguments.data:
        program += ["--data", arguments.data]
    program += ["--compressions", *COMPRESSIONS.values()]
    launcher = ROOT / "build" / "qccl"
    if not launcher.exists():
        raise DemoError(f"{launcher} is not built: run `make build`")
    return [str(launcher), "run", "-n", str(arguments.ranks), "--", *program]


def environment(arguments: argparse.Namespace) -> dict[str, str]:
    values = {**os.environ, "QCCL_TRANSPORT": "tcp", "OMP_NUM_THREADS": "1"}
    values.pop("QCCL_COMPRESSION", None)
    if arguments.link_rate != "none":
        values["QCCL_LINK_RATE"] = arguments.link_rate
    return values


@contextmanager
def launched(arguments: list[str], variables: dict[str, str], log_file: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The launcher in its own process group, all of which has ended afterwards."""
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            arguments, env=variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def follow(launcher: subprocess.Popen[bytes], events_file: Path, on_event: Any) -> list[dict[str, Any]]:
    """Reads events as they arrive, until the launcher ends."""
    events: list[dict[str, Any]] = []
    heard = time.monotonic()
    with events_file.open() as file:
        while True:
            ended = launcher.poll() is not None
            position = file.tell()
            line = file.readline()
            if line.endswith("\n"):
                events.append(json.loads(line))
                on_event(events[-1])
                heard = time.monotonic()
            elif ended:
                return events
            elif time.monotonic() - heard > SILENCE_LIMIT_SECONDS:
                raise DemoError(f"no rank made progress for {SILENCE_LIMIT_SECONDS} s")
            else:
                file.seek(position)
                time.sleep(0.05)


@contextmanager
def progress_bars(console: Console, steps: int) -> Iterator[tuple[Progress, dict[str, TaskID]]]:
    columns = (
        TextColumn("{task.description:<12}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[loss]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        yield (
            progress,
            {spec: progress.add_task(name, total=steps, start=False, loss="") for name, spec in COMPRESSIONS.items()},
        )


def show(event: dict[str, Any], progress: Progress, tasks: dict[str, TaskID]) -> None:
    task = tasks.get(event.get("compression", ""))
    if task is None:
        return
    if event["event"] == "validation":
        progress.start_task(task)
        progress.update(task, loss=f"validation loss {event['loss']:.3f}")
    elif event["event"] == "step":
        progress.update(task, completed=event["step"] + 1)


def tail(log_file: Path, lines: int = 30) -> str:
    return "\n".join(log_file.read_text(errors="replace").splitlines()[-lines:])


if __name__ == "__main__":
    sys.exit(main())
