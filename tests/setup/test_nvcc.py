"""Where the build finds CUDA's compiler (cmake/QcclNvcc.cmake), with stand-ins that only know their release, and when
make lets it look.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# From the first to the last that is looked at, in a file system of the test's.
PLACES = ("source/.venv-cuda/nvcc/bin", "home/bin", "path", "usr/local/cuda/bin")


@pytest.fixture
def system(tmp_path):
    """A root folder with a copy of the script, in which it looks for nvcc and nowhere else."""
    (tmp_path / "source" / "cmake").mkdir(parents=True)
    shutil.copy(ROOT / "cmake" / "QcclNvcc.cmake", tmp_path / "source" / "cmake")
    return tmp_path


def put_nvcc(folder: Path, release: str) -> Path:
    nvcc = folder / "nvcc"
    folder.mkdir(parents=True)
    nvcc.write_text(f'#!/bin/sh\necho "Cuda compilation tools, release {release}, V{release}.1"\n')
    nvcc.chmod(0o755)
    return nvcc


def find(system: Path, *flags: str) -> subprocess.CompletedProcess:
    only_there = [f"-DCMAKE_FIND_ROOT_PATH={system}", "-DCMAKE_FIND_ROOT_PATH_MODE_PROGRAM=ONLY"]
    variables = {"PATH": f"{system / 'path'}:/usr/bin:/bin", "CUDA_HOME": str(system / "home")}
    command = ["cmake", *only_there, *flags, "-P", system / "source" / "cmake" / "QcclNvcc.cmake"]
    return subprocess.run(command, env=variables, cwd="/", capture_output=True, text=True, timeout=60)


def found(system: Path, *flags: str) -> Path:
    done = find(system, *flags)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.removeprefix("-- ").strip()).resolve()


def test_the_own_environment_comes_before_cuda_home_path_and_the_default_folder(system):
    nvccs = [put_nvcc(system / place, "13.0") for place in PLACES]
    for nvcc in nvccs:
        assert found(system) == nvcc
        nvcc.unlink()


def test_without_a_compiler_the_reason_says_what_to_run(system):
    done = find(system)
    words = " ".join(done.stderr.split())
    assert done.returncode != 0
    assert "nvcc is neither in PATH nor CUDA_HOME; scripts/install_cuda.sh installs it" in words


@pytest.mark.parametrize(("release", "is_good"), [("11.8", False), ("12.7", False), ("12.8", True), ("13.0", True)])
def test_a_compiler_that_is_too_old_is_named(system, release, is_good):
    nvcc = put_nvcc(system / "path", release)
    done = find(system)
    assert (done.returncode == 0) == is_good
    words = " ".join(done.stderr.split())
    assert is_good or f"{nvcc} is no nvcc of 12.8 or later; scripts/install_cuda.sh installs one" in words


def test_a_program_that_says_no_release_is_no_compiler(system):
    put_nvcc(system / "path", "none")
    assert find(system).returncode != 0


def test_a_compiler_that_is_gone_is_looked_for_again(system):
    nvcc = put_nvcc(system / "path", "13.0")
    assert found(system, f"-DQCCL_NVCC={system / 'gone' / 'nvcc'}") == nvcc


@pytest.fixture
def configured(tmp_path):
    """A folder with the Makefile and what it looks at, as after a build."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    inputs = ["CMakePresets.json", "scripts/packages.txt", "requirements.txt"]
    for seconds, name in enumerate([*inputs, "build/build.ninja"]):
        put_file(tmp_path / name, seconds)
    return tmp_path


def test_make_configures_again_once_a_compiler_is_installed(configured):
    assert "cmake --preset default" not in made(configured, "build")
    put_file(configured / ".venv-cuda" / "installed", 10)
    assert "cmake --preset default" in made(configured, "build")


def test_the_demo_runs_in_the_environment_that_is_named(configured):
    assert ".venv/bin/python demo/demo.py --quick" in made(configured, "demo", "ARGS=--quick")
    assert ".venv-gpu/bin/python demo/demo.py" in made(configured, "demo", QCCL_VENV=".venv-gpu")


def put_file(file: Path, seconds: float) -> None:
    file.parent.mkdir(exist_ok=True)
    file.touch()
    os.utime(file, (seconds, seconds))


def made(folder: Path, *words: str, **variables: str) -> list[str]:
    """The commands that make would run."""
    kept = {name: value for name, value in os.environ.items() if name not in ("QCCL_VENV", "MAKEFLAGS", "MAKELEVEL")}
    command = ["make", "-n", *words]
    done = subprocess.run(command, env=kept | variables, cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return [line.strip() for line in done.stdout.splitlines()]
