"""The text to train on: the user's file, or else the sources of Python's standard library, which every machine
that runs this has."""

import sysconfig
from pathlib import Path

import torch

_STANDARD_BYTES = 4 << 20
_LEAST_BYTES = 64 << 10


class TextError(Exception):
    """The text can't be used; the message says why and what to do."""


def load(file: str | None) -> tuple[torch.Tensor, torch.Tensor]:
    """The bytes to train on, and the last tenth to validate with."""
    data = _read(Path(file)) if file else _standard_library()
    if len(data) < _LEAST_BYTES:
        raise TextError(f"{describe(file)}: {len(data)} bytes; the demo needs {_LEAST_BYTES} or more")
    tokens = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    cut = len(tokens) * 9 // 10
    return tokens[:cut], tokens[cut:]


def describe(file: str | None) -> str:
    return file or "the sources of Python's standard library"


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise TextError(f"can't read the text: {error.strerror}: {path}") from error


def _standard_library() -> bytes:
    """Modules in order of their names, up to a size; the same on every rank."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    data = bytearray()
    for path in sorted(folder.glob("*.py")):
        data += path.read_bytes()
        if len(data) >= _STANDARD_BYTES:
            break
    return bytes(data[:_STANDARD_BYTES])
