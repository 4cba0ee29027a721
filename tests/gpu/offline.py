"""Runs a command on a machine that nothing can be installed on: apt, pip and others fail, there is no network but the
loopback device and no .venv.

  unshare --map-root-user --net --mount python3 tests/gpu/offline.py CALLS COMMAND...

CALLS is a file, to which each call of apt and so on is added.
"""

import fcntl
import os
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REFUSED = ("apt", "apt-get", "curl", "pip", "pip3", "sudo", "wget")
GET_FLAGS, SET_FLAGS, UP = 0x8913, 0x8914, 1  # SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP


def main() -> int:
    calls, command = sys.argv[1], sys.argv[2:]
    raise_loopback()
    if (ROOT / ".venv").exists():
        subprocess.run(["mount", "-t", "tmpfs", "none", ROOT / ".venv"], check=True)
    with tempfile.TemporaryDirectory(prefix="qccl-refused-") as folder:
        for name in REFUSED:
            program = Path(folder) / name
            program.write_text(f'#!/bin/sh\necho "{name} $*" >>"{calls}"\nexit 1\n')
            program.chmod(0o755)
        return subprocess.run(command, env=os.environ | {"PATH": f"{folder}:/usr/bin:/bin"}).returncode


def raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(end, GET_FLAGS, request))[1]
        fcntl.ioctl(end, SET_FLAGS, struct.pack("16sh14x", b"lo", flags | UP))


if __name__ == "__main__":
    sys.exit(main())
