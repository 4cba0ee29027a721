"""torch.fakecuda: the module of the device that qccl_fake_device makes of "privateuseone", like torch.cuda for CUDA.

load() loads it, once a process and after forks: the device's streams are threads.
"""

import importlib.util
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

NAME = "fakecuda"
# What CMake's target qccl_fake_device makes.
FOLDER = Path(os.environ.get("QCCL_FAKE_DEVICE", Path(__file__).resolve().parents[3] / "build" / "fake_cuda"))
LONGEST_DELAY = 10_000  # microseconds, of an item of a stream of the pool; 200 of the default streams


def _extension() -> Path | None:
    """The device's code, if it is built, and for this torch."""
    built_for = FOLDER / "built_for"
    if not built_for.exists() or built_for.read_text().strip() != torch.__version__:
        return None
    return next(FOLDER.glob("qccl_fake_device*.so"), None)


EXTENSION = _extension()


def load(devices: int = 2, longest_delay: int = LONGEST_DELAY) -> ModuleType:
    """The driver's functions for tests. Also registers torch.fakecuda."""
    if "qccl_fake_device" not in sys.modules:
        spec = importlib.util.spec_from_file_location("qccl_fake_device", str(EXTENSION))
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.set_device_count(devices)
        module.set_delays(1, longest_delay)
        sys.modules["qccl_fake_device"] = module
        torch._register_device_module(NAME, sys.modules[__name__])
        torch.utils.backend_registration._privateuse1_backend_name = NAME
    return sys.modules["qccl_fake_device"]


# ---- devices


class device:  # noqa: N801  like torch.cuda.device
    """While it lasts, this thread's device."""

    def __init__(self, which: Any) -> None:
        self._which = which

    def __enter__(self) -> None:
        self._before = current_device()
        set_device(self._which)

    def __exit__(self, *_: object) -> None:
        set_device(self._before)


def is_available() -> bool:
    return True


def is_initialized() -> bool:
    return True


def init() -> None:
    pass


def device_count() -> int:
    return int(sys.modules["qccl_fake_device"].device_count())


def current_device() -> int:
    return torch.accelerator.current_device_index()


def set_device(which: Any) -> None:
    index = index_of(which)
    if index >= 0:
        torch.accelerator.set_device_index(index)


def synchronize(device: Any = None) -> None:
    load().synchronize(index_of(device))


def index_of(which: Any) -> int:
    if isinstance(which, int):
        return which
    index = None if which is None else torch.device(which).index
    return current_device() if index is None else index


# ---- streams


def Stream(which: Any = None, priority: int = 0) -> torch.Stream:  # noqa: N802  like torch.cuda.Stream
    return torch.Stream(torch.device(NAME, index_of(which)), priority=priority)


def Event(enable_timing: bool = False, **_: Any) -> torch.Event:  # noqa: N802  like torch.cuda.Event
    return torch.Event(NAME, enable_timing=enable_timing)


def current_stream(which: Any = None) -> torch.Stream:
    return torch.accelerator.current_stream(index_of(which))


def default_stream(which: Any = None) -> torch.Stream:
    return stream_of(0, which)


def stream_of(number: int, which: Any = None) -> torch.Stream:
    """Of the pool, from 1 on; 0 is the default stream."""
    kind = int(torch._C._autograd.DeviceType.PrivateUse1)
    return torch.Stream(stream_id=number, device_index=index_of(which), device_type=kind)


def set_stream(chosen: torch.Stream) -> None:
    torch.accelerator.set_stream(chosen)


def stream(chosen: torch.Stream | None) -> AbstractContextManager[Any]:
    return nullcontext() if chosen is None else chosen


# ---- random numbers: operators run on the CPU, with its generator


def _is_in_bad_fork() -> bool:
    return False


def manual_seed(_seed: int) -> None:
    pass


manual_seed_all = manual_seed


def get_rng_state(_which: Any = NAME) -> torch.Tensor:
    return torch.get_rng_state()


def set_rng_state(state: torch.Tensor, _which: Any = NAME) -> None:
    torch.set_rng_state(state)


# ---- memory and the rest


def memory_allocated(_which: Any = None) -> int:
    return 0


max_memory_allocated = memory_reserved = max_memory_reserved = memory_allocated


def memory_stats(_which: Any = None) -> dict[str, int]:
    return {"num_alloc_retries": 0}


def empty_cache() -> None:
    pass


reset_peak_memory_stats = empty_cache


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.float16, torch.bfloat16]
