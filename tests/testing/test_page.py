"""Checks that docs/testing.md is right. tests/consumer builds and runs its code and commands."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "testing.md").read_text()


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line[:2] == "| "]


def test_every_failure_on_the_page_is_one_that_a_test_reads():
    tests = (ROOT / "tests" / "testing" / "test_intended_failures.py").read_text()
    said = [phrase for _, cell in rows(section("When a test fails"))[1:] for phrase in re.findall(r"`([^`]+)`", cell)]
    assert len(said) >= 6
    for phrase in said:
        assert phrase.rstrip() in tests or phrase == "rank 1:", phrase


def test_reasons_to_skip_are_those_of_the_library():
    header = (ROOT / "include" / "qccl" / "testing.h").read_text()
    codes = dict(re.findall(r"^  (\w+) = (\d+),", header.split("enum class Skip")[1].split("};")[0], re.MULTILINE))
    table = (ROOT / "testing" / "rank.cc").read_text()
    meanings = dict(re.findall(r'SkipCode\{Skip::\w+, "(\w+)", "([^"]+)"\}', table))
    page = [[name.strip("`"), code, meaning] for name, code, meaning in rows(section("Skipping"))[1:]]
    assert page == [[name, code, meanings[name]] for name, code in codes.items()]
