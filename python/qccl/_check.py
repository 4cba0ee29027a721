"""Finds the extension that fits the installed torch. Loading one that does not fit crashes or fails obscurely."""

import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import torch

_HOW_TO_BUILD = "`make build` or `pip install .` in a checkout, which take the torch that is installed"


def extension_folder() -> str:
    """The folder with the extension for this minor release of torch, or ImportError if there is none.

    The binary layout of c10d's classes changes in nearly every minor release. Patch releases keep it, and so do builds
    for other accelerators, which the version names after a "+".
    """
    built = _built_releases()
    if not built:
        raise ImportError(
            f"{Path(__file__).parent} has no extension for this Python, {sys.version.split()[0]}: build it by "
            f"{_HOW_TO_BUILD}"
        )
    release = ".".join(torch.__version__.split(".")[:2])
    if release not in built:
        raise ImportError(
            f"qccl was built for torch {', '.join(built)} and can't work with torch {torch.__version__}, which is "
            f"installed: install one of these, or build qccl again by {_HOW_TO_BUILD}"
        )
    return str(built[release])


def _built_releases() -> dict[str, Path]:
    """The folders with an extension for this Python, by torch's release."""
    folders = [
        folder
        for folder in Path(__file__).parent.glob("torch_*")
        if any((folder / f"_C{suffix}").exists() for suffix in EXTENSION_SUFFIXES)
    ]
    folders.sort(key=lambda folder: [int(part) for part in folder.name.removeprefix("torch_").split(".")])
    return {folder.name.removeprefix("torch_"): folder for folder in folders}
