"""Makes the backend "qccl" known to torch.distributed by name.

torch calls register() when it is imported (entry point "torch.backends"; from torch 2.14 on when the
name is first used, "torch.distributed.backends"). Kept apart from the package so that `import torch` neither
loads QCCL's extension nor fails with it.
"""

from typing import Any


def register() -> None:
    """Registers the backend; doing it again changes nothing."""
    import torch.distributed as dist

    if dist.is_available():
        dist.Backend.register_backend("qccl", _create, extended_api=True, devices=["cpu"])


def _create(backend_options: Any, pg_options: Any) -> Any:
    from qccl._backend import create

    return create(backend_options, pg_options)
