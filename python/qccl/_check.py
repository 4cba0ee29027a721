"""Checks that the extension fits the installed torch. Loading one that does not fit crashes or fails obscurely."""

import torch

_HOW_TO_BUILD = "`make build` or `pip install .` in a checkout, which take the torch that is installed"


def check_extension() -> None:
    """Raises ImportError unless the extension was built, and for this minor release of torch.

    The binary layout of c10d's classes changes in nearly every minor release. Patch releases keep it, and so do builds
    for other accelerators, which the version names after a "+".
    """
    try:
        from ._built_for import TORCH_VERSION
    except ImportError:
        raise ImportError(f"qccl's extension is not built: {_HOW_TO_BUILD}") from None
    if _minor_release(torch.__version__) != _minor_release(TORCH_VERSION):
        raise ImportError(
            f"qccl was built for torch {TORCH_VERSION} and can't work with torch {torch.__version__}, which is "
            f"installed: build qccl again, {_HOW_TO_BUILD}"
        )


def _minor_release(version: str) -> list[str]:
    return version.split(".")[:2]
