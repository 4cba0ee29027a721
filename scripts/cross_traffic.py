"""Plain TCP traffic that fills a line until it is ended: the other user of the line for wan.sh.

cross_traffic.py receive ADDRESS PORT
cross_traffic.py send ADDRESS PORT CONNECTIONS
"""

import socket
import sys
import threading
import time

BLOCK = bytes(1 << 18)
PATIENCE = 10.0  # seconds for the receiver to begin


def drain(connection: socket.socket) -> None:
    while connection.recv(len(BLOCK)):
        pass


def receive(address: str, port: int) -> None:
    with socket.create_server((address, port)) as server:
        while True:
            threading.Thread(target=drain, args=(server.accept()[0],), daemon=True).start()


def connect(address: str, port: int) -> socket.socket:
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return socket.create_connection((address, port))
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)


def fill(connection: socket.socket) -> None:
    while True:
        connection.sendall(BLOCK)


def send(address: str, port: int, connections: int) -> None:
    threads = [threading.Thread(target=fill, args=(connect(address, port),)) for _ in range(connections)]
    for thread in threads:
        thread.start()


if __name__ == "__main__":
    if sys.argv[1] == "receive":
        receive(sys.argv[2], int(sys.argv[3]))
    else:
        send(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
