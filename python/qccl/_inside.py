"""Makes the backend inside a host for qccl.Options(inside=...)."""

from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import PrefixStore, ProcessGroupGloo


def make(kind: str, store: Any, name: str, rank: int, size: int, timeout: timedelta) -> Any:
    """A backend of the ranks of a host, which meet in the store. Collective over them."""
    if kind != "gloo":
        raise ValueError(f"no backend {kind!r} inside hosts")
    return ProcessGroupGloo(PrefixStore(f"qccl/inside/{name}", store), rank, size, timeout)
