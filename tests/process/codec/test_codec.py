"""`qccl codec`: its lists, explanations and measurements, and how it fails."""

import json
import math
import re
import struct

import pytest
from program import ROOT, run

DOCS = ROOT / "docs"


def test_list_names_every_codec_with_its_settings():
    done = run("codec", "list")
    assert done.returncode == 0, done.stderr
    names = re.findall(r"^(\w+) ", done.stdout, re.M)
    assert names[0] == "none" and {"cast", "minmax"} < set(names)
    assert "bucket_size=1..65536 (1024)" in done.stdout


def test_every_codec_that_is_listed_can_be_shown():
    for name in re.findall(r"^(\w+) ", run("codec", "list").stdout, re.M):
        done = run("codec", "show", name)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(name) and "layout" in done.stdout and "error" in done.stdout


def test_show_explains_settings_size_bound_and_source():
    done = run("codec", "show", "minmax:bits=3")
    for words in ("bits = 3 (allowed: 1..32;", "3.062 bits an element at most", "0.143", "unit/2", "QNCCL"):
        assert words in done.stdout, done.stdout


def test_show_says_what_size_is_expected_where_the_values_decide():
    assert re.search(r"^ {10}\d\S+ bits expected of gradients", run("codec", "show", "lossless").stdout, re.M)
    assert "expected" not in run("codec", "show", "minmax").stdout


def test_show_says_which_numbers_of_bits_are_slow():
    assert "9..15 and 17..31: slow" in run("codec", "show", "minmax:bits=9").stdout


def test_show_says_what_int8_values_add_to_the_error():
    done = run("codec", "show", "topk:values=int8")
    assert "(1 - k / n) ||x||^2" in done.stdout and "k (scale / 2)^2 more" in done.stdout, done.stdout


def test_what_show_says_over_several_lines_is_indented():
    for name in re.findall(r"^(\w+) ", run("codec", "list").stdout, re.M):
        _, _, *lines = run("codec", "show", name).stdout.splitlines()
        words = {line[:10].strip() for line in lines}
        assert words <= {"", "settings", "size", "bucket", "layout", "error", "source"}, (name, lines)


def test_bench_of_a_file_gives_error_size_and_speed_as_table_json_and_picture(tmp_path):
    values = [math.sin(i) for i in range(5000)]
    (tmp_path / "sines.f32").write_bytes(struct.pack(f"<{len(values)}f", *values))
    picture, numbers = tmp_path / "out.png", tmp_path / "out.json"
    flags = ("--synthetic", "none", "--speed-seconds", "0.001", "--plot", picture, "--json", numbers)
    done = run("codec", "bench", "--codecs", "minmax:bits=4", "none", "--data", tmp_path / "sines.f32", *flags)
    assert done.returncode == 0, done.stderr
    assert "# sines.f32: 5000 floats" in done.stdout
    bits, ratio, nmse, largest = re.search(r"^minmax:\S+ +([\d.]+) +(\S+) +(\S+) +(\S+)$", done.stdout, re.M).groups()
    assert 4.06 < float(bits) < 4.08 and 7.8 < float(ratio) < 7.9
    assert float(nmse) == pytest.approx((2 / 15) ** 2 / 12 * 2, rel=0.1)
    assert float(largest) == pytest.approx(1 / 15 * math.sqrt(2), rel=0.1)
    quantized, raw = json.loads(numbers.read_text())["codecs"]
    assert quantized["data"][0]["within_bound"] and quantized["speed"]["encode"]["GBps"] > 0
    assert raw["data"][0]["nmse"] == 0 and raw["speed"] is None
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_bench_of_all_codecs_stays_within_their_bounds():
    done = run("codec", "bench", "--elements", 20000, "--speed-seconds", 0)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"^# (\w+): 20000 floats", done.stdout, re.M) == ["gauss", "laplace", "t3", "outliers"]
    assert "GB/s" not in done.stdout


