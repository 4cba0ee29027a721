"""What a job says at its start, and the variables of the backends in whose place QCCL runs."""

import os
import re
import sys
from typing import Any

from . import _C

# By backend, the beginnings of the names of its variables; and those that count for QCCL as well (docs/torch.md).
_PREFIXES = {
    "gloo": ("GLOO_", "TORCH_GLOO_"),
    "nccl": ("NCCL_", "TORCH_NCCL_", "TORCH_FR_"),
    "mpi": ("OMPI_MCA_btl_tcp_",),
}
_TRACE_DUMPS = ("QCCL_TRACE_DUMP", "TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_OBEYED = {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", *_TRACE_DUMPS}
_NO_SETTINGS = {"NCCL_VERSION"}  # images have it: the release that they install
_KEYS = ("QCCL_KEY_FILE", "QCCL_KEY", "QCCL_KEY_FD")

_said_by = 0  # the process that has said how its job starts


def replaced_backends() -> list[str]:
    """The backends that QCCL_REPLACE names."""
    return [name.strip().lower() for name in os.environ.get("QCCL_REPLACE", "").split(",") if name.strip()]


def trace_dump() -> str:
    """Where failures are written: QCCL's prefix of file names, else that of nccl, if QCCL is in its place."""
    names = _TRACE_DUMPS if "nccl" in replaced_backends() else _TRACE_DUMPS[:1]
    return next((prefix for name in names if (prefix := os.environ.get(name))), "")


def check_replaced() -> None:
    """Raises ValueError if the program would send in clear what it asked gloo to encrypt."""
    asked = os.environ.get("GLOO_DEVICE_TRANSPORT", "")
    if "gloo" in replaced_backends() and asked == "TCP_TLS" and not any(map(os.environ.get, _KEYS)):
        raise ValueError(
            "GLOO_DEVICE_TRANSPORT=TCP_TLS asks for encryption, and QCCL in gloo's place has no key: give all ranks "
            "the file that `qccl key FILE` makes, QCCL_KEY_FILE=FILE, or unset GLOO_DEVICE_TRANSPORT"
        )


def announce(backend: Any) -> None:
    """Rank 0's lines at the start of a job, to standard error: what the job is, and which variables are ignored.

    Once a process. QCCL_LOG=warning leaves out the first, QCCL_LOG=error both.
    """
    global _said_by
    level = os.environ.get("QCCL_LOG", "")
    if _said_by == os.getpid() or level == "error":
        return
    _said_by = os.getpid()
    if level != "warning":
        sys.stderr.write(f"qccl: info: {_job_line(backend)}\n")
    for name in replaced_backends():
        if ignored := _ignored_variables(name):
            sys.stderr.write(f"qccl: warning: in {name}'s place, QCCL ignores {', '.join(ignored)}\n")


def _job_line(backend: Any) -> str:
    world, hosts, compression = _C.job_facts(backend)
    transports = sorted(set(re.findall(r", (\w+)(?: by \d+ connections)? to ranks? ", _C.describe(backend))))
    line = f"{world} rank{'s' * (world > 1)} on {hosts} host{'s' * (hosts > 1)}"
    line += f" over {' and '.join(transports)}" if transports else ""
    line += f", compression {compression}"
    return line + (f", in place of {' and '.join(replaced_backends())}" if replaced_backends() else "")


def _ignored_variables(backend: str) -> list[str]:
    known = _OBEYED | _NO_SETTINGS
    return sorted(name for name in os.environ if name.startswith(_PREFIXES.get(backend, ())) and name not in known)
