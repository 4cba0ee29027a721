"""Tests with the last DeepSpeed that has 1-bit optimizers, which is not the one of the other integration tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
