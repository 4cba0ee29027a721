"""The wheel's requirements: a torch of the minor release that its extension is built for and loads with, so that pip
does not install it beside another release. Called by scikit-build-core (pyproject.toml)."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DESCRIBE_TORCH = Path(__file__).resolve().parent.parent / "bindings" / "torch" / "describe_torch.py"


def dynamic_metadata(field: str, settings: Mapping[str, Any]) -> list[str]:
    assert field == "dependencies" and not settings
    asked = subprocess.run([sys.executable, str(DESCRIBE_TORCH)], capture_output=True, text=True)
    if asked.returncode:
        sys.exit(asked.stderr)
    major, minor, *_ = asked.stdout.split(".")
    return [f"torch=={major}.{minor}.*", "numpy"]
