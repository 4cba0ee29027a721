"""The C++ reference: a Markdown page for each public header, from Doxygen's XML.

Doxygen says which names there are; their comments come to it word for word (cpp_filter.py). A comment also belongs to
the declarations that follow its own without an empty line. A public name without a comment is reported.
"""

import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cpp_prose import Names, escaped, markdown

ROOT = Path(__file__).resolve().parents[2]
HEADERS = Path("include/qccl")
FOLDER = "reference/cpp"
NAMESPACES = ("qccl", "qccl::train", "qccl::testing")
# These need no comment of their own: their class's says what they do, or the language does.
PLAIN = re.compile(r"operator|to_string$")

DOXYFILE = """\
INPUT = include/qccl
FILE_PATTERNS = *.h
INPUT_FILTER = "{python} {filter}"
OUTPUT_DIRECTORY = {folder}
GENERATE_HTML = NO
GENERATE_LATEX = NO
GENERATE_XML = YES
XML_PROGRAMLISTING = NO
EXTRACT_ALL = YES
MARKDOWN_SUPPORT = NO
AUTOLINK_SUPPORT = NO
HAVE_DOT = NO
QUIET = YES
WARNINGS = NO
"""


@dataclass
class Item:
    """A function, type, constant or field, or several that share a comment."""

    kind: str
    names: list[str]
    owner: str  # the class, without qccl::; "" outside of classes
    header: str
    line: int
    declarations: list[str]
    text: str
    values: list[tuple[str, str]] = field(default_factory=list)  # of an enumeration: name, comment
    type: str = ""  # of a field
    default: str = ""
    members: list["Item"] = field(default_factory=list)  # of a class

    @property
    def anchor(self) -> str:
        return "::".join(filter(None, (self.owner, self.names[0]))).replace("::", ".").replace("~", "")

    @property
    def page(self) -> str:
        return f"{Path(self.header).stem}.md"


def plain(node: ElementTree.Element | None) -> str:
    text = "" if node is None else "".join(node.itertext())
    text = re.sub(r"\s+", " ", text).strip()
    text = re.sub(r"< ", "<", re.sub(r" >", ">", text))
    return re.sub(r" ([&*]+) ?(?=(\w)?)", lambda mark: mark[1] + (" " if mark[2] else ""), text)


def comment(node: ElementTree.Element) -> str:
    said = node.find("detaileddescription//verbatim")
    lines = [] if said is None or not said.text else said.text.splitlines()
    return "\n".join(re.sub(r"^\s*///<? ?", "", line).rstrip() for line in lines).strip("\n ")


def template(node: ElementTree.Element) -> str:
    parameters = node.find("templateparamlist")
    if parameters is None:
        return ""
    each = [
        " ".join(filter(None, (plain(one.find("type")), plain(one.find("declname"))))) for one in parameters
    ]
    requires = plain(node.find("requiresclause"))
    return f"template <{', '.join(each)}>\n" + (f"requires {requires}\n" if requires else "")


def wrapped(text: str) -> str:
    """Breaks a declaration of more than 90 characters after the commas between its parameters."""
    last = text.rpartition("\n")[2]
    if len(last) <= 90 or "(" not in last:
        return text
    head, _, rest = last.partition("(")
    parts, depth, part = [], 0, ""
    for letter in rest:
        depth += (letter in "(<{[") - (letter in ")>}]")
        part += letter
        if letter == "," and depth == 0:
            parts.append(part.strip())
            part = ""
    return text[: len(text) - len(last)] + f"{head}(\n    " + "\n    ".join([*parts, part.strip()])


def declaration(node: ElementTree.Element) -> str:
    kind, name = node.get("kind"), plain(node.find("name"))
    type_name = plain(node.find("type"))
    if kind == "typedef":
        return f"{template(node)}using {name} = {type_name};"
    if kind == "variable":
        return f"{template(node)}{type_name} {name} {plain(node.find('initializer'))}".rstrip() + ";"
    words = [word for word in ("explicit", "static") if node.get(word) == "yes" and word not in type_name.split()]
    parameters = plain(node.find("argsstring"))
    parameters = re.sub(r"\s*=\s*(?=[{\w])", " = ", parameters)
    return wrapped(template(node) + " ".join(filter(None, [*words, type_name, name])) + parameters + ";")


def without_qccl(name: str) -> str:
    return name.removeprefix("qccl::")


def make_item(node: ElementTree.Element, owner: str, in_class: bool) -> Item:
    place = node.find("location")
    kind = node.get("kind", "")
    item = Item(
        kind, [plain(node.find("name"))], owner, place.get("file", ""), int(place.get("line", 0)), [], comment(node)
    )
    if kind == "enum":
        item.values = [(plain(value.find("name")), comment(value)) for value in node.iter("enumvalue")]
    elif kind == "variable" and in_class:
        item.kind, item.type = "field", plain(node.find("type"))
        item.default = plain(node.find("initializer")).removeprefix("=").strip().removesuffix("{}")
    if kind != "enum":
        item.declarations = [declaration(node)]
    return item


