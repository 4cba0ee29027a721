#!/usr/bin/env python3
"""Checks sizes: lines of at most 120 characters, files of at most 600 lines, functions of at most 70 and at most 5
parameters (kernels 7, constructors 6 besides references to what they use), folders of at most 25 files. Classes have no
limit: report_sizes.py shows the largest.

check_style.py [root]     prints FILE:LINE: [RULE] what is wrong; exit 1 if any
"""

import ast
import re
import sys
from collections import Counter
from pathlib import Path

from cpp_source import SUFFIXES, blank_literals, parameters, scan

FOLDERS = (
    *("include", "src", "bindings", "tools", "testing", "tests", "bench", "examples"),
    *("python", "demo", "scripts", "cmake"),
)
TEXT_SUFFIXES = SUFFIXES | {".py", ".sh", ".cmake", ".txt"}
MAX_LINE = 120
MAX_FILE = 600
MAX_FUNCTION = 70
MAX_FOLDER = 25
MAX_PARAMETERS = 5
MAX_CONSTRUCTOR_PARAMETERS = 6
MAX_KERNEL_PARAMETERS = 7  # of functions in src/kernels, which get vectors' tags, pointers and sizes by value
COUNTED_FOLDERS = ("include", "src", "bindings", "tools", "testing", "tests", "python", "bench")

# Folders of more files. Users include a header for each subject.
LARGE_FOLDERS = {"include/qccl": 29}

# Functions with more parameters, which may lose some and then leave this list. The first two are public, the others
# are a function of CUDA's driver and torch's operators.
LONG_PARAMETER_LISTS = {
    "include/qccl/named_calls.h all_to_all_v": 6,
    "include/qccl/named_calls.h all_to_all_v_async": 6,
    "tests/support/fake_cuda/fake_kernels.cc launch_kernel": 11,
    "tests/torch/device/fake_operators.cc empty": 6,
    "tests/torch/device/fake_operators.cc empty_strided": 6,
}

# NCCL gives its functions their parameters.
GIVEN_FUNCTION = re.compile(r"nccl[A-Z]\w*")

# Files that may be longer, with the reason, for example tables.
LONG_FILES: dict[str, str] = {}


def checked_files(root: Path) -> list[Path]:
    files = [path for folder in FOLDERS for path in (root / folder).rglob("*")] + list(root.glob("*"))
    hidden = {"__pycache__", "build"}
    return sorted(
        path.relative_to(root)
        for path in files
        if path.is_file()
        and (path.suffix in TEXT_SUFFIXES or path.name == "Makefile")
        and not hidden & set(path.relative_to(root).parts)
    )


def python_functions(text: str) -> list[tuple[int, str, int]]:
    functions = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef))
    return [(node.lineno, node.name, node.end_lineno - node.lineno + 1) for node in functions]


def cpp_functions(text: str) -> list[tuple[int, str, int]]:
    functions = scan(blank_literals(text))[1]
    return [(function.line, function.head, function.body_lines) for function in functions]


def check_parameters(path: Path, text: str) -> list[str]:
    found = []
    for function in scan(blank_literals(text))[1]:
        name, count, is_constructor = parameters(function.head)
        limit = MAX_CONSTRUCTOR_PARAMETERS if is_constructor else MAX_PARAMETERS
        if path.parts[:2] == ("src", "kernels"):
            limit = MAX_KERNEL_PARAMETERS
        if path.parts[:2] == ("bindings", "nccl") and GIVEN_FUNCTION.fullmatch(name):
            continue
        limit = LONG_PARAMETER_LISTS.get(f"{path.as_posix()} {name}", limit)
        if count > limit:
            size = f"{count} parameters, at most {limit}"
            found.append(
                f"{path}:{function.line}: [parameters] {name}: {size}: make a struct with named fields of them"
            )
    return found


def check_file(root: Path, path: Path) -> list[str]:
    text = (root / path).read_text()
    lines = text.splitlines()
    found = [
        f"{path}:{number}: [line-length] {len(line)} characters, at most {MAX_LINE}: break the line"
        for number, line in enumerate(lines, 1)
        if len(line) > MAX_LINE and "://" not in line and path.suffix != ".py"  # ruff checks Python's lines
    ]
    if len(lines) > MAX_FILE and path.as_posix() not in LONG_FILES:
        found.append(f"{path}:1: [file-length] {len(lines)} lines, at most {MAX_FILE}: split it by idea")
    functions = []
    if path.suffix in SUFFIXES:
        functions = cpp_functions(text)
        found += check_parameters(path, text)
    elif path.suffix == ".py":
        functions = python_functions(text)
    for line, head, count in functions:
        if count > MAX_FUNCTION:
            size = f"{count} lines, at most {MAX_FUNCTION}"
            found.append(f"{path}:{line}: [function-length] {head[:60]}: {size}: split it")
    return found


def check_folders(files: list[Path]) -> list[str]:
    counts = Counter(path.parent for path in files if path.parts[0] in COUNTED_FOLDERS)
    return [
        f"{folder}:1: [folder-size] {count} files, at most {MAX_FOLDER}: group what belongs together in a subfolder"
        for folder, count in sorted(counts.items())
        if count > LARGE_FOLDERS.get(folder.as_posix(), MAX_FOLDER)
    ]


def main() -> int:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent)
    files = checked_files(root)
    found = [message for path in files for message in check_file(root, path)] + check_folders(files)
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
