"""scripts/compile.py reports a build's progress, passes on compiler messages, and fails if the build fails."""

import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"
BUILD = ROOT / "build"
sys.path.insert(0, str(SCRIPTS))

import compile as compile_script  # noqa: E402


class ManualClock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def lines_of(outputs: list[tuple[float, str]], is_terminal: bool = False) -> str:
    """The output if the build tool prints each text at the given second."""
    clock, out = ManualClock(), io.StringIO()
    writer = compile_script.ProgressWriter(out, is_terminal, clock)
    for clock.now, text in outputs:
        writer.on_output(text)
    writer.close_line()
    return out.getvalue()


@pytest.mark.parametrize(
    "finished, total, elapsed, line",
    [
        (1, 160, 2, "compiling 1 of 160"),
        (15, 160, 20, "compiling 15 of 160"),
        (40, 160, 60, "compiling 40 of 160, about 3 minutes left"),
        (120, 160, 180, "compiling 120 of 160, about 1 minute left"),
        (159, 160, 180, "compiling 159 of 160, less than a minute left"),
    ],
)
def test_the_time_left_follows_the_pace_once_there_is_one(finished: int, total: int, elapsed: float, line: str) -> None:
    assert compile_script.progress_line(finished, total, elapsed) == line


def test_a_log_gets_a_line_in_a_while_and_the_last_one() -> None:
    statuses = [(second, f"\x1e{second}/60 Building CXX object x.o\n") for second in range(1, 61)]
    assert lines_of(statuses).splitlines() == [
        "compiling 15 of 60, about 1 minute left",
        "compiling 30 of 60, less than a minute left",
        "compiling 45 of 60, less than a minute left",
        "compiling 60 of 60",
    ]


def test_a_terminal_gets_one_line_that_is_written_over() -> None:
    text = lines_of([(1, "\x1e1/3 a\n"), (2, "\x1e2/3 b\n")], is_terminal=True)
    assert text == "\r\x1b[Kcompiling 1 of 3\r\x1b[Kcompiling 2 of 3\n"


def test_what_a_compiler_says_is_passed_on_a_line_of_its_own() -> None:
    text = lines_of([(1, "\x1e1/3 a\n"), (1, "x.cc:3: error: no\n"), (2, "\x1e2/3 b\n")], is_terminal=True)
    assert "compiling 1 of 3\nx.cc:3: error: no\n\r" in text


def test_a_build_with_nothing_to_do_says_nothing() -> None:
    assert lines_of([(0, "ninja: no work to do.\n")]) == ""


def test_the_exit_status_is_that_of_the_build(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(SCRIPTS / "compile.py"), str(tmp_path / "nothing")], capture_output=True)
    assert done.returncode != 0


def inputs_of(target: str) -> set[str]:
    """The files that a target of the build folder is built from, with those of its units."""
    command = ["ninja", "-C", str(BUILD), "-t", "inputs", target]
    files = set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines())
    units = [(BUILD / name).read_text() for name in files if name.endswith("_cxx.cxx")]
    return files | {source for unit in units for source in re.findall(r'^#include "(.*)"$', unit, re.MULTILINE)}


def test_the_default_build_compiles_no_test_and_no_benchmark() -> None:
    default, tests, benchmarks = inputs_of("all"), inputs_of("qccl_tests"), inputs_of("qccl_benchmarks")
    assert any(name.endswith("/engine/engine.cc") for name in default)
    assert any(name.endswith("/plan/cost/choice_test.cc") for name in tests)
    assert any(name.endswith("/bench/micro/kernels_bench.cc") for name in benchmarks)
    compiled = [name for name in default if name.endswith(".cc")]
    assert [name for name in compiled if "_test.cc" in name or "/tests/" in name or "/bench/" in name] == []
