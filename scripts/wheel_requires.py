"""What the wheel requires: the release of torch that its extension is built for and loads with, so that pip does
not put it beside another. Asked by scikit-build-core (pyproject.toml)."""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any


def dynamic_metadata(field: str, settings: Mapping[str, Any]) -> list[str]:
    assert field == "dependencies" and not settings
    release = version("torch").partition("+")[0]  # without the accelerator, which changes nothing for the extension
    return [f"torch=={release}", "numpy"]
