"""One plain TCP stream for comparison: the rate of a link without any library.

peers_stream.py receive               prints its port, then the seconds that the bytes of one connection took
peers_stream.py send HOST PORT BYTES
"""

import socket
import sys
import time

BLOCK = 1 << 20


def receive() -> None:
    with socket.create_server(("0.0.0.0", 0)) as server:
        print(server.getsockname()[1], flush=True)
        connection, _ = server.accept()
    start = time.perf_counter()
    block = bytearray(BLOCK)
    while connection.recv_into(block):
        pass
    print(time.perf_counter() - start)


def send(host: str, port: int, size: int) -> None:
    block = bytes(BLOCK)
    with socket.create_connection((host, port)) as connection:
        while size > 0:
            connection.sendall(block[: min(size, BLOCK)])
            size -= BLOCK


if __name__ == "__main__":
    if sys.argv[1] == "receive":
        receive()
    else:
        send(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