def members(node: ElementTree.Element, owner: str) -> Iterator[Item]:
    in_class = node.get("kind") != "namespace"
    for member in node.iter("memberdef"):
        if member.get("prot") == "public" and member.get("kind") != "friend" and "@" not in plain(member.find("name")):
            yield make_item(member, owner, in_class)


class Reader:
    """Reads Doxygen's XML into items by header."""

    def __init__(self, xml: Path) -> None:
        self.xml = xml
        headers = sorted((ROOT / HEADERS).glob("*.h"))
        self.sources = {(HEADERS / path.name).as_posix(): path.read_text().splitlines() for path in headers}
        self.pages: dict[str, list[Item]] = {header: [] for header in self.sources}
        for name in NAMESPACES:
            self._read_namespace(name)
        for header, items in self.pages.items():
            self.pages[header] = self._joined(sorted(items, key=lambda item: item.line))

    def _compound(self, reference: str) -> ElementTree.Element:
        return ElementTree.parse(self.xml / f"{reference}.xml").getroot().find("compounddef")

    def _read_namespace(self, name: str) -> None:
        if not (self.xml / f"namespace{name.replace('::', '_1_1')}.xml").exists():
            return
        node = self._compound("namespace" + name.replace("::", "_1_1"))
        inside = without_qccl(name) if name != "qccl" else ""
        for item in members(node, inside):
            self.pages[item.header].append(item)
        for inner in node.iter("innerclass"):
            if inner.get("prot") == "public":
                item = self._class(inner.get("refid", ""))
                self.pages[item.header].append(item)

    def _class(self, reference: str) -> Item:
        node = self._compound(reference)
        owner, _, name = without_qccl(plain(node.find("compoundname"))).rpartition("::")
        place = node.find("location")
        kind = node.get("kind", "")
        item = Item(kind, [name], owner, place.get("file", ""), int(place.get("line", 0)), [], comment(node))
        bases = [plain(base) for base in node.iter("basecompoundref")]
        item.declarations = [f"{template(node)}{kind} {name}" + (f" : public {', '.join(bases)}" if bases else "")]
        full = "::".join(filter(None, (owner, name)))
        own = list(members(node, full))
        inner = [each for each in node.iter("innerclass") if each.get("prot") == "public"]
        own += [self._class(each.get("refid", "")) for each in inner]
        item.members = self._joined(sorted(own, key=lambda member: member.line))
        return item

    def _joined(self, items: list[Item]) -> list[Item]:
        """Puts declarations without a comment to the one above, if that has one and no empty line is between."""
        result: list[Item] = []
        for item in items:
            before = result[-1] if result else None
            follows = before is not None and not item.text and item.kind == before.kind != "field"
            if follows and before.text and "" not in self._between(before, item):
                before.names += [name for name in item.names if name not in before.names]
                before.declarations += item.declarations
            else:
                result.append(item)
        return result

    def _between(self, first: Item, second: Item) -> list[str]:
        return [line.strip() for line in self.sources[first.header][first.line : second.line]]


def undocumented(items: list[Item], names: Names) -> Iterator[Item]:
    """A field needs no comment of its own where its type is one of the library's and says what it is."""
    for item in items:
        told = item.kind == "field" and names.is_type(item.type, item.owner)
        if not item.text and not told and not PLAIN.match(item.names[0]) and not is_constructor(item):
            yield item
        yield from undocumented(item.members, names)


def is_constructor(item: Item) -> bool:
    own = item.owner.rpartition("::")[2]
    return item.names[0].lstrip("~") == own


def run_doxygen(folder: Path) -> Path:
    if shutil.which("doxygen") is None:
        sys.exit("the C++ reference needs doxygen (scripts/packages_docs.txt): install it, then run make docs again")
    folder.mkdir(parents=True, exist_ok=True)
    filter_program = Path(__file__).with_name("cpp_filter.py")
    settings = DOXYFILE.format(python=sys.executable, filter=filter_program, folder=folder)
    subprocess.run(["doxygen", "-"], input=settings, text=True, cwd=ROOT, check=True)
    return folder / "xml"


def opening(source: list[str]) -> str:
    """The comment with which a header begins."""
    lines = []
    for line in source:
        if not line.startswith("//"):
            break
        lines.append(line[2:].removeprefix(" "))
    return "\n".join(lines)


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
        title = ", ".join(f"`{name}`" for name in item.names)
        word = {"struct": "struct ", "class": "class ", "enum": "enum "}.get(item.kind, "")
        qualified = f"{item.owner}::" if item.owner and item.owner[0].islower() else ""
        yield f"{'#' * level} {word}{title if not qualified else f'`{qualified}{item.names[0]}`'} {{ #{self.anchor(item)} }}"
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
