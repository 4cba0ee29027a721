"""The communication log: every operation of this process with its times, as DeepSpeed's tables and in more detail."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any

import torch.distributed as dist

from . import _C

# The library's operations, and DeepSpeed's and torch's names for them.
_OPERATIONS = frozenset(
    "all_reduce all_gather reduce_scatter all_to_all broadcast reduce gather scatter barrier send recv "
    "all_gather_single all_gather_into_tensor all_gather_object reduce_scatter_single reduce_scatter_tensor "
    "all_to_all_single all_reduce_coalesced inference_all_reduce broadcast_object_list monitored_barrier "
    "isend irecv".split()
)
_SETTINGS = ("enabled", "verbose", "prof_all", "prof_ops", "debug")
_DEFAULTS = {"enabled": False, "verbose": False, "prof_all": True, "prof_ops": [], "debug": False}
_FORMULAS = ("nccl-tests", "deepspeed")


def configure_log(
    config: Any = None,
    *,
    enabled: bool | None = None,
    prof_all: bool | None = None,
    prof_ops: list[str] | None = None,
    verbose: bool | None = None,
    debug: bool | None = None,
    file: str | Path | None = None,
    capacity: int | None = None,
) -> None:
    """Changes settings of this process's log, for operations that begin from now on; None leaves a setting unchanged.

    Args:
        config: DeepSpeed's configuration, as a dictionary, its file, or a DeepSpeedConfig. Its section "comms_logger"
            applies, including "enabled"; missing keys get DeepSpeed's defaults. The other arguments override it.
        enabled: whether operations are logged.
        prof_all: log all of them; else those in prof_ops, by the library's, torch's or DeepSpeed's names.
        verbose: rank 0 writes DeepSpeed's line to standard error for each operation that ends.
        debug: an operation's name includes the function that made the call.
        file: at the end each rank writes the log to this name + rank + ".json", as QCCL_LOG_FILE does.
        capacity: records kept; new ones replace the oldest.

    Call it before or after init_process_group(). Raises ValueError for unknown keys and operations.
    """
    settings: dict[str, Any] = {} if config is None else _settings_of(config)
    given: dict[str, Any] = {"enabled": enabled, "prof_all": prof_all, "prof_ops": prof_ops, "verbose": verbose}
    given |= {"debug": debug, "file": None if file is None else str(file), "capacity": capacity}
    settings |= {key: value for key, value in given.items() if value is not None}
    _check_operations(settings.get("prof_ops", []))
    _C.configure_log(**settings)


def log_summary(
    show_straggler: bool = False,
    return_dict: bool = False,
    *,
    show_traffic: bool = True,
    formulas: str = "nccl-tests",
) -> dict[str, Any] | None:
    """Prints DeepSpeed's tables of the log on rank 0.

    Args:
        show_straggler: also shows which ranks kept their peers waiting. The call is then collective over the default
            process group.
        return_dict: returns, on every rank, {"summary": {operation: {bytes: ...}}, "straggler_analysis": ...,
            "stragglers": ..., "metadata": ...} with DeepSpeed's keys and also percentiles, bytes sent and compression
            ratio; "stragglers" lists the ranks, those that peers waited for longest first.
        show_traffic: also shows percentiles, bytes on the wire and compression ratios.
        formulas: the bandwidth formulas: "nccl-tests" uses the size of each operation's own group. "deepspeed" reports
            too high an algbw for all_reduce and reduce_scatter, and takes every group for the whole job.
    """
    rows, latency_table, traffic_table, rank, world = _C.log_summary(_is_deepspeed(formulas))
    tables = [latency_table, *([traffic_table] if show_traffic else [])]
    operations, ranks = None, None
    if show_straggler:
        operations, ranks, straggler_table = _stragglers()
        tables.append(straggler_table)
    if rank == 0:
        print("\n".join(tables), end="", flush=True)
    if not return_dict:
        return None
    return {
        "summary": rows,
        "straggler_analysis": operations,
        "stragglers": ranks,
        "metadata": {"world_size": world, "rank": rank, "timestamp": datetime.now().isoformat()},
    }


def save_log(path: str | Path) -> None:
    """Writes this rank's log: to NAME.json as a trace for ui.perfetto.dev, `qccl log` and `qccl trace`, or to NAME.csv
    with a line for each operation."""
    path = Path(path)
    writers = {".json": _C.log_trace, ".csv": _C.log_csv}
    if path.suffix not in writers:
        raise ValueError(f"{path}: a log can be written to a name that ends with .json or .csv")
    path.write_text(writers[path.suffix]())


class CommsLogger:
    """This process's log with the names of DeepSpeed's `comms_logger`. The only instance is `qccl.comms_logger`."""

    @property
    def enabled(self) -> bool:
        """Whether operations are logged."""
        return bool(_C.log_options()["enabled"])

    @property
    def verbose(self) -> bool:
        """Whether rank 0 writes a line for each operation that ends."""
        return bool(_C.log_options()["verbose"])

    @property
    def prof_all(self) -> bool:
        """Whether all operations are logged; else those in prof_ops."""
        return bool(_C.log_options()["prof_all"])

    @property
    def prof_ops(self) -> list[str]:
        """The operations and names that are logged where prof_all is False."""
        return list(_C.log_options()["prof_ops"])

    @property
    def debug(self) -> bool:
        """Whether an operation's name includes the function that made the call."""
        return bool(_C.log_options()["debug"])

    def start_profiling_comms(self) -> None:
        """Logs all operations from now on."""
        configure_log(prof_all=True)

    def stop_profiling_comms(self) -> None:
        """Logs only the operations of prof_ops from now on."""
        configure_log(prof_all=False)

    def start_profiling_op(self, op_name_list: list[str]) -> None:
        """Adds operations to prof_ops."""
        configure_log(prof_ops=list(dict.fromkeys([*self.prof_ops, *op_name_list])))

    def stop_profiling_op(self, op_name_list: list[str]) -> None:
        """Takes operations from prof_ops."""
        configure_log(prof_ops=[name for name in self.prof_ops if name not in op_name_list])

    def records(self, formulas: str = "nccl-tests") -> list[dict[str, Any]]:
        """Every operation that has ended, with all recorded fields; times are of the machine's monotonic clock."""
        return _C.log_records(_is_deepspeed(formulas))

    def get_raw_data(self) -> dict[str, dict[int, list[Any]]]:
        """{operation: {bytes: [count, latencies in ms, algbw, busbw in Gbps]}}"""
        found: dict[str, dict[int, list[Any]]] = {}
        for record in self.records():
            entry = found.setdefault(record["name"], {}).setdefault(record["bytes"], [0, [], [], []])
            entry[0] += 1
            for place, key in enumerate(("latency_ms", "algbw_gbps", "busbw_gbps"), start=1):
                entry[place].append(record[key])
        return found

    def has_data(self) -> bool:
        """Whether any operation has been logged."""
        return self.get_total_operations() > 0

    def reset_data(self) -> None:
        """Forgets all records, for example at the end of an epoch."""
        _C.clear_log()

    def get_operation_names(self) -> list[str]:
        """The names of the logged operations, in order of first use."""
        return list(self.get_raw_data())

    def get_total_operations(self) -> int:
        """How many operations the log has."""
        return len(self.records())

    def get_operation_summary(self, operation_name: str) -> dict[int, dict[str, Any]] | None:
        """The operation's rows by size, as in log_summary(); None if there was no such operation."""
        return _C.log_summary(False)[0].get(operation_name)


