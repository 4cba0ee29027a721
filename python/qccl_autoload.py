"""Makes the backend "qccl" known to torch.distributed by name, and where QCCL_REPLACE says so, by others' names.

torch calls register() when it is imported (entry point "torch.backends"; from torch 2.14 on when the
name is first used, "torch.distributed.backends"). Kept apart from the package so that `import torch` neither
loads QCCL's extension nor fails with it.
"""

import functools
import os
import sys
from typing import Any

REPLACEABLE = ("gloo", "mpi", "nccl")
_launch: Any = None  # reserves rank 0's port until torch listens on it


def register() -> None:
    """Registers the backend; doing it again changes nothing."""
    import torch.distributed as dist

    if dist.is_available():
        dist.Backend.register_backend("qccl", _create, extended_api=True, devices=["cpu", "cuda"])
        if wanted := os.environ.get("QCCL_REPLACE"):
            replace(wanted)


def replace(names: str) -> None:
    """From now on torch.distributed takes QCCL where a program asks for one of these backends ("gloo", "gloo,mpi").

    A program that asks for no backend gets QCCL where torch would have taken one of them. dist.get_backend() answers
    as it would without QCCL, because programs decide by it; torch's own gloo stays for torch's internal use. ValueError
    for a name other than gloo, mpi or nccl.
    """
    import torch.distributed as dist

    replaced = {name.strip().lower() for name in names.split(",") if name.strip()}
    if unknown := sorted(replaced - set(REPLACEABLE)):
        raise ValueError(
            f"QCCL_REPLACE={names}: {', '.join(unknown)} cannot be replaced, only {', '.join(REPLACEABLE)}"
        )
    original = getattr(dist.Backend.__new__, "original", dist.Backend.__new__)
    _answer_what_was_asked()

    def resolve_one(name: str) -> str:
        if name in replaced and name == "mpi":
            _export_launcher_variables()
        return "qccl" if name in replaced else name

    def resolve_all(value: str) -> str:
        if value == dist.Backend.UNDEFINED:
            return resolve_one(_default_backend()) if _default_backend() in replaced else value
        if ":" not in value:
            return resolve_one(value)
        pairs = [pair.partition(":") for pair in value.split(",")]  # "cpu:gloo,cuda:nccl"
        return ",".join(f"{device}:{resolve_one(backend)}" for device, _, backend in pairs)

    def resolve(cls: Any, name: str) -> Any:
        if isinstance(name, _Replacement):
            return name
        value = original(cls, name)
        resolved = resolve_all(value)
        return value if resolved == value else _Replacement(resolved, value)

    resolve.original = original  # type: ignore[attr-defined]
    dist.Backend.__new__ = resolve  # type: ignore[method-assign]


class _Replacement(str):
    """The name of the backend in place of the one that a program asked for; torch keeps it with the group."""

    def __new__(cls, name: str, asked: str) -> "_Replacement":
        made = super().__new__(cls, name)
        made.asked = asked
        return made

    asked: str


def _answer_what_was_asked() -> None:
    """Makes dist.get_backend() answer with what the program asked for, in all modules that have imported it."""
    import torch.distributed as dist

    original = dist.get_backend
    if hasattr(original, "original"):
        return

    @functools.wraps(original)
    def get_backend(group: Any = None) -> Any:
        name = original(group)
        return getattr(name, "asked", name)

    get_backend.original = original  # type: ignore[attr-defined]
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get("get_backend") is original:
            module.get_backend = get_backend  # type: ignore[attr-defined]


def _default_backend() -> str:
    """The backend that torch takes for a program that names none."""
    import torch
    import torch.distributed as dist

    return str(dist.Backend.default_device_backend_map.get(torch._C._get_accelerator().type, ""))


def _export_launcher_variables() -> None:
    """mpirun sets none of the variables by which torch finds the ranks, because torch asks MPI itself."""
    global _launch
    if "RANK" not in os.environ:
        from qccl._launch import discover

        _launch = discover()


def _create(backend_options: Any, pg_options: Any) -> Any:
    from qccl._backend import create

    return create(backend_options, pg_options)
