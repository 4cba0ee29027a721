#!/usr/bin/env python3
"""Runs PyTorch's own tests of a c10d backend against qccl, without a GPU.

    run.py                              3 ranks, forked: what `make test` runs
    run.py --world 4 --filter barrier   tests whose name contains "barrier" (a regular expression)
    TORCH_DISTRIBUTED_DEBUG=DETAIL run.py;  QCCL_COMPRESSION=minmax:bits=4 QCCL_COMPRESSION_CALLERS='*' run.py
    run.py --world 4 --stand-in         the tests that need GPUs, over the fake device (the target qccl_fake_device)
    run.py --all                        every configuration of CONFIGURATIONS: what `make test-torch` runs

Exit 1 if a test failed, or if fewer than the required number passed: a skip is not a pass. cases.py describes the
changes to the tests.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree as xml
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "process"))
from program import DEVICES  # noqa: E402
from settings import Settings  # noqa: E402


@dataclass(frozen=True)
class Configuration:
    name: str
    passes: int  # at least
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)


COMPRESSED = {"QCCL_COMPRESSION": "minmax:bits=4", "QCCL_COMPRESSION_CALLERS": "*"}
CONFIGURATIONS = (  # besides 3 ranks, which `make test` runs
    Configuration("4 ranks", 100, ("--world", "4")),
    Configuration("checked", 100, environment={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}),
    Configuration("compressed", 100, environment=COMPRESSED),
    Configuration("spawned", 100, ("--start", "spawn")),
    Configuration("on a device", 140, ("--world", "4", "--stand-in")),
)


class Outcome(unittest.TestResult):
    """Prints a line for each test."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, tuple[str, str, float]] = {}  # test -> outcome, reason, seconds
        self._began = 0.0

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._began = time.monotonic()

    def _note(self, test: unittest.TestCase, outcome: str, why: str = "") -> None:
        name = test.id().rpartition(".")[2]
        if self.rows.get(name, ("",))[0] == "failed":
            return
        seconds = time.monotonic() - self._began
        self.rows[name] = (outcome, why, seconds)
        last = why.strip().splitlines()[-1:] or [""]
        print(f"{outcome:8} {seconds:6.1f} s  {name}  {last[0][:160]}", flush=True)

    def addSuccess(self, test: unittest.TestCase) -> None:
        self._note(test, "passed")

    def addFailure(self, test: unittest.TestCase, err) -> None:
        self._note(test, "failed", self._exc_info_to_string(err, test))

    addError = addFailure

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self._note(test, "skipped", reason)

    def count(self, outcome: str) -> int:
        return sum(row[0] == outcome for row in self.rows.values())

    def write_junit(self, path: Path) -> None:
        suite = xml.Element("testsuite", name="torch's suite", tests=str(len(self.rows)))
        for name, (outcome, why, seconds) in self.rows.items():
            case = xml.SubElement(suite, "testcase", name=name, time=f"{seconds:.1f}")
            if outcome == "failed":
                xml.SubElement(case, "failure", message="failed").text = why
            elif outcome != "passed":
                xml.SubElement(case, "skipped", message=why)
        path.parent.mkdir(parents=True, exist_ok=True)
        xml.ElementTree(suite).write(path)


def run(options: argparse.Namespace, folder: str) -> int:
    Settings(options.world, options.start, options.seconds_per_test, options.stand_in).export(folder)
    import cases  # only now, because torch reads the exported settings

    names = [
        name for name in unittest.TestLoader().getTestCaseNames(cases.TorchSuite) if re.search(options.filter, name)
    ]
    result = Outcome()
    began = time.monotonic()
    cases.TorchSuite.setUpClass()
    for name in names:
        test = cases.TorchSuite(name)
        if reason := cases.skip_reason(name):
            result.startTest(test)
            result.addSkip(test, reason)
        else:
            test.run(result)
    cases.TorchSuite.tearDownClass()
    for name, (outcome, why, _) in sorted(result.rows.items()):
        if outcome == "failed":
            print(f"\n=== {name}\n{why[-4000:]}")
    if options.junit:
        result.write_junit(Path(options.junit))
    counts = ", ".join(f"{result.count(outcome)} {outcome}" for outcome in ("passed", "failed", "skipped"))
    print(f"{counts}, in {time.monotonic() - began:.0f} s; {options.world} ranks, {options.start}", flush=True)
    if result.count("passed") < options.passes:
        print(f"at least {options.passes} must pass")
        return 1
    return 1 if result.count("failed") else 0


def run_configuration(configuration: Configuration) -> tuple[bool, str]:
    """Runs a configuration; returns whether it passed and its last line of output. Every line begins with its name."""
    command = [sys.executable, __file__, "--passes", str(configuration.passes), *configuration.arguments]
    environment = {**os.environ, **configuration.environment}
    last = ""
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        for line in process.stdout:
            last = f"{configuration.name}: {line}"
            print(last, end="", flush=True)
    return process.returncode == 0, last


def run_all() -> int:
    """Runs all at once: forked ranks mostly wait; spawned ones compute, because they import torch in every test."""
    chosen = [each for each in CONFIGURATIONS if DEVICES or "--stand-in" not in each.arguments]
    with ThreadPoolExecutor(len(chosen)) as pool:
        outcomes = list(pool.map(run_configuration, chosen))
    print()
    for ok, last in outcomes:
        print("passed" if ok else "FAILED", last, end="")
    return 0 if all(ok for ok, _ in outcomes) else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", type=int, default=3, help="ranks")
    parser.add_argument("--start", choices=("fork", "spawn", "forkserver"), default="fork", help="how ranks start")
    parser.add_argument("--filter", default="", help="only tests whose name this is found in")
    parser.add_argument("--passes", type=int, default=0, help="how many must pass at least")
    parser.add_argument("--seconds-per-test", type=int, default=180)
    parser.add_argument("--stand-in", action="store_true", help="the tests that need GPUs, over the fake device")
    parser.add_argument("--junit", default="", help="write JUnit XML there")
    parser.add_argument("--all", action="store_true", help="every configuration, all at once")
    options = parser.parse_args()
    if options.all:
        return run_all()
    with tempfile.TemporaryDirectory(prefix="qccl-suite-") as folder:
        return run(options, folder)


if __name__ == "__main__":
    sys.exit(main())
