"""The public names of the C++ headers with their comments, from Doxygen's XML.

Doxygen says which names there are; their comments come to it word for word (cpp_filter.py). A comment also belongs to
the declarations that follow its own without an empty line.
"""

import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEADERS = Path("include/qccl")

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
        for path in sorted(xml.glob("namespaceqccl*.xml")):
            self._read_namespace(path.stem)
        for header, items in self.pages.items():
            self.pages[header] = self._joined(sorted(items, key=lambda item: item.line))

    def _compound(self, reference: str) -> ElementTree.Element:
        return ElementTree.parse(self.xml / f"{reference}.xml").getroot().find("compounddef")

    def _read_namespace(self, reference: str) -> None:
        node = self._compound(reference)
        name = plain(node.find("compoundname"))
        if "internal" in name:
            return
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
