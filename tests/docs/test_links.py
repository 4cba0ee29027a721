"""Links between pages, as GitHub resolves them, and the size of pages. test_site.py follows those of the built site."""

import posixpath
import re

import pytest
from pages import MADE, ROOT, anchors, links, pages

PAGES = pages()
MOST_LINES = 200
# A list that grows with every release, the record of measurements behind a decision, and what is generated.
LONG = re.compile(r"CHANGELOG\.md|docs/decisions/|docs/reference/")


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    wrong = []
    for link in links(PAGES[page]):
        path, _, anchor = link.partition("#")
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
        if not (ROOT / target).exists():
            wrong.append(f"{link}: there is no {target}")
        elif anchor and anchor not in anchors(PAGES.get(target, "")):
            wrong.append(f"{link}: {target} has no heading {anchor}")
    assert wrong == []


@pytest.mark.parametrize("page", PAGES)
def test_images_have_a_description(page):
    assert re.findall(r"!\[\]\(", PAGES[page]) == []


def test_pages_are_short():
    long = {page: count for page, text in PAGES.items() if (count := len(text.splitlines())) > MOST_LINES}
    assert {page: count for page, count in long.items() if not LONG.match(page)} == {}, "split them"


def test_every_page_is_in_the_navigation():
    """MkDocs refuses pages of docs/ that the navigation leaves out; the pages of the root are the hooks'."""
    hooks = (ROOT / "scripts" / "site" / "hooks.py").read_text()
    assert [page for page in PAGES if "/" not in page and f'"{page}"' not in hooks] == []


def test_generated_pages_are_marked():
    assert [page for page in PAGES if page.startswith(MADE) and "made by scripts/site/" not in PAGES[page]] == []
