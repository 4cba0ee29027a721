"""Whether the extension fits the torch that is installed. Loading one that does not crashes, or fails in riddles."""

import torch

_HOW_TO_BUILD = "`make build` or `pip install .` in a checkout, which take the torch that is installed"


def check_extension() -> None:
    """Raises ImportError unless the extension was built, and for this minor release of torch.

    c10d's classes have another binary layout in nearly every minor release. Patch releases keep it, and so do builds
    for other accelerators, whose names stand behind a "+".
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
