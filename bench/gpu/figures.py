"""The figures of gpu.json, which `make gpu` writes, and how they changed since the last one."""

import json
from pathlib import Path
from typing import Any

from bench.comparison import size_name

GOOD_SHARE = 0.7  # of the rate of a copy
Document = dict[str, Any]


def read(file: Path) -> Document | None:
    """The document, or nothing if there is no readable one."""
    try:
        document = json.loads(file.read_text())
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None


def figures(document: Document) -> dict[str, float]:
    """Every figure by a name that stays the same from run to run. "us" and "ms" are times, all others are rates."""
    parts = document.get("parts", {})
    found: dict[str, float] = {}
    kernels = parts.get("kernels", {})
    found.update({f"copy {name}": value for name, value in kernels.get("copy", {}).items() if name != "bytes"})
    found.update({f"{name}, us": value for name, value in kernels.get("calls_us", {}).items()})
    for place in ("pinned", "registration"):
        for way in ("read", "write"):
            row = kernels.get(place, {}).get(way, {})
            found.update({f"{place} {way} {name}": value for name, value in row.items()})
    for row in kernels.get("kernels", []):
        rates = {name: value for name, value in row.items() if name.startswith("GBps")}
        found.update({f"{row['format']} {row['pass']} {name}": value for name, value in rates.items()})
    for row in parts.get("ranks", {}).get("rows", []):
        what = f"{row['ranks']} ranks, {row['collective']} of {row['bytes']}, {row['compression']}"
        found[f"{what}, us"] = row["us"]
    for row in parts.get("processes", {}).get("rows", []):
        what = f"{row['ranks']} processes, {row['transport']}, {row['collective']} of {row['bytes']}"
        found[f"{what}, {row['compression']}, us"] = row["us"]
    for row in parts.get("training", {}).get("rows", []):
        what = f"training on {row['ranks']} ranks, {row['way']}, {row['compression']}"
        found[f"{what}, {row['order']} waits, ms"] = row["ms"]
    return found


def is_time(name: str) -> bool:
    return name.endswith((", us", ", ms"))


def comparison(last: Document | None, now: Document, threshold: float = 0.1) -> str:
    """What became faster or slower by more than the threshold, one line each; "" without a last document."""
    if last is None:
        return ""
    if last.get("device") != now.get("device"):
        return f"The last figures are of another GPU, {last.get('device')}: not compared.\n"
    before, after = figures(last), figures(now)
    lines = []
    for name in sorted(before.keys() & after.keys()):
        if min(before[name], after[name]) <= 0:
            continue
        gain = before[name] / after[name] if is_time(name) else after[name] / before[name]
        if abs(gain - 1) > threshold:
            lines.append(f"{gain:8.2f} times as fast: {name}: {before[name]:.3g}, now {after[name]:.3g}")
    same = len(before.keys() & after.keys()) - len(lines)
    return "\n".join([*lines, f"{same} figures changed by at most {threshold:.0%} since {last.get('date')}."]) + "\n"


def problems(document: Document) -> list[str]:
    """What makes the run a failure: parts with wrong bytes, and parts that did not end."""
    found = []
    for name, part in document.get("parts", {}).items():
        if part.get("failed"):
            found.append(f"{name}: {part['failed']}")
        elif part.get("equal") is False:
            found.append(f"{name}: bytes differ")
    return found


def parts_rows(document: Document, part: str) -> list[dict[str, Any]]:
    return document["parts"].get(part, {}).get("rows", [])


def highlights(document: Document) -> str:
    """How near kernels and calls come to what the hardware can do."""
    lines = []
    jobs = [job for job in document["parts"].get("kernels", {}).get("kernels", []) if "share_of_copy" in job]
    if jobs:
        fast = sum(job["share_of_copy"] >= GOOD_SHARE for job in jobs)
        slowest = min(jobs, key=lambda job: job["share_of_copy"])
        lines.append(
            f"  kernels: {fast} of {len(jobs)} jobs have {GOOD_SHARE:.0%} of a copy on the device or more; "
            f"the slowest, {slowest['format']} {slowest['pass']}, has {slowest['share_of_copy']:.0%}"
        )
    rows = parts_rows(document, "ranks")
    for ranks in sorted({row["ranks"] for row in rows}):
        largest = max(row["bytes"] for row in rows if row["ranks"] == ranks)
        of_size = [row for row in rows if row["ranks"] == ranks and row["bytes"] == largest]
        of_size.sort(key=lambda row: row["share_of_bound"])
        worst, best = (
            f"{row['share_of_bound']:.0%} ({row['collective']}, {row['compression']})"
            for row in (of_size[0], of_size[-1])
        )
        lines.append(f"  {ranks} ranks, {size_name(largest)}: from {worst} to {best} of the link's bound")
    gates = parts_rows(document, "gates")
    for connections in sorted({row["connections"] for row in gates}, reverse=True):
        of_count = [row for row in gates if row["connections"] == connections]
        well = sum(row["end"] == "ok" for row in of_count)
        waits = "streams wait at gates" if all(row["order"] == "gate" for row in of_count) else "the host waits"
        lines.append(f"  gates, connections: {connections}: {waits}; {well} of {len(of_count)} cases end")
    lines += steps_in_both_orders(document)
    return "".join(line.replace("%", " %") + "\n" for line in lines)


def steps_in_both_orders(document: Document) -> list[str]:
    """A step of training where the host waits for calls, beside one where streams do."""
    steps: dict[str, dict[str, float]] = {}
    for row in parts_rows(document, "training"):
        what = f"{row['way']}, {row['ranks']} ranks, {row['compression']}"
        steps.setdefault(what, {})[row["order"]] = row["ms"]
    return [
        f"  training, {what}: " + ", ".join(f"{order}: {ms:.1f} ms" for order, ms in by_order.items())
        for what, by_order in steps.items()
    ]


def summary(document: Document) -> str:
    """A line for each part."""
    lines = []
    for name, part in document["parts"].items():
        if part.get("failed"):
            state = f"FAILED: {part['failed']}"
        elif part.get("skipped"):
            state = f"skipped: {part['skipped']}"
        else:
            state = "bytes DIFFER" if part.get("equal") is False else "ok"
            if part.get("left_out"):
                state += f", {len(part['left_out'])} left out"
        lines.append(f"  {name:10} {part.get('seconds', 0):6.1f} s  {state}")
    return "\n".join(lines)
