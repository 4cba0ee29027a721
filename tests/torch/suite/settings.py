"""How the ranks of a run of torch's own tests are started. torch reads its settings from the environment when the tests
are imported. Every rank must do the same, because with the start method spawn it imports the tests again."""

import json
import os
from dataclasses import asdict, dataclass

NAME = "qccl"


@dataclass(frozen=True)
class Settings:
    world: int = 3
    start: str = "fork"  # of ranks: fork is several times faster than spawn
    seconds_per_test: int = 180
    stand_in: bool = False  # of a GPU: the fake device (stand_in.py)

    def export(self, folder: str) -> None:
        """Exports the settings for this process and its children, which put their files into the folder. Call it before
        torch is imported."""
        os.environ["QCCL_SUITE"] = json.dumps(asdict(self))
        os.environ.update(
            BACKEND=NAME,
            TEMP_DIR=folder,
            WORLD_SIZE=str(self.world),
            INIT_METHOD=f"file://{folder}/unused",  # without a file, a test of re-initialisation is skipped
            MASTER_ADDR="127.0.0.1",
            CUDA_VISIBLE_DEVICES="",  # fewer GPUs than ranks would skip everything
            GLOO_SOCKET_IFNAME="lo",  # for groups of gloo beside those of qccl
            OMP_NUM_THREADS="1",
            DISTRIBUTED_TESTS_DEFAULT_TIMEOUT=str(self.seconds_per_test),
        )

    @staticmethod
    def exported() -> "Settings":
        return Settings(**json.loads(os.environ["QCCL_SUITE"]))
