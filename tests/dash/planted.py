"""Logs of jobs that never ran, with planted faults, in the format that the library writes."""

import json
from pathlib import Path

HEAD = {"world": 4, "host": "node1", "clock": "one", "unix_offset_ns": 1_700_000_000_000_000_000, "dropped": 0}
MINMAX = "minmax:bits=4,bucket_size=1024"


def operation(**fields) -> dict:
    """A record of an all_reduce; times in milliseconds: posted, started, ended."""
    posted, started, ended = (round(fields.pop(name) * 1e6) + 1_000_000 for name in ("posted", "started", "ended"))
    size = fields.get("bytes", 1 << 20)
    record = {
        "operation": "all_reduce", "name": "gradients", "group": "world", "group_id": "00000000000000aa",
        "group_size": 4, "sequence": 1, "is_message": 0, "peer": -1, "count": size // 4, "type": "float32",
        "algorithm": "sra", "path": "frames", "device": "", "compression": MINMAX, "bytes": size,
        "bandwidth_bytes": size, "wire_bytes": size // 5, "payload_bytes": size // 5 - 64, "plain_bytes": 3 * size // 2,
        "posted_ns": posted, "started_ns": started, "ended_ns": ended, "error": "",
    }  # fmt: skip
    return record | fields


def gauge(**fields) -> dict:
    record = {
        "name": "fc1.weight", "step": 0, "compression": MINMAX, "count": 1 << 20, "bits": 4.06, "nmse": 2e-3,
        "cosine": 0.999, "residual": 0.05, "ended_ns": 1_000_000,
    }  # fmt: skip
    return record | fields


class Log:
    """The log of a rank, which grows."""

    def __init__(self, folder: Path, rank: int, **head):
        self.path, self.rank = folder / f"log_{rank}.json", rank
        qccl = {"version": 1, "ranks": [{"rank": rank} | HEAD | head]}
        text = json.dumps({"displayTimeUnit": "ms", "qccl": qccl, "traceEvents": []})
        self.path.write_text(text[:-2] + "\n]}\n")
        self._is_empty = True

    def add(self, *records: dict) -> None:
        """Adds operations and gauges at the end of the file."""
        lines = []
        for args in records:
            category = "qccl" if "sequence" in args else "qccl gauge"
            event = {
                "name": args["name"],
                "cat": category,
                "ph": "X",
                "pid": self.rank,
                "tid": 1,
                "ts": 0,
                "args": args,
            }
            lines.append(json.dumps(event))
        with self.path.open("r+b") as file:
            file.seek(-len("\n]}\n"), 2)
            separator = "\n" if self._is_empty else ",\n"
            file.write((separator + ",\n".join(lines) + "\n]}\n").encode())
        self._is_empty = False


def steps(log: Log, numbers: range, late_rank: int | None = None, late_ms: float = 4, **fields) -> None:
    """Adds an all_reduce for each number, 10 ms apart, which takes 2 ms. The late rank calls it `late_ms` later."""
    for number in numbers:
        begin = 10 * number
        ready = begin + (late_ms if late_rank is not None else 0)
        posted = ready if log.rank == late_rank else begin + 0.1 * log.rank
        log.add(operation(posted=posted, started=ready + 0.05, ended=ready + 2, sequence=number, **fields))
