"""The C++ reference: a Markdown page for each public header. A public name without a comment is reported."""

import re
from collections.abc import Iterator
from pathlib import Path

from cpp_items import ROOT, Item, Reader, is_constructor, opening, run_doxygen
from cpp_prose import Names, escaped, markdown

FOLDER = "reference/cpp"
# These need no comment of their own: their class's says what they do, or the language does.
PLAIN = re.compile(r"operator|to_string$")


def undocumented(items: list[Item], names: Names) -> Iterator[Item]:
    """A field needs no comment of its own where its type is one of the library's and says what it is."""
    for item in items:
        told = item.kind == "field" and names.is_type(item.type, item.owner)
        if not item.text and not told and not PLAIN.match(item.names[0]) and not is_constructor(item):
            yield item
        yield from undocumented(item.members, names)


def named(pages: dict[str, list[Item]]) -> Names:
    names = Names()

    def add(items: list[Item]) -> None:
        for item in items:
            for name in item.names:
                names.add("::".join(filter(None, (item.owner, name))), item.page, item.anchor, item.kind)
            add(item.members)

    for items in pages.values():
        add(items)
    return names


class Writer:
    def __init__(self, names: Names, page: str) -> None:
        self.names = names
        self.page = page
        self.anchors: set[str] = set()

    def prose(self, text: str, owner: str = "") -> str:
        return markdown(text, self.names.on_page(self.page, owner))

    def cell(self, text: str, owner: str) -> str:
        return re.sub(r"\s*\n\s*", " ", self.prose(text, owner)).replace("|", "\\|")

    def code(self, declarations: list[str]) -> str:
        return "```cpp\n" + "\n".join(declarations) + "\n```"

    def table(self, head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
        kept = [at for at in range(len(head)) if any(row[at] for row in rows)]
        lines = [[head[at] for at in kept], ["---" for _ in kept], *([row[at] for at in kept] for row in rows)]
        return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)

    def fields(self, items: list[Item], owner: str) -> str:
        rows = [
            (f"`{item.names[0]}`", f"`{item.type.replace('std::', '')}`", f"`{item.default}`" if item.default else "",
             self.cell(item.text or self.names.type_of(item.type, owner), owner))
            for item in items
        ]  # fmt: skip
        return self.table(("field", "type", "default", "meaning"), rows)

    def anchor(self, item: Item) -> str:
        """Overloads that stand apart get a number; links lead to the first."""
        name, number = item.anchor, 2
        while name in self.anchors:
            name, number = f"{item.anchor}-{number}", number + 1
        self.anchors.add(name)
        return name

    def item(self, item: Item, level: int) -> Iterator[str]:
        word = {"struct": "struct ", "class": "class ", "enum": "enum "}.get(item.kind, "")
        space = f"{item.owner}::" if item.owner and item.owner[0].islower() else ""  # a namespace in qccl
        title = ", ".join(f"`{space}{name}`" for name in item.names)
        yield f"{'#' * level} {word}{title} {{ #{self.anchor(item)} }}"
        if item.declarations and (item.kind not in ("struct", "class") or ":" in item.declarations[0]):
            yield self.code(item.declarations)
        elif item.declarations and item.declarations[0].startswith("template"):
            yield self.code(item.declarations)
        full = "::".join(filter(None, (item.owner, item.names[0])))
        if item.text:
            yield self.prose(item.text, full if item.members else item.owner)
        if item.values and not any(said for _, said in item.values):
            yield "Values: " + ", ".join(f"`{name}`" for name, _ in item.values) + "."
        elif item.values:
            rows = [(f"`{name}`", self.cell(said, item.owner)) for name, said in item.values]
            yield self.table(("value", "meaning"), rows)
        yield from self.body(item.members, full, level + 1)

    def body(self, items: list[Item], owner: str, level: int) -> Iterator[str]:
        own_fields = [item for item in items if item.kind == "field"]
        if own_fields:
            yield self.fields(own_fields, owner)
        for item in items:
            if item.kind != "field" and not (is_constructor(item) and not item.text):
                yield from self.item(item, level)


def pages(folder: Path) -> tuple[dict[str, str], list[str]]:
    """The pages by path in the site, and what is undocumented: "FILE:LINE: NAME"."""
    reader = Reader(run_doxygen(folder))
    names = named(reader.pages)
    texts, missing = {}, []
    for header, items in reader.pages.items():
        name = Path(header).name
        writer = Writer(names, Path(name).stem + ".md")
        parts = [f"# {name}", writer.prose(opening(reader.sources[header])), f"```cpp\n#include <qccl/{name}>\n```"]
        for item in items:
            parts += writer.item(item, 2)
        texts[f"{FOLDER}/{Path(name).stem}.md"] = "\n\n".join(parts) + "\n"
        for item in undocumented(items, names):
            full = "::".join(filter(None, (item.owner, item.names[0])))
            missing.append(f"{item.header}:{item.line}: {full}")
    texts[f"{FOLDER}/README.md"] = index(reader.sources)
    return texts, missing


def index(sources: dict[str, list[str]]) -> str:
    rows = []
    for header, source in sources.items():
        first = re.split(r"(?<=[.:])\s", opening(source).split("\n\n")[0].replace("\n", " "))[0]
        rows.append(f"| [{Path(header).name}]({Path(header).stem}.md) | {escaped(first.rstrip(':')).rstrip('.')} |")
    return "# C++ reference\n\nThe headers of `include/qccl`.\n\n| header | has |\n|---|---|\n" + "\n".join(rows) + "\n"


if __name__ == "__main__":
    print("\n".join(pages(ROOT / "build" / "doxygen")[1]))
