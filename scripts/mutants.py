#!/usr/bin/env python3
"""Changes the library one operator, constant or condition at a time and lists the changes that no test notices.

    mutants.py [--count 100] [--skip 0] [--seed 1] [--least 85] [FOLDER...]
    mutants.py --planted

Draws COUNT changes from FOLDERs (default: src/plan src/engine src/wire src/codec), builds each in a copy of the
checkout below build-mutants/ and runs the C++ tests on it: first those of the changed layer, then those of the layers
above it and those that cross layers, until one fails, crashes or hangs. A change that does not compile is replaced by
another one. Prints each change as it is decided and a summary; exit 1 if fewer than LEAST percent were noticed. With
--skip, an interrupted run goes on behind the changes that it has decided. JOBS sets how many processes compile and
test.

With --planted, makes the mistakes of tests/planted_mistakes.toml instead. An assertion (QCCL_CHECK) has to catch each
of them in the test program that it names, before a test of it has seen a wrong result.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import tomllib

from check_layers import MAY_INCLUDE
from cpp_source import SUFFIXES, blank_literals

ROOT = Path(__file__).resolve().parent.parent
COPY = ROOT / "build-mutants" / "checkout"
BUILD = COPY / "build"
PLANTED = ROOT / "tests" / "planted_mistakes.toml"
JOBS = int(os.environ.get("JOBS") or os.cpu_count() or 1)
FOLDERS = ["src/plan", "src/engine", "src/wire", "src/codec"]
SLOWER = 8  # a program that takes so many times its own time hangs
LEAST_SECONDS = 60.0

OPERATORS = [
    *[("<", "<="), ("<=", "<"), (">", ">="), (">=", ">"), ("==", "!="), ("!=", "=="), ("&&", "||"), ("||", "&&")],
    *[("+", "-"), ("-", "+"), ("*", "+"), ("/", "*"), ("%", "/"), ("+=", "-="), ("-=", "+=")],
    *[("<<", ">>"), (">>", "<<"), ("|", "&"), ("&", "|"), ("|=", "&="), ("&=", "|=")],
]

# What is replaced by what. clang-format puts spaces around binary operators and none inside template argument lists.
RULES = [
    *((f" {re.escape(old)} ", f" {new} ") for old, new in OPERATORS),
    (r"\btrue\b", "false"),
    (r"\bfalse\b", "true"),
    (r"\bstd::min\b", "std::max"),
    (r"\bstd::max\b", "std::min"),
    (r"(?<=[ (])!(?=[\w(])", ""),
    (r"(?<![\w.'\"])(\d+)(?![\w.'\"])", "+1"),
]
NEVER = re.compile(r"^\s*(?:#|static_assert|using|template|namespace|enum|friend|case )|QCCL_CHECK")


@dataclass(frozen=True)
class Mutant:
    path: Path
    start: int
    end: int
    new: str

    def apply(self, text: str) -> str:
        return text[: self.start] + self.new + text[self.end :]

    def describe(self, text: str) -> str:
        line = text.count("\n", 0, self.start) + 1
        changed = self.apply(text).splitlines()[line - 1].strip()
        return f"{self.path}:{line}: {text.splitlines()[line - 1].strip()}\n    ->  {changed}"


def conditions(line: str) -> Iterator[tuple[int, int]]:
    """Where the conditions lie whose `if` or `while` opens and closes them on this line."""
    for head in re.finditer(r"\b(?:if|while) \(", line):
        open_parentheses = 1
        for at in range(head.end(), len(line)):
            open_parentheses += (line[at] == "(") - (line[at] == ")")
            if open_parentheses == 0:
                if ";" not in line[head.end() : at] and " = " not in line[head.end() : at]:
                    yield head.end(), at
                break


def mutants_of(path: Path, text: str) -> Iterator[Mutant]:
    start = 0
    for line in blank_literals(text).split("\n"):
        if line.startswith((" ", "\t")) and not NEVER.match(line):
            for pattern, new in RULES:
                for found in re.finditer(pattern, line):
                    replacement = str(int(found[1]) + 1) if new == "+1" else new
                    yield Mutant(path, start + found.start(), start + found.end(), replacement)
            for begin, stop in conditions(line):
                yield Mutant(path, start + begin, start + stop, f"!({text[start + begin : start + stop]})")
        start += len(line) + 1


def draw(folders: list[str], seed: int) -> Iterator[Mutant]:
    """Every mutant once, in random order; each file's share is that of its possible changes."""
    paths = sorted(
        path.relative_to(ROOT)
        for folder in folders
        for path in ([ROOT / folder] if (ROOT / folder).is_file() else (ROOT / folder).rglob("*"))
        if path.suffix in SUFFIXES and not path.stem.endswith("_test")
    )
    if not paths:
        sys.exit(f"mutants.py: no C++ files in {' '.join(folders)}")
    found = [mutant for path in paths for mutant in mutants_of(path, (ROOT / path).read_text())]
    random.Random(seed).shuffle(found)
    yield from found


