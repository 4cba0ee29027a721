"""Runs every command and program of docs/log.md as written there, with files in the test's own folder."""

import json
import os
import re
import subprocess
import sys

import pytest
from program import PROGRAM, ROOT, environment

PAGE = (ROOT / "docs" / "log.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def shell(text: str, folder) -> str:
    """Runs the lines with the test's programs and files in place of the page's."""
    (folder / "images").mkdir(exist_ok=True)
    here = text.replace("/tmp/", f"{folder}/").replace("docs/images/", f"{folder}/images/")
    here = here.replace("build/qccl", str(PROGRAM)).replace("build/bench", str(PROGRAM.parent / "bench"))
    here = here.replace(".venv/bin/python", sys.executable)
    done = subprocess.run(["sh", "-ec", here], cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_picture_is_made_by_its_commands(tmp_path):
    picture, _, _ = blocks("sh")
    printed = shell(picture, tmp_path)
    assert "rank 2 came last in " in printed.partition("Breakdown with straggler effect")[2]
    times_last = {rank: int(times) for rank, times in re.findall(r"^rank (\d+) came last in (\d+)", printed, re.M)}
    assert max(times_last, key=times_last.get) == "2"
    assert (tmp_path / "images" / "log.png").read_bytes().startswith(b"\x89PNG")


def test_the_commands_for_any_program(tmp_path):
    _, commands, _ = blocks("sh")
    printed = shell(commands, tmp_path)
    assert "rank 0 of 4" in printed and "rank 1 of 4" in printed
    assert len(json.loads((tmp_path / "all.json").read_text())["qccl"]["ranks"]) == 4
    assert (tmp_path / "all.csv").read_text().startswith("rank,operation,")


def test_the_python_program(tmp_path):
    (program,) = blocks("python")
    done = subprocess.run(
        [str(PROGRAM), "run", "-n", "2", "--", sys.executable, "-c", program],
        cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("all_reduce ") == 6, "each rank has three records"


def test_the_cost_is_measured(tmp_path):
    _, _, command = blocks("sh")
    if not (PROGRAM.parent / "bench" / "log_cost").exists():
        pytest.skip("the benchmarks are not built")
    rows = [line.split() for line in shell(command, tmp_path).splitlines()[1:]]
    assert [int(row[0]) for row in rows] == [4, 4096, 65536, 1 << 20]
    assert all(0 < float(row[3]) < 100 for row in rows)


def test_the_cpp_lines_compile():
    (lines,) = blocks("cpp")
    program = f"#include <qccl/qccl.h>\n#include <cstdio>\nint main() {{ std::vector<float> gradient(9);\n{lines}}}\n"
    command = [os.environ.get("CXX", "c++"), "-std=c++20", "-fsyntax-only", "-I", ROOT / "include", "-x", "c++", "-"]
    done = subprocess.run(command, input=program, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_the_configuration_is_accepted():
    qccl = pytest.importorskip("qccl")
    (section,) = blocks("json")
    qccl.configure_log(json.loads(section))
    assert qccl.comms_logger.enabled
    qccl.configure_log(enabled=False)


def test_the_options_page_has_the_variable():
    assert "`QCCL_LOG_FILE`" in (ROOT / "docs" / "options.md").read_text()
