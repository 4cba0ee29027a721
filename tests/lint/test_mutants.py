"""scripts/mutants.py changes operators, constants and conditions, and nothing else."""

import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

import mutants  # noqa: E402


def changed(line: str) -> set[str]:
    text = f"void f() {{\n  {line}\n}}\n"
    found = mutants.mutants_of(Path("x.cc"), text)
    return {mutant.apply(text).splitlines()[1].strip() for mutant in found}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("x = a < b;", {"x = a <= b;"}),
        ("x += a * 3;", {"x -= a * 3;", "x += a + 3;", "x += a * 4;"}),
        ("if (f(a) && !b) g();", {"if (!(f(a) && !b)) g();", "if (f(a) || !b) g();", "if (f(a) && b) g();"}),
        ("while (next()) g(true);", {"while (!(next())) g(true);", "while (next()) g(false);"}),
        ("return std::min(a, b);", {"return std::max(a, b);"}),
        ('fail("a < b and 3");', set()),
        ("std::vector<int> v;  // 3 < 4", set()),
        ("static_assert(sizeof(A) == 4);", set()),
    ],
)
def test_one_change_at_a_time(line, expected):
    assert changed(line) == expected


def test_a_description_shows_the_line_before_and_after():
    text = "int f() {\n  return 1;\n}\n"
    (mutant,) = mutants.mutants_of(Path("src/x.cc"), text)
    assert mutant.describe(text) == "src/x.cc:2: return 1;\n    ->  return 2;"


def test_a_seed_draws_the_same_changes_again():
    def first(seed: int) -> list[mutants.Mutant]:
        return [mutant for mutant, _ in zip(mutants.draw(["src/wire"], seed), range(5), strict=False)]

    assert first(1) == first(1) != first(2)


def test_the_changed_layers_own_tests_run_first_and_those_below_it_never():
    names = (
        "build/qccl_test_kernels",
        "build/tests/qccl_test_property",
        "build/qccl_test_group",
        "build/qccl_test_plan",
    )
    mutant = mutants.Mutant(Path("src/plan/plan.cc"), 0, 1, "")
    programs = [mutants.Program(name) for name in names]
    ordered = mutants.order(programs, mutant, Counter())
    assert [program.name for program in ordered] == ["qccl_test_plan", "qccl_test_property", "qccl_test_group"]
    ordered = mutants.order(programs, mutant, Counter(qccl_test_group=2, qccl_test_property=1))
    assert [program.name for program in ordered] == ["qccl_test_plan", "qccl_test_group", "qccl_test_property"]


def test_a_change_is_judged_by_one_program_after_the_other(monkeypatch):
    built = []
    monkeypatch.setattr(mutants, "JOBS", 2)
    monkeypatch.setattr(mutants, "build", lambda target, log: built.append(target) or True)
    programs = [mutants.Program(name) for name in ("/bin/true", "/bin/false", "/bin/sh")]
    monkeypatch.setattr(mutants, "BUILD", Path("/"))
    assert mutants.judge(programs) == "false"
    assert built == ["true", "false"]
    assert mutants.judge(programs[:1]) == ""
    monkeypatch.setattr(mutants, "build", lambda target, log: False)
    assert mutants.judge(programs) is None


def test_a_program_that_fails_ends_the_others(tmp_path):
    waits, fails = tmp_path / "waits", tmp_path / "fails"
    waits.write_text("#!/bin/sh\nexec cat /dev/zero > /dev/null\n")
    fails.write_text("#!/bin/sh\nexit 3\n")
    for script in (waits, fails):
        script.chmod(0o755)
    mutants_jobs, mutants.JOBS, mutants.BUILD = mutants.JOBS, 2, tmp_path
    try:
        assert mutants.first_failure([mutants.Program(str(waits)), mutants.Program(str(fails))]) == "fails"
        assert mutants.first_failure([mutants.Program("/bin/true")]) == ""
    finally:
        mutants.JOBS = mutants_jobs


def test_each_planted_mistake_changes_one_place_of_the_code_as_it_is():
    for planted in mutants.planted_mistakes():
        assert planted.apply() != (mutants.ROOT / planted.file).read_text(), planted


@pytest.mark.parametrize(
    ("output", "caught"),
    [
        ("[ RUN      ] A.b\nqccl: error: broken invariant: a < b at src/x.h:12\n", "a < b at src/x.h:12"),
        ("x.cc:3: Failure\n[  FAILED  ] A.b\nqccl: error: broken invariant: a < b at src/x.h:12\n", None),
        ("[       OK ] A.b\n", None),
    ],
)
def test_an_assertion_counts_only_before_a_test_fails(output, caught):
    assert mutants.caught_by(output) == caught
