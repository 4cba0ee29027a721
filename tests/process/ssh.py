"""Stand-ins for ssh: hosts that are this machine, reached through a program that is called as ssh is."""

import contextlib
import socket
import stat
import subprocess
import sys
import threading

# Passes bytes between its own input and output and a socket, as ssh does; exits when the other side is done.
CLIENT = """
import os, socket, sys, threading
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
connection.sendall("\\0".join(sys.argv[2:]).encode() + b"\\n")
def upwards():
    while data := os.read(0, 65536):
        connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)
threading.Thread(target=upwards, daemon=True).start()
try:
    while data := connection.recv(65536):
        os.write(1, data)
except ConnectionResetError:
    pass  # the command has ended and left something unread
"""


def script(file, text: str):
    """An executable file."""
    file.write_text(text)
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return file


def simple(folder):
    """As ssh, but the command runs below it."""
    return script(folder / "ssh", '#!/bin/sh\nshift\ncd / && exec env -i PATH=/usr/bin:/bin sh -c "$*"\n')


class Daemon:
    """As sshd: commands are its children, not their callers', and see the end of file when those are gone."""

    def __init__(self, folder, **variables: str):
        self.client = script(
            folder / "ssh_client", f"#!/bin/sh\nexec {sys.executable} -S {folder}/ssh_client.py {folder}/sshd \"$@\"\n"
        )
        (folder / "ssh_client.py").write_text(CLIENT)
        self.variables = {"PATH": "/usr/bin:/bin", **variables}
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(f"{folder}/sshd")
        self.listener.listen()
        self.processes: list[subprocess.Popen] = []
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection = self.listener.accept()[0]
                with connection:
                    self._start(connection)

    def _start(self, connection: socket.socket) -> None:
        words = b""
        while not words.endswith(b"\n"):
            words += connection.recv(1)
        command = " ".join(words.decode().rstrip("\n").split("\0")[1:])
        process = subprocess.Popen(
            ["sh", "-c", command], stdin=connection, stdout=connection, env=self.variables, cwd="/",
            start_new_session=True,
        )  # fmt: skip
        self.processes.append(process)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()
        for process in self.processes:
            process.kill()
            process.wait()
