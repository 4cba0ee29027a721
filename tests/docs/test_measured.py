"""Programs that write tables into pages find their marks there, and so does the figures' text around them."""

import re

import pytest
from pages import ROOT

# By program: the page that it writes by default, and the marks.
WRITERS = {
    "bench/training/compare": ("docs/measured/codec-training.md", "training", "end of training"),
    "bench/training/budgets": ("docs/torch-compression.md", "budgets", "end of budgets"),
    "bench/outer/compare": ("docs/measured/outer.md", "outer", "end of outer"),
    "bench/micro/rate_distortion": ("docs/rate-distortion.md", "saved", "end"),
    "bench/micro/codec_page": ("docs/measured/codecs.md", "rows: minmax", "end"),
}


@pytest.mark.parametrize("program", WRITERS)
def test_the_page_that_a_benchmark_writes_has_its_marks(program):
    page, begin, end = WRITERS[program]
    source = (ROOT / program).read_text()
    assert page in re.sub(r'" / "', "/", source), f"{program} writes another page by default"
    text = (ROOT / page).read_text()
    assert text.count(f"<!-- {begin} -->") == 1
    assert f"<!-- {end} -->" in text.split(f"<!-- {begin} -->")[1]


def test_every_program_that_writes_a_page_is_listed():
    programs = [path for path in (ROOT / "bench").rglob("*") if path.is_file() and "<!-- " in read(path)]
    assert {path.relative_to(ROOT).as_posix() for path in programs} == set(WRITERS)


def read(path) -> str:
    return path.read_text(errors="replace")
