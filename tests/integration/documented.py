"""The commands and programs of docs/deepspeed.md, run as written there."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "deepspeed.md").read_text()
LIMIT_SECONDS = 500


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def commands(onebit: bool) -> list[str]:
    """The commands that need a DeepSpeed with 1-bit optimizers, or the other commands."""
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    return [line for line in lines if ("--optimizer" in line) == onebit]


def run(command: str) -> str:
    """Runs the command and returns its output; AssertionError if it fails."""
    launcher, *arguments = shlex.split(command)
    assert launcher == "torchrun"
    return run_python("-m", "torch.distributed.run", *arguments)


def run_python(*arguments: object) -> str:
    """Runs Python and returns the output of it and its children; AssertionError if it fails."""
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