def test_bench_of_a_name_measures_the_examples_of_its_entry():
    flags = ("--elements", 1000, "--synthetic", "gauss", "--speed-seconds", 0)
    of_one = re.findall(r"^(topk:\S+)", run("codec", "bench", "--codecs", "topk", *flags).stdout, re.M)
    assert len(of_one) > 1
    assert of_one == re.findall(r"^(topk:\S+)", run("codec", "bench", *flags).stdout, re.M)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("show", "minmax:bits=99"), "bits=1..32,"),
        (("show",), "SPEC"),
        (("bench", "--codecs", "zip"), "allowed: none, cast"),
        (("bench", "--synthetic", "cauchy"), "gauss, laplace, t3, outliers and none"),
        (("bench", "--synthetic", "none"), "no data"),
        (("bench", "--data", "/nonexistent"), "No such file"),
        (("bench", "--elements", "100", "--speed-seconds", "nan"), "nan is no number"),
        (("bench", "--elements", "100", "--seed", "-1"), "-1 is below 0"),
        (("bench", "--elements", "100", "--seed", "x"), "--seed"),
        (("sort",), "list, show and bench"),
    ],
)
def test_wrong_flags_are_a_usage_error_that_says_what_is_wrong(flags, words):
    done = run("codec", *flags)
    assert done.returncode == 2 and words in done.stderr, done.stderr


def test_one_that_stands_for_others_is_no_format_to_measure():
    done = run("codec", "bench", "--elements", 100, "--speed-seconds", 0, "--codecs", "auto:bits=4")
    assert done.returncode == 2 and "int:bits=4" in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no/out.png", "there is no directory"),
        ("out.xyz", ".png, .svg or .pdf"),
        ("out", ".png, .svg or .pdf"),
        (".", "is a directory"),
    ],
)
def test_a_picture_that_cannot_have_its_name_is_refused_before_anything_is_measured(tmp_path, name, words):
    done = run("codec", "bench", "--elements", 100, "--speed-seconds", 0, "--plot", tmp_path / name)
    assert done.returncode == 2 and done.stdout == "", done
    assert words in done.stderr and "matplotlib" not in done.stderr


def test_a_picture_that_cannot_be_written_is_a_failure_that_does_not_blame_matplotlib():
    done = run("codec", "bench", "--elements", 100, "--speed-seconds", 0, "--plot", "/proc/out.png")
    assert done.returncode == 1 and "can't draw /proc/out.png" in done.stderr, done.stderr
    assert "No such file" in done.stderr and "matplotlib" not in done.stderr and "Traceback" not in done.stderr


def test_every_codec_has_its_section_in_the_documentation():
    page, measured = (DOCS / "codecs.md").read_text(), (DOCS / "measured" / "codecs.md").read_text()
    for name in re.findall(r"^(\w+) ", run("codec", "list").stdout, re.M):
        assert f"\n## `{name}`\n" in page, name
        if name not in ("none", "auto"):
            rows = measured.split(f"<!-- rows: {name} -->\n| specification")[1].split("<!-- end -->")[0].splitlines()
            assert len(rows) > 2 and all(row.count("|") > 5 for row in rows[2:]), name


def test_the_readme_names_every_codec_with_all_its_settings():
    table = (ROOT / "README.md").read_text().replace("\\|", "|")
    for name, settings in re.findall(r"^(\w+) .*((?:\n .*)?)", run("codec", "list").stdout, re.M):
        spec = ",".join(re.findall(r"(\S+) \(", settings))
        assert f"`{name}{':' if spec else ''}{spec}`" in table, (name, spec)


def test_every_codec_names_its_source_in_the_documentation():
    page = (DOCS / "codecs.md").read_text()
    for name in re.findall(r"^(\w+) ", run("codec", "list").stdout, re.M):
        if name in ("none", "auto"):
            continue
        section = page.split(f"\n## `{name}`\n")[1].split("\n## ")[0]
        assert "\n| source | " in section, name
        assert "\nsource    " in run("codec", "show", name).stdout, name


@pytest.mark.parametrize(("name", "least"), [("add-a-codec.md", 4), ("add-an-algorithm.md", 2)])
def test_the_source_that_the_documentation_shows_is_what_is_compiled(name, least):
    page = (DOCS / name).read_text()
    shown = re.findall(r"<!-- from: (\S+) -->\n```cpp\n(.*?)```", page, re.S)
    assert len(shown) == page.count("```cpp") >= least
    for path, source in shown:
        assert source in (ROOT / path).read_text(), f"{path} has changed, docs/{name} shows:\n{source}"
