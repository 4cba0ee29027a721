"""The networks of bench/peers/compare: this host's shared memory, its loopback TCP, hosts on shaped links, or hosts far
apart."""

import contextlib
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NETNS, WAN = (str(ROOT / "scripts" / script) for script in ("netns.sh", "wan.sh"))
SHARED_MEMORY, LOOPBACK = "shm", "tcp"


@dataclass
class Network:
    """A network with its hosts up. A shaped one has a host for each rank, any other is this host."""

    name: str  # shm, tcp, a rate in tc's notation, or such a rate and a distance: see distance()
    ranks: int
    bind: bool = False  # each rank to a core, round robin if there are fewer cores
    cluster: str = ""  # of script()
    agent: str = ""  # a program that runs a command on a host, like ssh

    @property
    def shaped(self) -> bool:
        return self.name not in (SHARED_MEMORY, LOOPBACK)

    @property
    def interface(self) -> str:
        return "eth0" if self.shaped else "lo"

    def address(self, host: int) -> str:
        if not self.shaped:
            return "127.0.0.1"
        return f"10.78.0.{host}" if distance(self.name) else f"10.77.0.{host}"

    def on_host(self, host: int, command: list[str]) -> list[str]:
        return [script(self.name), "exec", self.cluster, str(host), *command] if self.shaped else command

    def bytes_sent(self) -> int:
        """The bytes that the hosts have sent on their interfaces so far."""
        return sum(self.bytes_sent_by(host) for host in (range(1, self.ranks + 1) if self.shaped else [1]))

    def bytes_sent_by(self, host: int) -> int:
        read = ["cat", f"/sys/class/net/{self.interface}/statistics/tx_bytes"]
        return int(subprocess.check_output(self.on_host(host, read), text=True))


def is_rate(name: str) -> bool:
    return re.fullmatch(r"\d+(\.\d+)?[gm]bit", name) is not None


def distance(name: str) -> list[str] | None:
    """The options of scripts/wan.sh for "1gbit+50ms", "1gbit+50ms+loss=0.001+flow-rate=200mbit+wmem=32m+rmem=48m": a
    rate, the delay one way, and more of its options. None for any other name."""
    rate, *more = name.split("+")
    if not is_rate(rate) or not more or not re.fullmatch(r"\d+(\.\d+)?[mu]s", more[0]):
        return None
    options = [option.split("=") for option in more[1:]]
    if any(len(option) != 2 for option in options):
        return None
    return ["--rate", rate, "--delay", more[0], *(word for key, value in options for word in (f"--{key}", value))]


def script(name: str) -> str:
    """What makes the hosts of a shaped network."""
    return WAN if distance(name) else NETNS


def refusal(name: str) -> str | None:
    """If this machine can't provide the network, the reason."""
    if name in (SHARED_MEMORY, LOOPBACK):
        return None
    check = subprocess.run([script(name), "check"], capture_output=True, text=True)
    return check.stderr.strip() if check.returncode != 0 else None


@contextlib.contextmanager
def network(name: str, ranks: int, bind: bool, burst: str = "") -> Iterator[Network]:
    """Sets a network up for this many ranks and removes it again. `bind`: ranks are bound to cores.

    With a burst ("128k"), a host's link limits both directions to the rate and lets at most the burst pass at once."""
    if name in (SHARED_MEMORY, LOOPBACK):
        yield Network(name, ranks, bind)
        return
    cluster = f"peers{os.getpid()}"
    with tempfile.TemporaryDirectory(prefix="qccl-peers-") as folder:
        agent = Path(folder) / "agent"
        agent.write_text(f'#!/bin/sh\nexec {script(name)} agent {cluster} "$@"\n')
        agent.chmod(0o755)
        options = distance(name) or [name, *([burst] if burst else [])]
        subprocess.run([script(name), "up", cluster, str(ranks), *options], check=True)
        try:
            yield Network(name, ranks, cluster=cluster, agent=str(agent))
        finally:
            subprocess.run([script(name), "down", cluster], check=True, stdout=subprocess.DEVNULL)


def plain_stream(shaped: Network, size: int = 64 << 20) -> float:
    """Bytes per second that one TCP connection carries from host 1 to host 2."""
    script = [str(ROOT / ".venv/bin/python"), str(ROOT / "bench/peers/stream.py")]
    receiver = subprocess.Popen(shaped.on_host(2, [*script, "receive"]), stdout=subprocess.PIPE, text=True)
    try:
        port = receiver.stdout.readline().strip()
        send = [*script, "send", shaped.address(2), port, str(size)]
        subprocess.run(shaped.on_host(1, send), check=True, timeout=600)
        return size / float(receiver.communicate(timeout=600)[0])
    finally:
        receiver.kill()
        receiver.wait()
