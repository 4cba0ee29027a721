"""MkDocs' hooks: pages that are made when the site is built, and links that leave docs/.

Made: the C++ reference, the Python reference, the list of decisions, and a page for each file outside docs/ that a page
links to, so that the site is whole without a network. The pages' links stay relative, as GitHub shows them.
"""

import logging
import posixpath
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))

import cpp_reference  # noqa: E402
import python_reference  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
log = logging.getLogger("mkdocs.hooks.qccl")
# Pages of the root, and where the site has them.
ROOT_PAGES = {
    "README.md": "project/readme.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
}
REFERENCES = {"include/qccl": "reference/cpp/README.md", "python/qccl": "reference/python/qccl.md"}
LINK = re.compile(r"(?<!\\)(?:\[([\w/-]+\.md)(?=\]))?(\]\()([^)\s]+)(\))")  # text that is a file's name, link
FENCE = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.DOTALL | re.MULTILINE)
LANGUAGES = {".py": "python", ".cc": "cpp", ".h": "cpp", ".cu": "cpp", ".sh": "sh", ".json": "json", ".toml": "toml"}


def links(text: str) -> Iterator[str]:
    """The relative links of a page, without those in code."""
    for part in FENCE.split(text)[::2]:
        for match in LINK.finditer(part):
            if "://" not in match[3] and not match[3].startswith(("#", "mailto:")):
                yield match[3]


def place_of(page: str) -> str:
    """The file of a page of the site, from the root of the checkout."""
    own = {there: here for here, there in ROOT_PAGES.items()}
    return own.get(page, f"docs/{page}")


def target_of(page: str, link: str) -> tuple[str, str]:
    """The file or folder that a link of the page names, from the root of the checkout, and the anchor."""
    path, _, anchor = link.partition("#")
    return posixpath.normpath(posixpath.join(posixpath.dirname(place_of(page)), path)), anchor


def site_page(target: str) -> str | None:
    """The page of the site that has this file of the checkout; None if there is no such file."""
    path = ROOT / target
    if target in ROOT_PAGES:
        return ROOT_PAGES[target]
    if target in REFERENCES:
        return REFERENCES[target]
    if target.startswith("include/qccl/"):
        return f"reference/cpp/{path.stem}.md"
    if target.startswith("docs/"):
        inside = target.removeprefix("docs/")
        return f"{inside}/README.md" if path.is_dir() else inside if path.exists() else None
    return f"source/{target}.md" if path.exists() else None


def title_of(target: str) -> str:
    """A page's title, in place of its file's name."""
    return (ROOT / target).read_text().partition("\n")[0].lstrip("# ")


def is_page(name: str) -> bool:
    return name.endswith(".md") and not name.startswith(("reference/cpp/", "reference/python/", "source/"))


def source_page(target: str) -> str:
    path = ROOT / target
    if path.is_dir():
        files = sorted(each.name for each in path.iterdir() if not each.name.startswith((".", "__")))
        return f"# {target}\n\n" + "\n".join(f"- `{name}`" for name in files) + "\n"
    return f"# {target}\n\n````{LANGUAGES.get(path.suffix, 'text')}\n{path.read_text().rstrip()}\n````\n"


def decisions() -> str:
    rows = []
    for path in sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md")):
        title = path.read_text().splitlines()[0].lstrip("# ")
        rows.append(f"- [{title}]({path.name})")
    return "# Decisions\n\nWhy parts of QCCL are as they are, with the measurements.\n\n" + "\n".join(rows) + "\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    made = {there: (ROOT / here).read_text() for here, there in ROOT_PAGES.items()}
    made["decisions/README.md"] = decisions()
    cpp, undocumented = cpp_reference.pages(ROOT / "build" / "doxygen")
    for name in undocumented:
        log.warning("undocumented: %s", name)
    for name in python_reference.undocumented():
        log.warning("undocumented: %s", name)
    made |= cpp | python_reference.pages()
    pages = {file.src_uri: file.content_string for file in files if is_page(file.src_uri)} | made
    for page, text in pages.items():
        for link in links(text) if is_page(page) else ():
            there = site_page(target_of(page, link)[0])
            if there is not None and there.startswith("source/"):
                made.setdefault(there, source_page(target_of(page, link)[0]))
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    own = page.file.src_uri
    if not is_page(own):
        return markdown

    def rewritten(match: re.Match[str]) -> str:
        link = match[3]
        if "://" in link or link.startswith(("#", "mailto:")):
            return match.group()
        target, anchor = target_of(own, link)
        there = site_page(target)
        if there is None:
            log.warning("%s links to %s, which does not exist", place_of(own), link)
            return match.group()
        path = posixpath.relpath(there, posixpath.dirname(own) or ".")
        text = f"[{title_of(target)}" if match[1] else ""
        return f"{text}{match[2]}{path}{'#' + anchor if anchor else ''}{match[4]}"

    if own == "README.md":
        page.meta["hide"] = ["navigation", "toc"]
    parts = FENCE.split(markdown)
    parts[::2] = [LINK.sub(rewritten, part) for part in parts[::2]]
    return "".join(parts)
