"""How the ranks of one start of a job tell themselves from those of earlier starts on the same store.

torchrun and others keep one store over restarts, so a key may be left from ranks that have died, even in the middle
of this exchange. Nothing here depends on a clean store: a rank leaves a fresh ticket, rank 0 answers to tickets
with the job's random name, and goes on answering until the ticket's owner confirms.
"""

import secrets
import time
from datetime import timedelta
from typing import Any

import torch.distributed as dist

# How long rank 0 waits for confirmations before it looks for newer tickets. Only stale keys cost this.
_ANSWER_SECONDS = 0.2


def agree_on_job(store: Any, rank: int, size: int, timeout: timedelta) -> str:
    """The same new random name on every rank. Raises DistNetworkError naming ranks that did not come."""
    deadline = time.monotonic() + timeout.total_seconds()
    if rank == 0:
        return _invite(store, size, deadline)
    ticket = secrets.token_hex(8)
    store.set(f"qccl/ticket/{rank}", ticket)
    if not _wait(store, [f"qccl/job/{ticket}"], deadline):
        waited = f"qccl: rank {rank} waited {timeout.total_seconds():.0f} s"
        raise dist.DistNetworkError(f"{waited} for rank 0 to start the process group; is it running?")
    job = store.get(f"qccl/job/{ticket}").decode()
    store.set(f"qccl/joined/{job}/{rank}", "1")
    return job


def _invite(store: Any, size: int, deadline: float) -> str:
    started = time.monotonic()
    job = secrets.token_hex(8)
    missing = list(range(1, size))
    while missing:
        tickets = [f"qccl/ticket/{rank}" for rank in missing]
        if _wait(store, tickets, deadline):
            for ticket in tickets:
                store.set(f"qccl/job/{store.get(ticket).decode()}", job)
            answered = [f"qccl/joined/{job}/{rank}" for rank in missing]
            _wait(store, answered, min(deadline, time.monotonic() + _ANSWER_SECONDS))
        missing = [rank for rank in missing if not store.check([f"qccl/joined/{job}/{rank}"])]
        if missing and time.monotonic() >= deadline:
            ranks = ", ".join(map(str, missing))
            waited = f"qccl: rank 0 waited {time.monotonic() - started:.0f} s"
            raise dist.DistNetworkError(f"{waited} for rank {ranks} of {size} to join the process group")
    return job


def _wait(store: Any, keys: list[str], deadline: float) -> bool:
    """True once all keys exist, false at the deadline."""
    left = max(0.001, deadline - time.monotonic())
    try:
        store.wait(keys, timedelta(seconds=left))
    except RuntimeError:
        # Stores say in different types that the time is up. One that fails for another reason raises here too.
        return store.check(keys)
    return True
