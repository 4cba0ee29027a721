"""`make test-torch TORCH=...` with the interpreter that PYTHON names, in a copy of its scripts with fake programs."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Says that it is Python 3.13, copies itself into a venv, and passes every test but those that FAILING names.
INTERPRETER = """
echo "$0 $*" >>"$CALLS"
case "$*" in
"-c "*) echo 3.13 ;;
"-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
*/dev/stdin) cat >/dev/null ;;
*"$FAILING") exit 1 ;;
esac
"""


@pytest.fixture
def make(tmp_path):
    """Runs `make test-torch` with these variables; returns its exit status, what it said and the programs' calls."""
    calls = tmp_path / "calls.log"

    def program(name: str, body: str = 'echo "$0 $*" >>"$CALLS"') -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(0o755)
        return path

    for name in ("Makefile", "requirements.txt", "CMakePresets.json"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("scripts/install_torch.sh", "scripts/compile.py", "path/cmake"):
        program(name)
    shutil.copy(ROOT / "scripts" / "test_torch_release.sh", tmp_path / "scripts")
    interpreter = program("path/other_python", INTERPRETER)

    def run(*arguments: str, failing: str = "none"):
        ours = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "ARGS")}
        path = f"{interpreter.parent}:{os.environ['PATH']}"
        done = subprocess.run(
            ["make", "-o", "build", "test-torch", *arguments],
            cwd=tmp_path,
            env={**ours, "PATH": path, "PYTHON": interpreter.name, "CALLS": str(calls), "FAILING": failing},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60,
        )  # fmt: skip
        lines = [line.replace(f"{tmp_path}/", "") for line in calls.read_text().splitlines()]
        calls.unlink()
        return done.returncode, done.stdout, lines

    return run


def test_environment_and_builds_are_of_that_release_and_that_python(make):
    exit_status, said, calls = make("TORCH=2.15.0")
    assert exit_status == 0 and said.endswith("torch 2.15.0, Python 3.13: PASSED\n"), said
    python = ".venv-torch-2.15.0-python3.13/bin/python"
    assert "path/other_python -m venv .venv-torch-2.15.0-python3.13" in calls
    assert f"scripts/install_torch.sh {python} 2.15.0" in calls
    assert [line for line in calls if "build-dir=build-torch-2.15.0-python3.13 ." in line and line.startswith(python)]
    assert "scripts/compile.py build-torch-2.15.0-python3.13-device qccl_fake_device" in calls
    assert [line for line in calls if "tests/torch" in line] == [
        f"{python} -m pytest -q -rs --timeout 300 tests/torch",
        f"{python} tests/torch/suite/run.py --passes 100",
        f"{python} tests/torch/suite/run.py --all",
    ]


def test_environment_is_made_once_for_each_release(make):
    def makes_it(release: str) -> bool:
        return any(" -m venv " in line for line in make(f"TORCH={release}")[2])

    assert [makes_it(release) for release in ("2.15.0", "2.15.0", "2.11.0")] == [True, False, True]


def test_failed_part_is_named_and_the_others_run(make):
    exit_status, said, calls = make("TORCH=2.15.0", failing="--passes 100")
    assert exit_status != 0
    assert "torch 2.15.0, Python 3.13: FAILED: PyTorch's own tests, 3 ranks\n" in said
    assert any(line.endswith("run.py --all") for line in calls)
