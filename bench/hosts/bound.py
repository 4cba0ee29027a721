"""The least time of an all_reduce between hosts of one rank each, from their lines' rates alone."""

import functools
import re
import subprocess
from dataclasses import dataclass

from bench.comparison import gigabits
from bench.networks import ROOT


@dataclass(frozen=True)
class Line:
    """A host's line, each way."""

    up: float  # bytes a second
    down: float


def seconds(word: str) -> float:
    return float(word[:-2]) * {"ms": 1e-3, "us": 1e-6}[word[-2:]]


def hosts_of(network: str, hosts: int) -> tuple[list[Line], float]:
    """Each host's line and the delay one way, of a network as bench/peers/compare writes them."""
    rate, delay, *options = network.split("+")
    rates = {0: {"rate": rate}}
    host = 0
    for key, value in (option.split("=") for option in options):
        host = int(value) if key == "host" else host
        rates.setdefault(host, {})[key] = value
    lines = []
    for number in range(1, hosts + 1):
        own = rates[0] | ({"up-rate": None, "down-rate": None} if "rate" in rates.get(number, {}) else {})
        own |= rates.get(number, {})
        up, down = (own.get(key) or own["rate"] for key in ("up-rate", "down-rate"))
        lines.append(Line(gigabits(up) * 1.25e8, gigabits(down) * 1.25e8))
    return lines, seconds(delay)


def bound(network: str, hosts: int, encoded_bytes: float) -> float:
    """Seconds of an all_reduce that sends so many encoded bytes a rank, if each rank owns the share that fits its line.

    The owner of a share x sends and receives (1 + (N - 2) x) times the bytes; a call waits for three latencies.
    """
    lines, delay = hosts_of(network, hosts)
    if hosts == 1:
        return 0.0
    rates = [min(line.up, line.down) for line in lines]
    if hosts == 2:
        return encoded_bytes / min(rates) + 3 * delay
    low, high = 0.0, 2 * encoded_bytes / min(rates)
    for _ in range(60):
        time = (low + high) / 2
        shares = [(time * rate / encoded_bytes - 1) / (hosts - 2) for rate in rates]
        low, high = (low, time) if min(shares) >= 0 and sum(shares) >= 1 else (time, high)
    return high + 3 * delay


@functools.cache
def bits_of(codec: str) -> float:
    """The bits of an element on the wire."""
    show = [ROOT / "build/qccl", "codec", "show", codec]
    shown = subprocess.run(show, check=True, capture_output=True, text=True).stdout
    found = re.search(r"^size +([\d.]+) bits", shown, re.M)
    return float(found[1]) if found else 32.0
