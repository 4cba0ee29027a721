"""The source archive configures and compiles where there is neither git nor the checkout."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIMIT_SECONDS = 600
PACK = "import sys; from scikit_build_core.build import build_sdist; print(build_sdist(sys.argv[1]))"


@pytest.mark.timeout(LIMIT_SECONDS)
def test_a_source_archive_builds_without_git(tmp_path):
    path = tmp_path / "bin"
    path.mkdir()
    (path / "git").write_text("#!/bin/sh\nexit 1\n")
    (path / "git").chmod(0o755)
    environment = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}"}

    def run(*command):
        done = subprocess.run(
            list(map(str, command)), cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=LIMIT_SECONDS,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    name = run(sys.executable, "-c", PACK, tmp_path).split()[-1]
    with tarfile.open(tmp_path / name) as archive:
        names = archive.getnames()
        archive.extractall(tmp_path, filter="data")
    assert not [entry for entry in names if entry.endswith(".so") or "/.git/" in entry or "/.venv" in entry]
    source = tmp_path / name.removesuffix(".tar.gz")
    for file in ("CHANGELOG.md", "LICENSE", "README.md", "docs/README.md", "tests/CMakeLists.txt"):
        assert (source / file).exists(), file
    run("cmake", "-S", source, "-B", tmp_path / "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release")
    run("cmake", "--build", tmp_path / "build", "--target", "qccl_base")
