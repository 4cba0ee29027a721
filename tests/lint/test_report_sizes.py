"""scripts/report_sizes.py counts as a compiler does, and asks for a reason of each of the largest."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import report_sizes  # noqa: E402


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "src" / "x").mkdir(parents=True)
    (tmp_path / "docs").mkdir()
    return tmp_path


def report(root: Path) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, ROOT / "scripts" / "report_sizes.py", root], capture_output=True, text=True, check=False
    )


def test_a_size_without_a_reason_is_an_error_and_one_with_a_reason_is_none(tree):
    (tree / "src" / "x" / "x.h").write_text("struct Pair {\n  int first;\n  int second;\n};\n")
    shown = report(tree)
    assert shown.returncode == 1
    assert "      2  Pair (src/x/x.h)" in shown.stdout
    assert "docs/sizes.md gives no reason for the size of Pair" in shown.stdout
    (tree / "docs" / "sizes.md").write_text("`Pair` has two. `src/x/x.h` has it.\n")
    assert report(tree).returncode == 0


def test_classes_structs_and_templates_are_counted(tree):
    text = "class A {\n  void f();\n  int a_;\n};\nstruct B {\n  int b;\n};\n"
    text += "template <class T>\nclass C {\n  T c_;\n};\n"
    sizes = report_sizes.class_sizes({Path("src/x.h"): text})
    assert [(each.name.split()[0], each.size) for each in sizes] == [("A", 2), ("B", 1), ("C", 1)]


@pytest.mark.parametrize("kind", ["class", "struct"])
def test_functions_members_and_nested_types_are_declarations_and_friends_and_labels_are_none(kind):
    functions = ["  void f(int a, int b);", "  int g() const { return 1; }", "  struct Nested { int x; int y; };"]
    members = [f"  int member_{i}_ = {{}};" for i in range(28)]
    text = "\n".join([f"{kind} C {{", " public:", "  friend class D;", *functions, " private:", *members, "};\n"])
    assert report_sizes.Size("C (src/x.h)", 31) in report_sizes.class_sizes({Path("src/x.h"): text})


@pytest.mark.parametrize("header", ["src/job/context.h", "src/engine/engine.h", "src/plan/plan.h"])
def test_a_closure_is_the_compilers(header):
    sources = report_sizes.shipped(ROOT)
    command = ["g++", "-std=c++20", "-MM", "-Iinclude", "-Isrc", header]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    seen = {Path(name) for name in listed.replace("\\\n", " ").split()[1:]} - {Path(header)}
    assert report_sizes.closure(Path(header), sources) == seen
