"""The networks of bench/peers/compare: this host's shared memory, its loopback TCP, or hosts on shaped links."""

import contextlib
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NETNS = str(ROOT / "scripts" / "netns.sh")
SHARED_MEMORY, LOOPBACK = "shm", "tcp"


@dataclass
class Network:
    """A network with its hosts up. A shaped one has a host for each rank, any other is this host."""

    name: str  # shm, tcp or a rate in tc's notation
    ranks: int
    bind: bool = False  # each rank to a core, round robin if there are fewer cores
    cluster: str = ""  # of scripts/netns.sh
    agent: str = ""  # a program that runs a command on a host, like ssh

    @property
    def shaped(self) -> bool:
        return self.name not in (SHARED_MEMORY, LOOPBACK)

    @property
    def interface(self) -> str:
        return "eth0" if self.shaped else "lo"

    def address(self, host: int) -> str:
        return f"10.77.0.{host}" if self.shaped else "127.0.0.1"

    def on_host(self, host: int, command: list[str]) -> list[str]:
        return [NETNS, "exec", self.cluster, str(host), *command] if self.shaped else command

    def bytes_sent(self) -> int:
        """The bytes that the hosts have sent on their interfaces so far."""
        hosts = range(1, self.ranks + 1) if self.shaped else [1]
        read = ["cat", f"/sys/class/net/{self.interface}/statistics/tx_bytes"]
        return sum(int(subprocess.check_output(self.on_host(host, read), text=True)) for host in hosts)


def is_rate(name: str) -> bool:
    return re.fullmatch(r"\d+(\.\d+)?[gm]bit", name) is not None


def refusal(name: str) -> str | None:
    """If this machine can't provide the network, the reason."""
    if name in (SHARED_MEMORY, LOOPBACK):
        return None
    check = subprocess.run([NETNS, "check"], capture_output=True, text=True)
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
        agent.write_text(f'#!/bin/sh\nexec {NETNS} agent {cluster} "$@"\n')
        agent.chmod(0o755)
        subprocess.run([NETNS, "up", cluster, str(ranks), name, *([burst] if burst else [])], check=True)
        try:
            yield Network(name, ranks, cluster=cluster, agent=str(agent))
        finally:
            subprocess.run([NETNS, "down", cluster], check=True)


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
