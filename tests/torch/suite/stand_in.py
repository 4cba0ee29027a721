"""PyTorch's tests of a backend on a device that is not there: those that need CUDA run over the fake device.

The tests say "cuda" in their text. Here the text says "fakecuda" instead (tests/torch/device/fakecuda.py), and the
decorators that count GPUs count the fake ones. No assertion changes.
"""

import importlib.machinery
import importlib.util
import re
import sys
import types
from pathlib import Path
from typing import Any

import batch_norm
import torch
import torch.distributed as dist

import qccl_autoload

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "device"))
import fakecuda  # noqa: E402

DEVICES = 8
LONGEST_DELAY = 200  # microseconds: the tests have thousands of operators

CHANGES = (
    (r"(?<!import )(?<!from )\btorch\.cuda\b", "torch.fakecuda"),
    (r"\.cuda\(", ".fakecuda("),
    (r'(?<!backend_feature\[)"cuda(:|")', r'"fakecuda\1'),
    (r"from torch\.cuda\.amp import autocast, GradScaler", "from stand_in import GradScaler, autocast"),
)
# Tests that need nccl itself, or CUDA. Releases of torch after 2.11 skip the first and the last themselves.
CANNOT = {
    "test_DistributedDataParallel": "a DDP with a static graph, saved after a step, makes no average in its next step",
    "test_monitored_barrier_allreduce_hang": "expects nccl's words for a timeout",
    "test_monitored_barrier_allreduce_hang_wait_all_ranks": "expects nccl's words for a timeout",
    "test_nccl_high_priority_stream": "sets options of nccl's",
    "test_ddp_uneven_inputs": "has convolutions of 1000 x 1000 points, minutes of a processor",
    "test_ddp_native_mixed_precision_ignored_params": "loses its marks: to() makes new parameters on such a device",
    "test_ddp_profiling_execution_trace": "compares the backend's name with nccl",
}


class Loader(importlib.machinery.SourceFileLoader):
    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> Any:
        text = bytes(data).decode()
        for pattern, replacement in CHANGES:
            text, count = re.subn(pattern, replacement, text)
            assert count > 0, f"{path} has no {pattern}: this torch needs a look"
        return super().source_to_code(text.encode(), path, _optimize=_optimize)

    def get_code(self, fullname: str) -> Any:
        """Without the cache of compiled files."""
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def load(name: str) -> types.ModuleType:
    """Imports a module of torch with its text changed."""
    found = importlib.util.find_spec(name)
    assert found is not None and found.origin is not None
    spec = importlib.util.spec_from_file_location(name, found.origin, loader=Loader(name, found.origin))
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def autocast(**how: Any) -> torch.amp.autocast:
    return torch.amp.autocast(fakecuda.NAME, **how)


def GradScaler(**how: Any) -> torch.amp.GradScaler:  # noqa: N802  like torch.cuda.amp.GradScaler
    return torch.amp.GradScaler(fakecuda.NAME, **how)


def enter(common: types.ModuleType, backend: str) -> None:
    """Makes the device, lets the backend serve it, and has the decorators in `common` count it."""
    assert fakecuda.EXTENSION is not None, f"there is no qccl_fake_device for torch {torch.__version__}: build it"
    fakecuda.load(DEVICES, LONGEST_DELAY)
    batch_norm.register()
    torch.utils.generate_methods_for_privateuse1_backend()
    qccl_autoload.replace("nccl")  # for groups that tests make beside the default one
    dist.Backend.backend_capability[backend] = ["cpu", fakecuda.NAME]
    gpus = types.SimpleNamespace(**{name: getattr(fakecuda, name) for name in dir(fakecuda)})
    gpus.nccl = types.SimpleNamespace(version=lambda: (99, 0, 0))
    common.torch = types.SimpleNamespace(**{name: getattr(torch, name) for name in dir(torch)})
    common.torch.cuda = gpus
    common.c10d = types.SimpleNamespace(**{**vars(dist), "is_nccl_available": lambda: True})
    common.TEST_CUDA = True
