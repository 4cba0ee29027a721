"""Whether the extension fits the torch that is installed. Loading one that does not crashes, or fails in riddles."""

import torch

_HOW_TO_BUILD = (
    "`make build` in a checkout, or `pip install --no-build-isolation` of one, which takes the torch that is installed"
)


def check_extension() -> None:
    """Raises ImportError unless the extension was built, and for this release of torch.

    c10d's classes have another binary layout in nearly every release. What stands behind a "+", the accelerator that
    torch was built for, changes nothing about them.
    """
    try:
        from ._built_for import TORCH_VERSION
    except ImportError:
        raise ImportError(f"qccl's extension is not built: {_HOW_TO_BUILD}") from None
    if _release(torch.__version__) != _release(TORCH_VERSION):
        raise ImportError(
            f"qccl was built for torch {TORCH_VERSION} and can't work with torch {torch.__version__}, which is "
            f"installed: build qccl again, {_HOW_TO_BUILD}"
        )


def _release(version: str) -> str:
    return version.partition("+")[0]
