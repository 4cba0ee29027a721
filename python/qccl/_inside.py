"""Makes the backend inside a host for qccl.Options(inside=...)."""

from typing import Any

from torch._C._distributed_c10d import PrefixStore, ProcessGroupGloo
from torch.distributed.constants import default_pg_timeout


def make(kind: str, store: Any, name: str, rank: int, size: int) -> Any:
    """A backend of the ranks of a host, which meet in the store. Collective over them."""
    if kind != "gloo":
        raise ValueError(f"no backend {kind!r} inside hosts")
    return ProcessGroupGloo(PrefixStore(f"qccl/inside/{name}", store), rank, size, default_pg_timeout)
