"""The test bed of bench/predicted/compare as the simulation sees it. It is measured before any prediction."""

import contextlib
import json
import os
import re
import statistics
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.networks import ROOT, Network

QCCL = str(ROOT / "build/qccl")
LINK = [str(ROOT / ".venv/bin/python"), str(ROOT / "bench/predicted/link.py")]
BURST = "64K"  # small enough to matter little, large enough for a timer that is a quarter of a millisecond late
PACKET_SHARE = 1448 / 1514  # TCP's payload as a share of a link's bytes: the simulation applies it again


@dataclass(frozen=True)
class Bed:
    """Latency and rate of two hosts without load, and the processor times while all hosts are busy."""

    hosts: int
    cores: int
    latency: float  # seconds
    rate: float  # bytes per second of a stream
    frame_seconds: float  # of the kernel, at each end
    byte_seconds: float

    def flags(self) -> list[str]:
        """The flags of `qccl plan` that the profile does not cover."""
        return ["--world", str(self.hosts), "--burst", BURST, "--cores", str(self.cores), "--hosts-per-machine",
                str(self.hosts)]  # fmt: skip

    def profile(self, machine: str) -> str:
        """The machine's profile with this bed's links."""
        # The engine's own part of a frame is its time over shared memory, without a kernel in between.
        engine = float(re.search(r"^shm.frame_us (\S+)$", machine, re.M)[1])
        lines = {
            "wire.latency_us": 1e6 * self.latency,
            "wire.frame_us": engine + 1e6 * self.frame_seconds,
            "wire.rank_GBps": 1e-9 / self.byte_seconds,
            "wire.host_Gbps": 8e-9 * self.rate / PACKET_SHARE,
        }
        return machine + "".join(f"{key} {value:.6g}\n" for key, value in lines.items())

    def describe(self) -> str:
        return (f"{self.hosts} hosts on {self.cores} cores: {1e6 * self.latency:.1f} us one way, a plain stream of "
                f"{8e-9 * self.rate:.3f} Gbit/s; the kernel takes {1e6 * self.frame_seconds:.1f} us for a message and "
                f"{1e9 * self.byte_seconds:.2f} ns for a byte, at either end")  # fmt: skip


def on_core(net: Network, host: int, command: list[str]) -> list[str]:
    """The command on the host, bound to one core; hosts get the cores round robin."""
    cores = sorted(os.sched_getaffinity(0))
    return net.on_host(host, ["taskset", "-c", str(cores[(host - 1) % len(cores)]), *command])


def measure_pairs(net: Network, pairs: int) -> list[dict[str, float]]:
    """Measures hosts 1 and 2, 3 and 4, ... at the same time."""
    servers = [subprocess.Popen(on_core(net, 2 * pair + 2, [*LINK, "serve"]), stdout=subprocess.PIPE, text=True)
               for pair in range(pairs)]  # fmt: skip
    try:
        clients = []
        for pair, server in enumerate(servers):
            port = server.stdout.readline().strip()
            measure = on_core(net, 2 * pair + 1, [*LINK, "measure", net.address(2 * pair + 2), port])
            clients.append(subprocess.Popen(measure, stdout=subprocess.PIPE, text=True))
        return [json.loads(client.communicate(timeout=120)[0]) for client in clients]
    finally:
        for process in servers:
            process.kill()
            process.wait()


@contextlib.contextmanager
def cores_awake() -> Iterator[None]:
    """Lets idle cores poll instead of halt, by requesting a latency of 0 us from the kernel, if it supports that. A
    virtual machine's hypervisor takes tens of microseconds to milliseconds to wake a core, depending on its other
    load."""
    try:
        request = os.open("/dev/cpu_dma_latency", os.O_WRONLY)
    except FileNotFoundError:
        yield
        return
    try:
        os.write(request, struct.pack("i", 0))
        yield
    finally:
        os.close(request)  # withdraws the request


def mean(rounds: list[dict[str, float]], what: str, stolen: str) -> float:
    """The mean over the half of the rounds from which the hypervisor stole least."""
    calm = sorted(rounds, key=lambda each: each[stolen])[: len(rounds) // 2 + 1]
    return statistics.mean(each[what] for each in calm)


def measure_bed(net: Network, rounds: int) -> Bed:
    pairs = net.ranks // 2
    alone = [measure_pairs(net, 1)[0] for _ in range(rounds)]
    busy = [measure_pairs(net, pairs)[0] for _ in range(rounds)] if pairs > 1 else alone
    return Bed(net.ranks, len(os.sched_getaffinity(0)), mean(alone, "latency", "messages_stolen"),
               mean(alone, "rate", "stream_stolen"),
               mean(busy, "message_seconds", "messages_stolen") / pairs / 2,
               mean(busy, "byte_seconds", "stream_stolen") / pairs / 2)  # fmt: skip


def machine_profile(path: Path) -> str:
    """The measurements of processors and codecs by `qccl doctor --measure`."""
    subprocess.run([QCCL, "doctor", "--measure", str(path)], check=True, stdout=subprocess.DEVNULL)
    return path.read_text()
