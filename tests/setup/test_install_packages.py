"""scripts/install_packages.sh on machines that lack things, simulated by programs put first in PATH."""

import os
import stat
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = [
    line.split("#")[0].strip()
    for line in (ROOT / "scripts" / "packages.txt").read_text().splitlines()
    if line.split("#")[0].strip()
]


class Machine:
    """A folder of fake programs that precedes (or replaces) the real ones in PATH."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.calls = folder / "calls.log"
        self.calls.write_text("")

    def program(self, name: str, body: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def has_installed(self, packages: list[str]) -> None:
        lines = "".join(f"installed {package}\\n" for package in packages)
        self.program("dpkg-query", f"printf '{lines}'; exit 1")

    def user_is(self, uid: int) -> None:
        self.program("id", f"echo {uid}")

    def records(self, name: str, then: str = "") -> None:
        self.program(name, f'echo "{name} $*" >> {self.calls}\n{then}')

    def run(self) -> subprocess.CompletedProcess:
        environment = {"PATH": f"{self.folder}:{os.environ['PATH']}", "HOME": str(self.folder)}
        return subprocess.run(
            [ROOT / "scripts" / "install_packages.sh"],
            env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
        )  # fmt: skip


@pytest.fixture
def machine(tmp_path):
    machine = Machine(tmp_path)
    machine.records("apt-get")
    machine.records("sudo", 'if [ "$1" = -n ]; then exit 1; fi; "$@"')
    return machine


def test_nothing_is_said_or_done_when_all_is_installed(machine):
    machine.has_installed(PACKAGES)
    result = machine.run()
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert machine.calls.read_text() == ""


def test_root_installs_exactly_what_is_missing(machine):
    machine.has_installed([package for package in PACKAGES if package not in ("ccache", "libfmt-dev")])
    machine.user_is(0)
    result = machine.run()
    assert result.returncode == 0, result.stderr
    update, install = machine.calls.read_text().splitlines()
    assert update.endswith(" update")
    assert install.endswith(" install -y --no-install-recommends ccache libfmt-dev")


def test_a_user_installs_through_sudo_that_asks_no_password(machine):
    machine.has_installed(PACKAGES[1:])
    machine.user_is(1000)
    machine.records("sudo", 'if [ "$1" = -n ]; then exit 0; fi; "$@"')
    result = machine.run()
    assert result.returncode == 0, result.stderr
    calls = machine.calls.read_text().splitlines()
    assert calls[-1].startswith("apt-get ") and calls[-1].endswith(f" {PACKAGES[0]}")
    assert any(call.startswith("sudo env DEBIAN_FRONTEND=noninteractive apt-get") for call in calls)


def test_a_user_who_may_not_install_is_told_the_command(machine):
    machine.has_installed(PACKAGES[2:])
    machine.user_is(1000)
    result = machine.run()
    assert result.returncode == 1
    assert f"apt-get install --no-install-recommends {PACKAGES[0]} {PACKAGES[1]}\n" in result.stderr
    assert "apt-get" not in machine.calls.read_text()


def test_a_failed_install_fails(machine):
    machine.has_installed([])
    machine.user_is(0)
    machine.records("apt-get", 'case "$*" in *install*) exit 100;; esac')
    assert machine.run().returncode == 100
