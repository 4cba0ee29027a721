"""Rows of measured and predicted times, their deviations, and their table."""

import re
from dataclasses import dataclass

from bench.comparison import size_name

UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass(frozen=True)
class Case:
    collective: str
    algorithm: str
    compression: str
    bytes: int

    def __str__(self) -> str:
        return f"{self.collective}/{self.algorithm}/{self.compression}/{self.bytes}"


@dataclass(frozen=True)
class Row:
    """Times in seconds."""

    hosts: int
    case: Case
    chosen: bool  # by the library
    measured: float
    simulated: float
    formula: float  # by the cost model

    @property
    def ratio(self) -> float:
        return self.simulated / self.measured

    @property
    def formula_ratio(self) -> float:
        return self.formula / self.measured


def seconds(value: str, unit: str) -> float:
    return float(value) * UNITS[unit]


def read_simulation(text: str) -> dict[tuple[int, str], tuple[float, bool]]:
    """{(bytes, algorithm): (seconds, whether it would be chosen)}, from the output of `qccl plan simulate`."""
    rows = re.findall(r"^ *(\d+) +(\w+)(\*?) +([\d.e+]+) (ns|us|ms|s) ", text, re.M)
    return {(int(size), name): (seconds(time, unit), mark == "*") for size, name, mark, time, unit in rows}


def read_prices(text: str) -> dict[str, tuple[float, bool]]:
    """{algorithm: (seconds, whether the library may choose it)}, from the output of `qccl plan show`."""
    rows = re.findall(r"^([* -]) +(\w+) +([\d.e+]+) (ns|us|ms|s) ", text, re.M)
    return {name: (seconds(time, unit), mark != "-") for mark, name, time, unit in rows}


def deviation(ratio: float) -> float:
    return abs(ratio - 1)


def worst(rows: list[Row]) -> Row:
    return max(rows, key=lambda row: deviation(row.ratio))


def beyond(rows: list[Row], tolerance: float) -> list[Row]:
    return [row for row in rows if deviation(row.ratio) > tolerance]


LEAST_SAMPLES = 3
MOST_STOLEN = 0.02


def undisturbed(samples: list[list[float]], cores: int, ticks_a_second: int) -> list[float]:
    """Takes samples (seconds, ticks of the machine's cores that a hypervisor gave to others) and returns the seconds of
    those that lost little, or if those are few, of those that lost least. A hypervisor's times say nothing about the
    network."""
    lost = sorted((ticks / ticks_a_second / cores / seconds, seconds) for seconds, ticks in samples)
    return [seconds for index, (share, seconds) in enumerate(lost) if share <= MOST_STOLEN or index < LEAST_SAMPLES]


def milliseconds(value: float) -> str:
    return f"{1e3 * value:.3g}" if value < 1 else f"{1e3 * value:.0f}"


def table(rows: list[Row]) -> str:
    lines = ["| hosts | collective | compression | bytes | algorithm | measured ms | simulated ms | ratio | formula ms "
             "| ratio |", "| --- " * 10 + "|"]  # fmt: skip
    for row in rows:
        case = row.case
        cells = [row.hosts, case.collective, case.compression, size_name(case.bytes),
                 case.algorithm + ("*" if row.chosen else ""), milliseconds(row.measured), milliseconds(row.simulated),
                 f"{row.ratio:.2f}", milliseconds(row.formula), f"{row.formula_ratio:.2f}"]  # fmt: skip
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def verdict(rows: list[Row], tolerance: float) -> str:
    most, missed = worst(rows), beyond(rows, tolerance)
    text = (f"{len(rows)} predictions; the worst is {most.case} on {most.hosts} hosts: "
            f"{milliseconds(most.simulated)} ms simulated, {milliseconds(most.measured)} ms measured")  # fmt: skip
    return f"{text}; {len(missed)} beyond {100 * tolerance:g} %"
