"""The wheel's requirements: a torch of the minor releases that it has extensions for, so that pip does not install it
beside another one. Called by scikit-build-core (pyproject.toml)."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DESCRIBE_TORCH = Path(__file__).resolve().parent.parent / "bindings" / "torch" / "describe_torch.py"


def dynamic_metadata(field: str, settings: Mapping[str, Any]) -> list[str]:
    assert field == "dependencies" and not settings
    headers = os.environ.get("QCCL_TORCH_HEADERS")
    return [releases_of(Path(headers)) if headers else installed_release(), "numpy"]


def releases_of(headers: Path) -> str:
    """The releases whose headers lie in the folder."""
    releases = sorted(tuple(map(int, folder.name.split("."))) for folder in headers.glob("[0-9]*"))
    if not releases:
        sys.exit(f"QCCL_TORCH_HEADERS={headers} has no headers of torch: run `make wheel`")
    (major, first), (last_major, last) = releases[0], releases[-1]
    if releases != [(major, minor) for minor in range(first, last + 1)]:
        sys.exit(f"QCCL_TORCH_HEADERS={headers} lacks a release between {major}.{first} and {last_major}.{last}")
    return f"torch>={major}.{first},<{major}.{last + 1}"


def installed_release() -> str:
    asked = subprocess.run([sys.executable, str(DESCRIBE_TORCH)], capture_output=True, text=True)
    if asked.returncode:
        sys.exit(asked.stderr)
    major, minor, *_ = asked.stdout.split(".")
    return f"torch=={major}.{minor}.*"
