"""The site is built without a warning, and everything in it leads somewhere without a network."""

import json
import posixpath
import re
import subprocess
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pytest
from pages import ROOT
from program import PROGRAM

sys.path.insert(0, str(ROOT / "scripts" / "site"))

import cpp_items  # noqa: E402
import cpp_reference  # noqa: E402
import program_pages  # noqa: E402

SITE = ROOT / "build" / "site"
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src"}


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {key: value or "" for key, value in attributes}
        self.ids |= {given[key] for key in ("id", "name") if key in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in LOADED and LOADED[tag] in given and given.get("rel") != "canonical":
            self.loaded.append(given[LOADED[tag]])


@pytest.fixture(scope="module")
def site() -> dict[str, Page]:
    done = subprocess.run([ROOT / "scripts" / "build_site.sh"], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    files = sorted(SITE.rglob("*.html"))
    return {file.relative_to(SITE).as_posix(): Page(file.read_text()) for file in files if file.name != "404.html"}


def target(page: str, link: str) -> tuple[str, str]:
    parts = urlsplit(link)
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(parts.path))) if parts.path else page
    return path, unquote(parts.fragment)


def test_every_link_of_the_site_leads_somewhere(site):
    wrong = []
    for name, page in site.items():
        for link in page.links:
            if urlsplit(link).scheme:
                continue
            path, anchor = target(name, link)
            if not (SITE / path).exists():
                wrong.append(f"{name}: {link}")
            elif anchor and path in site and anchor not in site[path].ids:
                wrong.append(f"{name}: {link}: no such anchor")
    assert wrong == []


def test_nothing_is_loaded_from_the_network(site):
    loaded = [(name, each) for name, page in site.items() for each in page.loaded]
    assert [pair for pair in loaded if urlsplit(pair[1]).scheme or urlsplit(pair[1]).netloc] == []
    assert [pair for pair in loaded if not (SITE / target(*pair)[0]).exists()] == []
    assert any("iframe-worker.js" in each for _, each in loaded), "search from files needs it"


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("qccl.ErrorFeedback", "reference/python/qccl.html"),
        ("Communicator", "reference/cpp/communicator.html"),
        ("QCCL_LINK_RATE", "options.html"),
        ("--link-rate", "reference/program/perf.html"),
        ("minmax", "codecs.html"),
    ],
)
def test_the_search_has_each_kind_of_page(site, words, page):
    index = json.loads((SITE / "search" / "search_index.json").read_text())["docs"]
    found = {entry["location"].partition("#")[0] for entry in index if words in entry["title"] + entry["text"]}
    assert page in found
    assert (SITE / "search" / "search_index.js").exists(), "search from files reads this"


def test_every_header_and_module_has_its_page(site):
    for path in (ROOT / "include" / "qccl").glob("*.h"):
        assert f"reference/cpp/{path.stem}.html" in site
    assert "qccl.ddp.State" in site["reference/python/qccl.ddp.html"].ids
    assert "Communicator.all_reduce" not in site["reference/cpp/communicator.html"].ids
    assert {"Communicator.shrink", "InitOptions"} <= site["reference/cpp/communicator.html"].ids


def test_the_pages_of_the_program_are_fresh():
    folder = program_pages.FOLDER
    made = program_pages.pages(PROGRAM)
    assert sorted(path.name for path in folder.glob("*.md")) == sorted(made)
    stale = [name for name, text in made.items() if (folder / name).read_text() != text]
    assert stale == [], "run scripts/site/program_pages.py"


def test_tables_of_the_program_have_whole_names():
    made = program_pages.pages(PROGRAM)
    for name in program_pages.commands(program_pages.said(PROGRAM, "--help")):
        assert f"| [`{name}`]({name}.md) | " in made["README.md"], name
    cells = [cell for text in made.values() for cell in re.findall(r"^\| `([^`]*)` \|", text, re.MULTILINE)]
    assert len(cells) > 100
    assert [cell for cell in cells if "  " in cell or cell.endswith("INT:INT")] == []


HEADER = """// A header.
#pragma once
namespace qccl {
// Told.
int told();
int told_with_it();

int untold();
// A struct.
struct Settings {
  int count = 0;  // elements
  int bytes = 0;
};
}  // namespace qccl
"""


@pytest.mark.usefixtures("site")  # which installs doxygen
def test_a_public_name_without_a_comment_is_reported(tmp_path, monkeypatch):
    headers = tmp_path / "include" / "qccl"
    headers.mkdir(parents=True)
    (headers / "it.h").write_text(HEADER)
    monkeypatch.setattr(cpp_items, "ROOT", tmp_path)
    pages, undocumented = cpp_reference.pages(tmp_path / "doxygen")
    assert [re.sub(r".*: ", "", each) for each in undocumented] == ["untold", "Settings::bytes"]
    assert "## `told`, `told_with_it`" in pages["reference/cpp/it.md"]
    assert "| `count` | `int` | `0` | elements |" in pages["reference/cpp/it.md"]
