#!/usr/bin/env python3
"""Measures the memory of the ranks of a large job on one machine, while they run all_reduce_perf.

    rank_memory.py [ranks] [transport]     prints the largest rank's memory and the mean, in MiB
"""

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FIELDS = ("Rss", "Pss", "Private_Dirty")


def memory_of(pid: str) -> dict[str, int] | None:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    found = {line.split(":")[0]: int(line.split()[1]) for line in lines[1:]}
    return {field: found.get(field, 0) for field in FIELDS} | {"Anonymous": found.get("Anonymous", 0)}


def leaves_of(pid: str) -> list[str]:
    """The descendants of this process that have no children: the ranks."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [leaf for child in children for leaf in leaves_of(child) or [child]]


def main() -> None:
    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else 64
    transport = sys.argv[2] if len(sys.argv) > 2 else "tcp"
    command = [ROOT / "build" / "qccl", "perf", "all_reduce", "-g", str(ranks), "--transport", transport]
    command += ["-b", "1M", "-e", "16M", "-f", "4", "-n", "2", "-c", "0"]
    job = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    greatest: dict[str, dict[str, int]] = {}
    while job.poll() is None:
        for pid in leaves_of(str(job.pid)):
            for field, kib in (memory_of(pid) or {}).items():
                own = greatest.setdefault(pid, {})
                own[field] = max(own.get(field, 0), kib)
        time.sleep(1)
    for field in (*FIELDS, "Anonymous"):
        values = [own[field] / 1024 for own in greatest.values()]
        mean = sum(values) / len(values)
        print(f"{ranks} ranks, {transport}, {field:13} largest {max(values):7.1f} MiB, mean {mean:7.1f}")
    sys.exit(job.returncode)


if __name__ == "__main__":
    main()
