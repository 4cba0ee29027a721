"""Measures a link and its processor cost: a ping-pong and one plain TCP stream between two hosts.

predicted_link.py serve               prints its port, then answers one client
predicted_link.py measure HOST PORT   prints a line of JSON: seconds one way of a few bytes, bytes per second of the
                                      stream, the kernel's processor seconds for each message and each byte, and the
                                      shares of the cores that a hypervisor took during messages and stream

The kernel's time is the whole machine's, because interrupts are charged to no process.
"""

import json
import os
import socket
import statistics
import sys
import time

MESSAGE_BYTES = 64
MESSAGES = 10000
STREAM_BYTES = 128 << 20
BLOCK = bytes(1 << 20)
DONE = b"done"


class Kernel:
    """The processor time that the machine's kernel and its hypervisor have taken since this was made."""

    def __init__(self) -> None:
        self.then = self.now()

    @staticmethod
    def now() -> tuple[float, float, float]:
        with open("/proc/stat") as file:
            fields = [int(field) for field in file.readline().split()[1:9]]
        second = os.sysconf("SC_CLK_TCK")
        system, interrupts, soft_interrupts, stolen = fields[2], fields[5], fields[6], fields[7]
        return time.perf_counter(), (system + interrupts + soft_interrupts) / second, stolen / second

    def since(self) -> tuple[float, float, float]:
        """Seconds passed, the kernel's seconds, and the share of all cores that was stolen."""
        end, kernel, stolen = (now - then for now, then in zip(self.now(), self.then, strict=True))
        return end, kernel, stolen / (os.cpu_count() or 1) / end


def receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            sys.exit("predicted_link: the other end has gone")
        data += part
    return data


def serve() -> None:
    with socket.create_server(("0.0.0.0", 0)) as server:
        print(server.getsockname()[1], flush=True)
        connection, _ = server.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for _ in range(MESSAGES):
        connection.sendall(receive(connection, MESSAGE_BYTES))
    block, left = bytearray(len(BLOCK)), STREAM_BYTES
    while left > 0:
        got = connection.recv_into(block)
        if got == 0:
            sys.exit("predicted_link: the stream ended early")
        left -= got
    connection.sendall(DONE)


def measure(host: str, port: int) -> dict[str, float]:
    with socket.create_connection((host, port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        kernel, seconds = Kernel(), []
        for _ in range(MESSAGES):
            begin = time.perf_counter()
            connection.sendall(bytes(MESSAGE_BYTES))
            receive(connection, MESSAGE_BYTES)
            seconds.append(time.perf_counter() - begin)
        _, message, messages_stolen = kernel.since()
        kernel = Kernel()
        for _ in range(STREAM_BYTES // len(BLOCK)):
            connection.sendall(BLOCK)
        receive(connection, len(DONE))
        elapsed, byte, stream_stolen = kernel.since()
    return {"latency": statistics.median(seconds) / 2, "rate": STREAM_BYTES / elapsed,
            "message_seconds": message / (2 * MESSAGES), "byte_seconds": byte / STREAM_BYTES,
            "messages_stolen": messages_stolen, "stream_stolen": stream_stolen}  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    else:
        print(json.dumps(measure(sys.argv[2], int(sys.argv[3]))))
