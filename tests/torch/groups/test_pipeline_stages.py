"""A pipeline whose stages are Python and C++ programs."""

import fcntl
import subprocess
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks import TIMEOUT, run_processes, values_of

from qccl.pipeline import Pipeline

STAGE = Path(__file__).resolve().parents[3] / "build" / "tests" / "pipeline_stage"
WORLD = 3


class DirectoryStore(dist.Store):
    """A file for each of QCCL's keys, without the prefixes that torch puts before them, as in pipeline_stage.cc."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def path(self, key: str) -> Path:
        return self.folder / key[max(0, key.find("qccl/torch")) :].replace("/", "+")

    def set(self, key: str, value: bytes) -> None:
        written = self.path(key).with_name(self.path(key).name + ".written")
        written.write_bytes(value.encode() if isinstance(value, str) else value)
        written.rename(self.path(key))

    def get(self, key: str) -> bytes:
        self.wait([key], TIMEOUT)
        return self.path(key).read_bytes()

    def check(self, keys: list[str]) -> bool:
        return all(self.path(key).exists() for key in keys)

    def wait(self, keys: list[str], timeout=TIMEOUT) -> None:
        deadline = time.monotonic() + timeout.total_seconds()
        while not self.check(keys):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{keys} timed out")
            time.sleep(0.001)

    def add(self, key: str, delta: int) -> int:
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            total = delta + int(self.path(key).read_bytes() if self.check([key]) else 0)
            self.set(key, str(total).encode())
        return total


@pytest.mark.parametrize("variable", [True, False])
def test_python_stages_and_a_cpp_stage_exchange_tensors(tmp_path, variable):
    if not STAGE.exists():
        pytest.skip(f"{STAGE} is not built: run `make test`")

    def body(rank):
        store = DirectoryStore(tmp_path)
        dist.init_process_group("qccl", store=store, rank=rank, world_size=WORLD, timeout=TIMEOUT)
        pipeline = Pipeline(variable_shapes=variable)
        shape = None if variable else (2, 3)
        for step in range(3):
            output = pipeline.recv_forward(shape)
            output = torch.arange(6.0).reshape(2, 3) if output is None else output * 10
            gradient = pipeline.send_forward_recv_backward(output + step, shape)
            assert torch.equal(gradient, -(output + step) if rank == 1 else -10 * (output + step) - step)
            pipeline.send_backward(gradient)
        dist.destroy_process_group()

    command = [str(STAGE), str(tmp_path), str(WORLD - 1), str(WORLD), "variable" if variable else "known"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as stage:
        try:
            values_of(run_processes(body, WORLD - 1))
            assert stage.wait(TIMEOUT.total_seconds()) == 0, stage.stderr.read()
        finally:
            stage.kill()
