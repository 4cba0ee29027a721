"""Process groups that go on after a failure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from . import _C
from ._api import backend_of


@dataclass(frozen=True)
class LostRank:
    """A rank that failed() lists."""

    rank: int
    """In the group."""
    grade: str
    """"gone": its process ended. "left": it closed the group. "silent": given up, but it may still be running."""
    reason: str


def failed(group: dist.ProcessGroup | None = None) -> list[LostRank]:
    """The lost ranks of the group that this rank knows of, by rank; None means the default group.

    More may have been lost; shrink() finds them. Raises ValueError if this rank is not in the group or the group is
    not qccl's, DistBackendError once the group is closed.
    """
    return [LostRank(*lost) for lost in _C.failed(backend_of(group))]


def shrink(
    group: dist.ProcessGroup | None = None,
    without: Sequence[int] = (),
    *,
    quorum: Literal["majority", "any"] = "majority",
    patience: timedelta | None = None,
    timeout: timedelta | None = None,
) -> dist.ProcessGroup:
    """Goes on with the ranks that live: ends the group and returns a new one of them, in their old order.

    All ranks of the group that live call it, after a call has failed, or, with `without` (ranks of the group), at any
    time; ranks in `without` need not call. All that return have the same members. As with torch's dist.shrink_group(),
    the new group of the default group becomes the default group, with ranks numbered anew, and all other groups are
    destroyed: make them again.

        try:
            dist.all_reduce(gradient)
        except (dist.DistNetworkError, dist.DistBackendError):
            qccl.shrink()

    Args:
        quorum: "majority" takes more than half of the ranks, or the half with rank 0, to go on without ranks that may
            still be running. "any" does not; use it only where something else has ended the others.
        patience: a rank that is silent for so long is left out. None: QCCL_PEER_TIMEOUT, else 60 s.
        timeout: of this call. None: the group's.

    Raises ValueError for another quorum, `without` with this rank, or a rank that does not exist; DistBackendError if
    too few ranks are left or the others went on without this one; DistNetworkError if a rank that lives has not called
    (call again).
    """
    check_shrink_options(quorum, patience)
    target: Any = group or dist.group.WORLD
    backend = backend_of(group)
    successor, members = _C.shrink(backend, list(without), quorum == "any", _ms(patience), _ms(timeout))
    return _replace(target, successor, members)


def check_shrink_options(quorum: str, patience: timedelta | None) -> None:
    if quorum not in ("majority", "any"):
        raise ValueError(f'quorum is "majority" or "any", not {quorum!r}')
    if patience is not None and not isinstance(patience, timedelta):
        raise TypeError(f"patience is a timedelta or None, not {patience!r}")


def _ms(duration: timedelta | None) -> int | None:
    return None if duration is None else max(1, round(duration.total_seconds() * 1000))


def _replace(old: Any, backend: Any, members: list[int]) -> dist.ProcessGroup:
    """Destroys the group and registers a new one of the backend, as torch's _finalize_shrunk_group() does; that one
    opens a new connection to the store, which may have died with its rank."""
    world = c10d._world
    is_default = old is dist.group.WORLD
    name, store = world.pg_map[old]
    config = world.pg_backend_config.get(old, "")
    devices = old._device_types
    remaining = [dist.get_process_group_ranks(old)[member] for member in members]
    group_name: Any = f"{old.group_name}/shrunk"
    if is_default:
        c10d._destroy_all_other_groups(exclude_group=old)
    dist.destroy_process_group(old)
    new = dist.ProcessGroup(c10d.PrefixStore(f"{group_name}/", store), backend.rank(), backend.size())
    new._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)
    for device in devices:
        new._register_backend(device, dist.ProcessGroup.BackendType.CUSTOM, backend)
    new._set_group_name(group_name)
    new._set_group_desc("shrunk")
    ranks = {rank: place for place, rank in enumerate(range(len(remaining)) if is_default else remaining)}
    world.pg_map[new] = (name, store)
    world.pg_names[new] = group_name
    world.pg_backend_config[new] = config
    world.pg_group_ranks[new] = ranks
    world.tags_to_pg.setdefault("", []).append(new)
    world.tags_to_pg.setdefault(f"ptd:{group_name}", []).append(new)
    world.pg_to_tag[new] = f"ptd:{group_name}"
    torch._C._distributed_c10d._register_process_group(group_name, new)
    if is_default:
        c10d._update_default_pg(new)
    return new
