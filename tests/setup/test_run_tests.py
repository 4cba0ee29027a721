"""scripts/run_tests.py counts the tests that ran, says why tests were skipped, and fails if anything failed."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

import run_tests  # noqa: E402

# Reports in the format of ctest 3.25 and pytest 9.
CTEST = """<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="x" tests="5">
  <testcase name="a.A.ok" status="run"><system-out>\x1b[32mOK\x1b[0m</system-out></testcase>
  <testcase name="a.A.bad" status="fail"><failure message=""/><system-out>t.cc:3: Failure</system-out></testcase>
  <testcase name="a.A.skips" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>
    <system-out>t.cc:4: Skipped
no AVX-512 on this machine
[  SKIPPED ] A.skips (0 ms)</system-out></testcase>
  <testcase name="a.A.mute" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>
    <system-out>t.cc:6: Skipped

[  SKIPPED ] A.mute (0 ms)</system-out></testcase>
  <testcase name="a.A.off" status="disabled"><system-out>Disabled</system-out></testcase>
</testsuite>"""
PYTEST = """<?xml version="1.0" encoding="utf-8"?><testsuites><testsuite name="pytest">
<testcase name="test_ok" /><testcase name="test_skip"><skipped type="pytest.skip" message="needs two hosts"/></testcase>
<testcase name="test_bad"><failure message="assert 0">trace</failure></testcase>
<testcase name="test_setup"><error message="failed on setup">trace</error></testcase></testsuite></testsuites>"""


def ran(tmp_path: Path, report: str, exit_code: int) -> run_tests.Step:
    """A step whose command leaves this report and exit code."""
    path = tmp_path / "reports" / "r.xml"
    program = f"import pathlib, sys; pathlib.Path({str(path)!r}).write_text({report!r}); sys.exit({exit_code})"
    step = run_tests.Step("step", [sys.executable, "-c", program], path)
    step.run()
    return step


def test_ctest_report_is_counted_with_reasons(tmp_path):
    step = ran(tmp_path, CTEST, 8)
    assert (step.ok, step.passed, step.failed) == (False, 1, ["a.A.bad"])
    assert step.skipped == [
        ("a.A.skips", "no AVX-512 on this machine"),
        ("a.A.mute", "no reason given"),
        ("a.A.off", "disabled"),
    ]


def test_pytest_report_is_counted_with_reasons(tmp_path):
    step = ran(tmp_path, PYTEST, 1)
    assert (step.passed, step.failed) == (1, ["test_bad", "test_setup"])
    assert step.skipped == [("test_skip", "needs two hosts")]


def test_report_of_an_earlier_run_is_not_counted_again(tmp_path):
    step = ran(tmp_path, CTEST, 0)
    again = run_tests.Step("step", [sys.executable, "-c", "import sys; sys.exit(1)"], step.report)
    again.run()
    assert (again.ok, again.passed, again.failed) == (False, 0, [])


@pytest.mark.parametrize("exit_code", [0, 1])
def test_steps_beside_another_are_run_and_counted_and_their_output_stays_together(monkeypatch, capfd, exit_code):
    def step(name: str, program: str) -> run_tests.Step:
        return run_tests.Step(name, [sys.executable, "-c", program])

    failing = f"print('one'); print('two'); raise SystemExit({exit_code})"
    steps = [step("tests/lint", failing), step("tests/process", "print('process')"), step("tests/torch", "")]
    monkeypatch.setattr(run_tests, "make_steps", lambda pattern: steps)
    assert run_tests.main() == exit_code
    output = capfd.readouterr().out
    assert "\none\ntwo\n" in output and "\nprocess\n" in output
    assert output.splitlines()[-1].startswith("FAILED (tests/lint)" if exit_code else "PASSED")


@pytest.mark.parametrize(
    ("lint", "build", "ctest", "runs"), [(0, 0, 0, "lbc"), (1, 0, 0, "lbc"), (0, 1, 0, "lb"), (0, 0, 1, "lbc")]
)
def test_a_failed_step_fails_the_run_and_only_a_failed_build_ends_it(monkeypatch, capfd, lint, build, ctest, runs):
    def step(name: str, exit_code: int) -> run_tests.Step:
        return run_tests.Step(name, [sys.executable, "-c", f"print('ran {name}'); raise SystemExit({exit_code})"])

    steps = [step("lint", lint), step("build", build), step("ctest", ctest)]
    monkeypatch.setattr(run_tests, "make_steps", lambda pattern: steps)
    assert run_tests.main() == (1 if lint + build + ctest else 0)
    output = capfd.readouterr().out
    assert [name[0] for name in ("lint", "build", "ctest") if f"\nran {name}\n" in output] == list(runs)
    assert output.splitlines()[-1].startswith("FAILED" if lint + build + ctest else "PASSED")
