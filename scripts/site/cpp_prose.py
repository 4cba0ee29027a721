"""A header's comment as Markdown: paragraphs, code, lists of two columns, and links to the names that it mentions."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

Link = Callable[[str], str | None]  # where a name is documented, from this page

ROW = re.compile(r"^ {2,}(\S.*?) {2,}(\S.*)$")
CODE = re.compile(r"`[^`]+`")
WORD = re.compile(r"(?<![\w/.\"'-])(?:[a-zA-Z_]\w*::)*[A-Za-z_]\w*(?:\(\))?")
PAGE = re.compile(r"(?<![\w/])docs/([\w/-]+)\.md(#[\w-]+)?")
HEADER = re.compile(r"(?<![\w/])(?:qccl/)?(\w+)\.h\b")


@dataclass
class Names:
    """Where the public names are documented."""

    places: dict[str, tuple[str, str]] = field(default_factory=dict)  # page, anchor
    kinds: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, page: str, anchor: str, kind: str) -> None:
        self.places.setdefault(name, (page, anchor))
        self.kinds.setdefault(name, kind)

    def type_of(self, text: str, owner: str) -> str:
        """The public type that a field's type is, or "" if it is another's."""
        inner = re.sub(r"std::optional<(.*)>", r"\1", text)
        for full in (f"{owner}::{inner}", inner):
            if self.kinds.get(full) in ("class", "struct", "enum"):
                return full
        return ""

    def is_type(self, text: str, owner: str) -> bool:
        return bool(self.type_of(text, owner))

    def on_page(self, page: str, owner: str) -> Link:
        pages = {place[0] for place in self.places.values()} | {"qccl.md"}

        def link(word: str) -> str | None:
            if word.endswith(".h"):
                return f"{word[:-2]}.md" if f"{word[:-2]}.md" in pages else None
            name = word.removesuffix("()").removeprefix("qccl::")
            is_call = word.endswith("()")
            for full in (f"{owner}::{name}", name, f"Communicator::{name}" if is_call else "", f"NamedCalls::{name}"):
                found = self.places.get(full)
                wanted = is_call or "::" in word or self.kinds.get(full) in ("class", "struct", "enum")
                # Fields stand in their class's table, without an anchor.
                if found and wanted and self.kinds[full] != "field" and full != owner:
                    return f"#{found[1]}" if found[0] == page else f"{found[0]}#{found[1]}"
            return None

        return link


def inline(text: str, link: Link) -> str:
    """Escapes what Markdown would read, and links names; code between backticks stays."""
    parts, at = [], 0
    for code in CODE.finditer(text):
        parts += [words(text[at : code.start()], link), code.group()]
        at = code.end()
    return "".join([*parts, words(text[at:], link)])


def words(text: str, link: Link) -> str:
    def named(match: re.Match[str]) -> str:
        word = match.group()
        where = link(word)
        return f"[`{word}`]({where})" if where else f"`{word}`" if "::" in word or "()" in word or "_" in word else word

    def paged(match: re.Match[str]) -> str:
        return f"[{match[1]}.md](../../{match[1]}.md{match[2] or ''})"

    result, at = [], 0
    for place in re.finditer(rf"(?P<page>{PAGE.pattern})|(?P<header>{HEADER.pattern})|(?P<word>{WORD.pattern})", text):
        result.append(escaped(text[at : place.start()]))
        if place["page"]:
            result.append(PAGE.sub(paged, place["page"]))
        elif place["header"]:
            where = link(place["header"].removeprefix("qccl/"))
            result.append(f"[`{place['header']}`]({where})" if where else f"`{place['header']}`")
        else:
            result.append(named(re.match(r".*", place["word"])))
        at = place.end()
    return "".join([*result, escaped(text[at:])])


def escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("*", "\\*").replace("[", "\\[")


def block(lines: list[str], link: Link) -> str:
    """Indented lines: a list if the first has two columns and is no code, else code."""
    if ROW.match(lines[0]) and not re.search(r"//|;|=", lines[0].split("  ")[1]):
        return two_columns(lines, link)
    least = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    return "```cpp\n" + "\n".join(line[least:] for line in lines).rstrip() + "\n```"


def two_columns(lines: list[str], link: Link) -> str:
    rows: list[tuple[str, str]] = []
    for line in lines:
        indent = len(line) - len(line.lstrip())
        row = ROW.match(line)
        if row and indent <= 4:
            rows.append((row[1], row[2]))
        elif indent <= 4:
            rows.append((line.strip(), ""))
        else:
            rows[-1] = (rows[-1][0], f"{rows[-1][1]} {line.strip()}".strip())
    return "\n".join(f"- {term(left)}: {inline(right, link)}" for left, right in rows)


def term(text: str) -> str:
    """The left column: code if it is names, else words."""
    names = text.split(", ")
    if all(re.fullmatch(r"[\w|.=:()-]+", name) for name in names) and names != ["any"]:
        return ", ".join(f"`{name}`" for name in names)
    return f"**{escaped(text)}**"


def markdown(text: str, link: Link) -> str:
    parts: list[str] = []
    kept: list[str] = []
    indented = False

    def end() -> None:
        while kept and not kept[-1].strip():
            kept.pop()
        if kept:
            parts.append(block(kept, link) if indented else inline("\n".join(kept), link))
        kept.clear()

    for line in text.splitlines():
        is_indented = line.startswith("  ") or (indented and not line.strip())
        if is_indented != indented or (not line.strip() and not indented):
            end()
            indented = is_indented
        if line.strip() or indented:
            kept.append(line)
    end()
    return "\n\n".join(parts)
