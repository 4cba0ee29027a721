"""scripts/check_style.py finds long lines, files and functions, and no others."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

import check_style  # noqa: E402


def problems(root: Path, name: str, text: str) -> list[str]:
    path = root / "src" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    assert Path("src") / name in check_style.checked_files(root)
    return check_style.check_file(root, Path("src") / name)


def cpp_function(lines: int, head: str = "void f(int a)") -> str:
    return head + " {\n" + "  if (a) { g(a); }\n" * (lines - 2) + "}\n"


def test_line_over_the_limit_is_found(tmp_path):
    assert problems(tmp_path, "x.cc", "//" + "x" * 118 + "\n") == []
    found = problems(tmp_path, "x.cc", "\n//" + "x" * 119 + "\n")
    assert len(found) == 1 and found[0].startswith("src/x.cc:2: [line-length] 121 characters")


def test_file_over_the_limit_is_found(tmp_path):
    assert problems(tmp_path, "x.cc", "\n" * 600) == []
    assert "[file-length] 601 lines" in problems(tmp_path, "x.cc", "\n" * 601)[0]


@pytest.mark.parametrize(
    "head",
    [
        "void f(int a)",
        "template <class T>\nstd::vector<std::pair<T, int>> C<T>::f(int a) const noexcept",
        "C::C(int a) : b_(a), c_{a}",
        "auto f(int a) -> std::vector<int>",
        "struct stat f(int a)",
        "bool operator<(const S& a, const S& b)",
    ],
)
def test_cpp_function_over_the_limit_is_found(tmp_path, head):
    assert problems(tmp_path, "x.cc", "namespace n {\n" + cpp_function(70, head) + "}\n") == []
    found = problems(tmp_path, "x.cc", "namespace n {\n" + cpp_function(71, head) + "}\n")
    assert len(found) == 1 and "[function-length]" in found[0] and "71 lines" in found[0]


def test_method_in_a_class_is_measured_and_the_class_is_not(tmp_path):
    inside = "class C {\n public:\n" + cpp_function(69) + cpp_function(70) + "};\n"
    assert problems(tmp_path, "x.h", inside) == []
    assert len(problems(tmp_path, "x.h", inside + "struct D {\n" + cpp_function(72) + "};\n")) == 1


def test_braces_in_comments_and_literals_do_not_count(tmp_path):
    text = 'void f() {\n  // }\n  g("{", \'{\', R"(}}})");\n' + "  h();\n" * 60 + "}\n" + cpp_function(60)
    assert problems(tmp_path, "x.cc", text) == []


def test_a_table_is_no_function(tmp_path):
    rows = "constexpr Row kRows[] = {\n" + "    {1, 2},\n" * 90 + "};\n"
    text = rows + "struct S {\n" + "  int a = 0;\n" * 90 + "};\n"
    assert problems(tmp_path, "x.cc", text) == []


def test_python_function_over_the_limit_is_found(tmp_path):
    assert problems(tmp_path, "x.py", "def f():\n" + "    pass\n" * 69) == []
    assert "[function-length] f: 71 lines" in problems(tmp_path, "x.py", "def f():\n" + "    pass\n" * 70)[0]


def test_folder_over_the_limit_is_found():
    def files(count: int) -> list[Path]:
        return [Path("src/engine") / f"{i}.cc" for i in range(count)]

    assert check_style.check_folders(files(25) + [Path("src/engine/act/x.cc")]) == []
    found = check_style.check_folders(files(26))
    assert len(found) == 1 and found[0].startswith("src/engine:1: [folder-size] 26 files")


@pytest.mark.parametrize(
    ("head", "found"),
    [
        ("void f(int a, std::map<int, int> b, int (*c)(int, int), int d = g(1, 2), int e = {})", 0),
        ("void C::f(int a, int b, int c, int d, int e, int f) const", 6),
        ("template <class T, class U>\nauto f(T a, U b, int c, int d, int e, int f) -> std::pair<T, U>", 6),
        ("C::C(int a, int b, int c, int d, int e, int f) : a_(a, b)", 0),
        ("N::C::C(int a, int b, int c, int d, int e, int f, int g) : a_(a)", 7),
        ("C::C(A& a, const B& b, int c, int d, int e, int f, int g, int h) : a_(a)", 0),
        ("C::C(A& a, const B& b, int c, int d, int e, int f, int g, int h, int i) : a_(a)", 7),
        ("bool operator()(int a, int b, int c, int d, int e, int f)", 6),
        ("void f()", 0),
    ],
)
def test_a_function_has_at_most_5_parameters_and_a_constructor_6(tmp_path, head, found):
    messages = problems(tmp_path, "x.cc", "namespace n {\n" + cpp_function(3, head) + "}\n")
    assert len(messages) == (found > 0)
    assert all("[parameters]" in message and f"{found} parameters" in message for message in messages)


def test_a_kernel_has_at_most_7_parameters(tmp_path):
    (tmp_path / "src" / "kernels").mkdir(parents=True)
    seven = "void f(" + ", ".join(f"int a{i}" for i in range(7)) + ")"
    assert problems(tmp_path, "kernels/x.cc", cpp_function(3, seven)) == []
    assert "8 parameters, at most 7" in problems(tmp_path, "kernels/x.cc", cpp_function(3, seven[:-1] + ", int b)"))[0]