@dataclass
class Program:
    """A test program, the layer it belongs to, and how long it takes on unchanged code."""

    path: str
    seconds: float = 0.0
    excluded: str = ""  # tests that fail unchanged when all run in one process
    shard: int | None = None  # runs only every JOBS-th test, from this one on

    @property
    def name(self) -> str:
        return Path(self.path).name

    def start(self) -> subprocess.Popen:
        filters = [f"--gtest_filter=-{self.excluded}"] if self.excluded else []
        environment = {**os.environ, "GTEST_FAIL_FAST": "1", "GTEST_BRIEF": "1"}
        if self.shard is not None:
            environment |= {"GTEST_TOTAL_SHARDS": str(JOBS), "GTEST_SHARD_INDEX": str(self.shard)}
        return subprocess.Popen(
            [self.path, *filters],
            cwd=BUILD,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def limit(self) -> float:
        return max(LEAST_SECONDS, SLOWER * self.seconds)


def end(process: subprocess.Popen) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def first_failure(programs: list[Program]) -> str:
    """The program that failed first, JOBS at a time; "" if all passed. None is left running."""
    waiting, running = list(programs), []
    try:
        while waiting or running:
            while waiting and len(running) < JOBS:
                running.append((waiting[0], waiting[0].start(), time.monotonic()))
                waiting.pop(0)
            for entry in list(running):
                program, process, start = entry
                code = process.poll()
                if code is None and time.monotonic() - start > program.limit():
                    return f"{program.name} hangs"
                if code:
                    return program.name
                if code == 0:
                    end(process)
                    running.remove(entry)
            time.sleep(0.02)
    finally:
        for _, process, _ in running:
            end(process)
    return ""


def build(target: str, log: Path) -> bool:
    with log.open("w") as output:
        command = ["ninja", "-C", str(BUILD), f"-j{JOBS}", target]
        return subprocess.run(command, stdout=output, stderr=subprocess.STDOUT).returncode == 0


def copy_checkout() -> None:
    """Copies the checkout and configures it."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = set(filter(None, listed.split("\0")))
    for copy in [path for path in COPY.rglob("*") if path.is_file() and BUILD not in path.parents]:
        if copy.relative_to(COPY).as_posix() not in names:
            copy.unlink()
    for name in names:
        source, copy = ROOT / name, COPY / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if source.is_file() and not (copy.is_file() and copy.read_bytes() == source.read_bytes()):
            shutil.copy(source, copy)
    command = ["cmake", "--preset", "default", "-DQCCL_BENCHMARKS=OFF", "-DQCCL_EXAMPLES=OFF"]
    subprocess.run(command, cwd=COPY, check=True, stdout=subprocess.DEVNULL)


def prepare(folders: list[str]) -> list[Program]:
    """Copies the checkout, builds it and times its test programs, the fastest first."""
    copy_checkout()
    print("building the tests ...", flush=True)
    if not build("qccl_tests", COPY / "build.log"):
        sys.exit(f"mutants.py: the unchanged code does not compile: see {COPY / 'build.log'}")
    command = ["ctest", "--test-dir", str(BUILD), "--show-only=json-v1"]
    tests = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["tests"]
    paths = {test["command"][0] for test in tests if "qccl_test_" in test["command"][0]}
    layers = {Path(folder).parts[1] for folder in folders}
    samples = [Mutant(Path("src", layer), 0, 0, "") for layer in layers]
    wanted = [
        program for program in map(Program, sorted(paths)) if any(order([program], at, Counter()) for at in samples)
    ]
    programs = [time_unchanged(program) for program in wanted]
    return sorted(programs, key=lambda program: program.seconds)


def time_unchanged(program: Program) -> Program:
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        start = time.monotonic()
        command = [program.path, f"--gtest_output=json:{report.name}", "--gtest_brief=1"]
        subprocess.run(command, cwd=BUILD, capture_output=True, stdin=subprocess.DEVNULL, timeout=1800)
        program.seconds = time.monotonic() - start
        suites = json.loads(Path(report.name).read_text() or "{}").get("testsuites", [])
    cases = [(suite["name"], case) for suite in suites for case in suite["testsuite"]]
    program.excluded = ":".join(f"{suite}.{case['name']}" for suite, case in cases if "failures" in case)
    note = f"without {program.excluded}" if program.excluded else ""
    print(f"  {program.seconds:6.1f} s  {program.name} {note}".rstrip(), flush=True)
    return program


def layers_above(layer: str) -> set[str]:
    """The layer, such as "plan", and those that include it, themselves or through others."""
    above = {layer}
    while more := {folder.split("/")[1] for folder, used in MAY_INCLUDE.items() if uses(used, above)} - above:
        above |= more
    return above


def uses(headers: list[str], layers: set[str]) -> bool:
    return any(header.split("/")[0] in layers for header in headers)


def crosses(program: Program) -> bool:
    return "tests" in Path(program.path).parts[-3:-1]


def order(programs: list[Program], mutant: Mutant, noticed_by: Counter) -> list[Program]:
    """The programs that can notice the change: those of its layer, then those that have noticed most so far, then the
    others in the given order."""
    layer = mutant.path.parts[1]
    names = tuple(f"qccl_test_{name}_" for name in layers_above(layer))
    fit = [program for program in programs if crosses(program) or f"{program.name}_".startswith(names)]
    return sorted(fit, key=lambda program: (program.name != f"qccl_test_{layer}", -noticed_by[program.name]))


def judge(programs: list[Program]) -> str | None:
    """The program that noticed the change in the copy, "" if none did, None if it does not compile."""
    for program in programs:
        if not build(program.name, COPY / "build.log"):
            return None
        if failure := first_failure([replace(program, shard=shard) for shard in range(JOBS)]):
            return failure
    return ""


def run(options: argparse.Namespace) -> int:
    programs = prepare(options.folders)
    survivors, noticed_by, done = [], Counter(), 0
    for number, mutant in enumerate(draw(options.folders, options.seed)):
        if done == options.count:
            break
        if number < options.skip:
            continue
        original = (ROOT / mutant.path).read_text()
        (COPY / mutant.path).write_text(mutant.apply(original))
        try:
            failure = judge(order(programs, mutant, noticed_by))
        finally:
            (COPY / mutant.path).write_text(original)
        if failure is None:
            print(f"{number}: does not compile", flush=True)
            continue
        done += 1
        noticed_by[failure.removesuffix(" hangs")] += 1
        text = mutant.describe(original)
        if not failure:
            survivors.append(text)
        print(f"[{done}/{options.count}] {number}: {failure or 'NOT NOTICED'}  {text}", flush=True)
    return summarize(survivors, noticed_by, done, options.least)


def summarize(survivors: list[str], noticed_by: Counter, done: int, least: float) -> int:
    print("\nnoticed by: " + ", ".join(f"{name} {count}" for name, count in noticed_by.most_common() if name))
    print("not noticed:" if survivors else "every change was noticed", *survivors, sep="\n  ")
    percent = 100.0 * (done - len(survivors)) / max(1, done)
    print(f"{done - len(survivors)} of {done} changes noticed ({percent:.0f} %, at least {least:.0f} % expected)")
    return 0 if percent >= least else 1


@dataclass(frozen=True)
class Planted:
    """A mistake of ours: `old`, which stands once in the file, becomes `new`."""

    invariant: str  # what it breaks
    file: str
    old: str
    new: str
    program: str  # of tests/CMakeLists.txt or a layer's
    tests: str = "*"

    def apply(self) -> str:
        text = (ROOT / self.file).read_text()
        if text.count(self.old) != 1:
            sys.exit(f"mutants.py: {self.file} has {text.count(self.old)} times: {self.old}")
        return text.replace(self.old, self.new)


def planted_mistakes() -> list[Planted]:
    return [Planted(**each) for each in tomllib.loads(PLANTED.read_text())["mistake"]]


def caught_by(output: str) -> str | None:
    """The broken invariant that ended the program, None if a test failed first or no invariant was broken."""
    for line in output.splitlines():
        if "[  FAILED  ]" in line or ": Failure" in line:
            return None
        if found := re.search(r"broken invariant: (.+ at \S+:\d+)", line):
            return found[1].replace(f"{COPY}/", "")
    return None


def verdict_of(planted: Planted) -> str | None:
    if not build(planted.program, COPY / "build.log"):
        sys.exit(f"mutants.py: does not compile, see {COPY / 'build.log'}: {planted}")
    (path,) = [found for found in BUILD.rglob(planted.program) if found.is_file()]
    command = [str(path), f"--gtest_filter={planted.tests}", "--gtest_fail_fast"]
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, cwd=BUILD, stdout=output, stderr=output, start_new_session=True)
        try:
            process.wait(LEAST_SECONDS * 5)
        except subprocess.TimeoutExpired:
            pass
        finally:
            end(process)
        output.seek(0)
        return caught_by(output.read())


def run_planted() -> int:
    copy_checkout()
    missed = 0
    mistakes = planted_mistakes()
    for number, planted in enumerate(mistakes, 1):
        original = (COPY / planted.file).read_text()
        (COPY / planted.file).write_text(planted.apply())
        try:
            caught = verdict_of(planted)
        finally:
            (COPY / planted.file).write_text(original)
        missed += caught is None
        print(f"[{number}/{len(mistakes)}] {planted.invariant}: {caught or 'NOT CAUGHT'}", flush=True)
    print(f"{len(mistakes) - missed} of {len(mistakes)} planted mistakes caught by an assertion")
    return 1 if missed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100, help="how many changes to try (default 100)")
    parser.add_argument("--skip", type=int, default=0, help="how many of the drawn changes to leave out (default 0)")
    parser.add_argument("--seed", type=int, default=1, help="which changes (default 1)")
    parser.add_argument("--least", type=float, default=85, help="the least percentage noticed (default 85)")
    parser.add_argument("folders", nargs="*", metavar="FOLDER", default=FOLDERS, help=f"default: {' '.join(FOLDERS)}")
    parser.add_argument("--planted", action="store_true", help="the planted mistakes instead: who catches them")
    options = parser.parse_args()
    return run_planted() if options.planted else run(options)


if __name__ == "__main__":
    sys.exit(main())
