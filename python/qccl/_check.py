"""Whether the extension fits the torch that is installed. Loading one that does not crashes, or fails in riddles."""

import torch


def check_extension() -> None:
    """Raises ImportError unless the extension was built, and for exactly this torch.

    c10d's classes have another binary layout in nearly every release.
    """
    try:
        from ._built_for import TORCH_VERSION
    except ImportError:
        raise ImportError("qccl's extension is not built: run `make build` in a checkout, or `pip install`") from None
    if torch.__version__ != TORCH_VERSION:
        raise ImportError(
            f"qccl was built for torch {TORCH_VERSION} and can't work with torch {torch.__version__}, which is "
            "installed: build qccl again (`make build` in a checkout, or `pip install`)"
        )
