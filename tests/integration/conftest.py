"""Tests with DeepSpeed and Megatron themselves, in a separate environment: scripts/run_integration.sh."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "torch"), str(ROOT / "tests" / "integration"), str(ROOT / "examples")]

# Set before DeepSpeed is imported, because it reads them then.
os.environ["DS_ACCELERATOR"] = "cpu"
os.environ.setdefault("OMP_NUM_THREADS", "1")
