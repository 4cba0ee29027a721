#!/usr/bin/env python3
"""Runs everything that CI runs, step by step, and prints a summary.

    run_tests.py [pattern]     with a pattern, only tests whose name contains it (a regular expression)

A failed build ends the run; any other failed step lets the rest go on. Exit 1 if anything failed. Some
steps run beside others (BESIDE); their output comes when they are done.
JOBS sets how many processes compile and test (default: all cores).
"""

import os
import re
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as xml
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REPORTS = ROOT / "build" / "reports"
JOBS = os.environ.get("JOBS") or str(os.cpu_count())
PYTHON = str(ROOT / ".venv" / "bin" / "python")
PYTEST_NOTHING_SELECTED = 5
APART = {ROOT / "tests" / "integration"}  # `make test-integration`, which installs DeepSpeed, Megatron and others
# Steps that run beside another, one after another; they mostly wait.
BESIDE = {
    "tests/process": ("tests/docs", "tests/lint", "tests/setup", "tests/testing"),
    "tests/torch": ("torch's own tests",),
}
TEST_TIMEOUT_SECONDS = "300"  # of one Python test; CMake sets the timeouts of C++ tests


@dataclass
class Step:
    name: str
    command: list[str]
    report: Path | None = None  # JUnit XML that the command writes
    good_exits: tuple[int, ...] = (0,)
    ok: bool = False
    seconds: float = 0
    passed: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)  # name, reason

    def run(self, is_beside: bool = False) -> bool:
        title = f"\n=== {self.name}: {' '.join(self.command)}"
        if not is_beside:
            print(title, flush=True)
        if self.report:
            self.report.parent.mkdir(parents=True, exist_ok=True)
            self.report.unlink(missing_ok=True)
        start = time.monotonic()
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT} if is_beside else {}
        ended = subprocess.run(self.command, cwd=ROOT, stdin=subprocess.DEVNULL, text=True, errors="replace", **output)
        self.ok = ended.returncode in self.good_exits
        self.seconds = time.monotonic() - start
        if is_beside:
            print(f"{title}\n{ended.stdout}", flush=True)
        if self.report and self.report.exists():
            self._read_report()
        return self.ok

    def _read_report(self) -> None:
        # A test's output may hold bytes that are invalid in XML.
        text = re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f]", "", self.report.read_text(errors="replace"))
        for case in xml.fromstring(text).iter("testcase"):
            name = case.get("name", "?")
            if (skip := case.find("skipped")) is not None or case.get("status") == "disabled":
                self.skipped.append((name, skip_reason(case, skip)))
            elif case.find("failure") is not None or case.find("error") is not None:
                self.failed.append(name)
            else:
                self.passed += 1

    def summary(self) -> str:
        counts = ""
        if self.report:
            counts = f"{self.passed} passed, {len(self.failed)} failed, {len(self.skipped)} skipped"
        return f"{self.name:20} {'ok' if self.ok else 'FAILED':7} {self.seconds:6.1f} s  {counts}".rstrip()


def skip_reason(case: xml.Element, skip: xml.Element | None) -> str:
    """Why a test was skipped: GoogleTest writes it to the output, pytest to the message."""
    if skip is None:
        return "disabled"
    said = re.search(r": Skipped\n(.+)", case.findtext("system-out") or "")
    message = said.group(1).strip() if said else skip.get("message", "")
    return "no reason given" if message in ("", "SKIP_REGULAR_EXPRESSION_MATCHED") else message


def make_steps(pattern: str) -> list[Step]:
    ctest_report = REPORTS / "ctest.xml"
    ctest = ["ctest", "--preset", "default", "--parallel", str(int(JOBS) + 1), "--output-junit", str(ctest_report)]
    steps = [
        Step("lint", ["scripts/lint.sh"]),
        Step("build", ["make", "build-tests", f"JOBS={JOBS}"]),
        Step("ctest", ctest + (["-R", pattern, "--no-tests=ignore"] if pattern else []), ctest_report),
    ]
    folders = {file.parent for file in (ROOT / "tests").rglob("test_*.py")}
    for folder in sorted(folder for folder in folders if APART.isdisjoint({folder, *folder.parents})):
        name = folder.relative_to(ROOT).as_posix()
        report = REPORTS / f"{name.replace('/', '_')}.xml"
        pytest = [PYTHON, "-m", "pytest", "-q", "--timeout", TEST_TIMEOUT_SECONDS, "--junitxml", str(report), name]
        if pattern:
            steps.append(Step(name, [*pytest, "-k", pattern], report, good_exits=(0, PYTEST_NOTHING_SELECTED)))
        else:
            steps.append(Step(name, pytest, report))
    return [*steps, torchs_own_tests(pattern)]


def torchs_own_tests(pattern: str) -> Step:
    """Runs with 3 ranks; `make test-torch` has the other configurations."""
    report = REPORTS / "torch_suite.xml"
    command = [PYTHON, "tests/torch/suite/run.py", "--junit", str(report)]
    return Step("torch's own tests", command + (["--filter", pattern] if pattern else ["--passes", "100"]), report)


def print_summary(steps: list[Step], seconds: float) -> bool:
    print("\n=== make test: what ran")
    for step in steps:
        print("  " + step.summary())
        for name, reason in step.skipped:
            print(f"      skipped {name}: {reason}")
        for name in step.failed:
            print(f"      FAILED {name}")
    ok = all(step.ok for step in steps)
    passed = sum(step.passed for step in steps)
    failed = sum(len(step.failed) for step in steps)
    skipped = sum(len(step.skipped) for step in steps)
    broken = [step.name for step in steps if not step.ok]
    verdict = "PASSED" if ok else f"FAILED ({', '.join(broken)})"
    if failed:
        print("One of them again: make test ARGS=NAME")
    print(f"{verdict}: {passed} tests passed, {failed} failed, {skipped} skipped, in {seconds:.0f} s", flush=True)
    return ok


def run_together(step: Step, beside: list[Step]) -> bool:
    """Runs those beside the step one after another; whether the step itself passed."""

    def run_beside() -> None:
        for other in beside:
            other.run(is_beside=True)

    thread = threading.Thread(target=run_beside)
    thread.start()
    ok = step.run()
    thread.join()
    return ok


def main() -> int:
    start = time.monotonic()
    steps = make_steps(" ".join(sys.argv[1:]))
    done = []
    for step in steps:
        if any(step.name in others for others in BESIDE.values()):
            continue
        beside = [other for other in steps if other.name in BESIDE.get(step.name, ())]
        done += [step, *beside]
        if not run_together(step, beside) and step.name == "build":
            break
    return 0 if print_summary(done, time.monotonic() - start) else 1


if __name__ == "__main__":
    sys.exit(main())
