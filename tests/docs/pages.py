"""The pages of the documentation, and what is in them."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MADE = "docs/reference/program/"
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
LINK = re.compile(r"(?<!\\)\]\(([^)\s]+)\)")


def pages() -> dict[str, str]:
    """Text by path."""
    files = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in sorted(files)}


def without_code(text: str) -> str:
    return INLINE.sub("code", FENCE.sub("", text))


def links(text: str) -> list[str]:
    """Links to other files and to anchors."""
    return [link for link in LINK.findall(without_code(text)) if not re.match(r"[a-z]+:", link)]


def anchors(text: str) -> set[str]:
    """As GitHub makes them from headings."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        number = 0
        while (name := slug if number == 0 else f"{slug}-{number}") in found:
            number += 1
        found.add(name)
    return found


def blocks(text: str, *languages: str) -> list[str]:
    return [code for _, language, code in FENCE.findall(text) if language in languages]


def command_lines(text: str) -> list[str]:
    """The shell lines in a page's blocks, continued ones joined, and its inline code that begins with a program."""
    shell = [line for block in blocks(text, "sh", "bash", "") for line in block.replace("\\\n", " ").splitlines()]
    code = [each for each in INLINE.findall(FENCE.sub("", text))]
    return [re.split(r" #|; #", line)[0].strip() for line in [*shell, *code]]