comms_logger = CommsLogger()


def section_of(config: Any) -> dict[str, Any] | None:
    """The section "comms_logger" of DeepSpeed's configuration (see configure_log()); None if there is none."""
    parsed = getattr(config, "comms_config", None)
    if parsed is not None:  # a DeepSpeedConfig
        return {key: getattr(parsed.comms_logger, key) for key in _SETTINGS} if parsed.comms_logger_enabled else None
    document = config if isinstance(config, dict) else json.loads(Path(config).read_text())
    section = document.get("comms_logger")
    if section is not None and not isinstance(section, dict):
        raise ValueError(f'"comms_logger" in {_name_of(config)} is no section, but {section!r}')
    return section


def _name_of(config: Any) -> str:
    return str(config) if isinstance(config, str | Path) else "the configuration"


def _settings_of(config: Any) -> dict[str, Any]:
    """The configuration's settings, completed by DeepSpeed's defaults."""
    section = section_of(config)
    if section is None:
        raise ValueError(f'{_name_of(config)} has no section "comms_logger"')
    unknown = ", ".join(sorted(set(section) - set(_SETTINGS)))
    if unknown:
        raise ValueError(f'"comms_logger" in {_name_of(config)} has {unknown}; there are {", ".join(_SETTINGS)}')
    return _DEFAULTS | section


def _check_operations(names: list[str]) -> None:
    unknown = [name for name in names if name not in _OPERATIONS]
    if unknown:
        raise ValueError(f"prof_ops has {', '.join(unknown)}; there are {', '.join(sorted(_OPERATIONS))}")


def _is_deepspeed(formulas: str) -> bool:
    if formulas not in _FORMULAS:
        raise ValueError(f"there are no formulas {formulas!r}; there are {' and '.join(_FORMULAS)}")
    return formulas == "deepspeed"


@contextmanager
def _paused() -> Iterator[None]:
    enabled = _C.log_options()["enabled"]
    _C.configure_log(enabled=False)
    try:
        yield
    finally:
        _C.configure_log(enabled=enabled)


def _stragglers() -> tuple[dict[str, Any], list[dict[str, Any]], str]:
    """Ranks may have logged different operations: only those that all ranks logged are compared."""
    of_ranks: list[Any] = [None] * dist.get_world_size()
    with _paused():
        dist.all_gather_object(of_ranks, _C.log_latencies())
    return _C.log_stragglers(of_ranks, dist.get_rank())


def _caller() -> str:
    """The innermost function of the stack that is outside torch, qccl and DeepSpeed's communication code."""
    frame: FrameType | None = sys._getframe(1)
    passed = ("torch", "qccl", "contextlib", "deepspeed.comm", "deepspeed.utils")
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if not any(module == name or module.startswith(name + ".") for name in passed):
            return f"[Caller Func: {frame.f_code.co_name}]"
        frame = frame.f_back
    return ""
