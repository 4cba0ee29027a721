"""Runs a function on several ranks, each a forked process, and returns their results or exceptions.

Forking takes milliseconds; a new interpreter with torch takes seconds. Forking is safe here because the parent only
imports torch and starts no threads. Every run has a deadline, at which all ranks are killed and the test fails with the
Python stacks of those that hung.
"""

import faulthandler
import inspect
import multiprocessing
import os
import signal
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.tensor  # noqa: F401  assert_close() needs it: seconds here, once, or in every rank

TIMEOUT = timedelta(seconds=30)  # of the process group: a hang becomes an error before the deadline
DEADLINE_SECONDS = 60.0
STACKS_BEFORE_DEADLINE_SECONDS = 3.0

needs_unsorted_groups = pytest.mark.skipif(
    "sort_ranks" not in inspect.signature(dist.new_group).parameters,
    reason="this release's new_group() always sorts the ranks",
)


@dataclass
class Outcome:
    """The outcome of a rank: it returned a value, raised, or died with an exit code."""

    value: Any = None
    error: BaseException | None = None
    trace: str = ""
    exit_code: int | None = None
    finished: bool = False


def run_ranks(
    body: Callable[..., Any],
    world: int = 2,
    *arguments: Any,
    environment: dict[str, str] | None = None,
    pg_options: Any = None,
    timeout: timedelta = TIMEOUT,
    deadline_seconds: float = DEADLINE_SECONDS,
    backend: str = "qccl",
) -> list[Any]:
    """Runs body(rank, *arguments) on every rank, in a process group of the backend. Fails if one rank does."""

    def with_group(rank: int, store_file: str) -> Any:
        group = {"store": dist.FileStore(store_file, world), "rank": rank, "world_size": world}
        dist.init_process_group(backend, **group, timeout=timeout, pg_options=pg_options)
        value = body(rank, *arguments)
        dist.destroy_process_group()
        return value

    with tempfile.TemporaryDirectory(prefix="qccl-test-") as folder:
        outcomes = run_processes(
            with_group, world, str(Path(folder) / "store"), environment=environment, deadline_seconds=deadline_seconds
        )
    return values_of(outcomes)


def values_of(outcomes: list[Outcome]) -> list[Any]:
    failed = [(rank, outcome) for rank, outcome in enumerate(outcomes) if not outcome.finished or outcome.error]
    for rank, outcome in failed:
        print(f"--- rank {rank}: {outcome.trace or f'ended with exit code {outcome.exit_code}'}")
    if failed:
        rank, outcome = failed[0]
        reason = f"exit code {outcome.exit_code}"
        if outcome.error:
            reason = f"{type(outcome.error).__name__}: {outcome.error}"
        raise AssertionError(f"rank {rank} failed with {reason}")
    return [outcome.value for outcome in outcomes]


def run_processes(
    body: Callable[..., Any],
    world: int,
    *arguments: Any,
    environment: dict[str, str] | None = None,
    deadline_seconds: float = DEADLINE_SECONDS,
) -> list[Outcome]:
    """Runs body(rank, *arguments) in forked processes and returns each one's outcome. No process remains."""
    fork = multiprocessing.get_context("fork")
    processes, readers = [], []
    with tempfile.TemporaryDirectory(prefix="qccl-stacks-") as stacks:
        for rank in range(world):
            reader, writer = fork.Pipe(duplex=False)
            entry = (body, rank, arguments, environment or {}, writer, Path(stacks) / str(rank), deadline_seconds)
            process = fork.Process(target=_child, args=entry)
            process.start()
            writer.close()
            processes.append(process)
            readers.append(reader)
        try:
            outcomes = _collect(processes, readers, time.monotonic() + deadline_seconds)
        finally:
            for process in processes:
                if process.is_alive():
                    os.kill(process.pid, signal.SIGKILL)
                process.join()
        for rank, outcome in enumerate(outcomes):
            outcome.exit_code = processes[rank].exitcode
            if not outcome.finished and (Path(stacks) / str(rank)).exists():
                outcome.trace = (Path(stacks) / str(rank)).read_text()
    return outcomes


def _collect(processes: list[Any], readers: list[Connection], deadline: float) -> list[Outcome]:
    outcomes = [Outcome() for _ in processes]
    waiting = dict(enumerate(readers))
    while waiting and (left := deadline - time.monotonic()) > 0:
        for ready in multiprocessing.connection.wait(list(waiting.values()), timeout=left):
            rank = next(rank for rank, reader in waiting.items() if reader is ready)
            try:
                outcomes[rank] = ready.recv()
            except EOFError:
                pass  # it died
            del waiting[rank]
    for rank, process in enumerate(processes):
        if rank not in waiting:
            process.join(max(0.0, deadline - time.monotonic()))
    return outcomes


def _child(
    body: Callable[..., Any],
    rank: int,
    arguments: tuple[Any, ...],
    environment: dict[str, str],
    writer: Connection,
    stacks: Path,
    deadline_seconds: float,
) -> None:
    os.environ.update(environment)
    dist.set_debug_level_from_env()
    torch.set_num_threads(1)
    with stacks.open("w") as file:
        faulthandler.dump_traceback_later(deadline_seconds - STACKS_BEFORE_DEADLINE_SECONDS, file=file)
        try:
            outcome = Outcome(value=body(rank, *arguments), finished=True)
        except Exception as error:
            outcome = Outcome(error=error, trace=traceback.format_exc(), finished=True)
        faulthandler.cancel_dump_traceback_later()
    try:
        writer.send(outcome)
    except Exception as error:
        writer.send(Outcome(error=TypeError(f"can't send the outcome: {error}"), trace=outcome.trace, finished=True))
