#!/usr/bin/env python3
"""Writes docs/reference/program: a page for each command of qccl from its --help, and one of the codecs' settings.

    program_pages.py [PROGRAM]     writes them, with build/qccl or another program; a test compares them

The pages are in the repository, so that GitHub has them too.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "reference" / "program"
MADE = "<!-- made by scripts/site/program_pages.py: change the help in the program -->\n"
HEAD = re.compile(r"^(Usage|Options|Positionals|Commands|Examples?|Exit code|[A-Z][^.:]*with one value):(.*)$")
ROW = re.compile(r"^  (\S.*?)(?: {2,}(\S.*))?$")
MEANING = 28  # the column in which CLI11's descriptions begin, here behind a single blank
NARROW = re.compile(r"^  -[^\[]{24}(?<! in) (?!in \[)\S")
PAGE = re.compile(r"\bdocs/([\w/-]+)\.md")
SHELL = ("Usage", "Example", "Examples")


def said(program: Path, *arguments: str) -> str:
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=True)
    return done.stdout


def commands(help_text: str) -> list[str]:
    """The names in the list of commands."""
    listed = re.search(r"^Commands:\n((?: {2}.*\n)+)", help_text, re.MULTILINE)
    return re.findall(r"^  (\S+)", listed[1], re.MULTILINE) if listed else []


def escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").strip()


def table(head: str, lines: list[str], links: dict[str, str]) -> str:
    rows: list[list[str]] = []
    for line in lines:
        if NARROW.match(line):
            rows.append([line[2:MEANING].strip(), line[MEANING:]])
        elif row := ROW.match(line):
            rows.append([row[1], row[2] or ""])
        elif line.strip():
            rows[-1][1] = f"{rows[-1][1]} {line.strip()}".strip()
    column = "command" if head == "Commands" else "argument"
    text = [f"| {column} | meaning |", "|---|---|"]
    for name, meaning in rows:
        code = f"`{name}`".replace("|", "\\|")
        text.append(f"| {f'[{code}]({links[name]})' if name in links else code} | {escaped(meaning)} |")
    return "\n".join(text)


def paragraph(lines: list[str]) -> str:
    """Text as it is; columns and lists, which begin with blanks, as code."""
    if any(line.startswith("  ") for line in lines):
        return "```text\n" + "\n".join(lines) + "\n```"
    return PAGE.sub(r"[docs/\1.md](../../\1.md)", escaped("\n".join(lines)))


def blocks(help_text: str) -> list[tuple[str, list[str]]]:
    """The parts of a help, each with its heading, or "" for text."""
    parts: list[tuple[str, list[str]]] = [("", [])]
    for line in help_text.splitlines():
        head = HEAD.match(line)
        if head:
            parts.append((head[1], [head[2].strip()] if head[2].strip() else []))
        elif not line.strip():
            parts.append(("", []))
        else:
            parts[-1][1].append(line)
    return [part for part in parts if part[1]]


def markdown(help_text: str, links: dict[str, str]) -> str:
    text = []
    for head, lines in blocks(help_text):
        if head in SHELL:
            shown = [line.removeprefix("  ") for line in lines]
            text.append(f"**{head}**\n\n```{'text' if head == 'Usage' else 'sh'}\n" + "\n".join(shown) + "\n```")
        elif head == "Exit code":
            text.append(f"**Exit code**: {escaped(' '.join(line.strip() for line in lines))}")
        elif head:
            text.append(f"**{head}**\n\n{table(head, lines, links)}")
        else:
            text.append(paragraph(lines))
    return "\n\n".join(text) + "\n"


def codecs(program: Path) -> str:
    where = "[codecs.md](../../codecs.md) says what each is good for"
    text = f"# Codecs' settings\n\n{MADE}\n`qccl codec list` and `qccl codec show`; {where}.\n"
    for name, summary in re.findall(r"^(\w+) +(\S.*)$", said(program, "codec", "list"), re.MULTILINE):
        shown = said(program, "codec", "show", name).split("\n", 2)[2].strip("\n")
        text += f"\n## `{name}`\n\n{summary[0].upper()}{summary[1:]}.\n"
        settings = re.search(r"^settings((?:.*\n)(?: {10}.*\n)*)", shown + "\n")
        if settings:
            text += "\n| setting | allowed | default | meaning |\n|---|---|---|---|\n"
            for row in re.findall(r"(\w+) = \S+ \(allowed: (\S+); default: ([^)]+)\)(?:: (.*))?", settings[1]):
                key, allowed, default, meaning = (escaped(each) for each in row)
                text += f"| `{key}` | {allowed} | {default} | {meaning} |\n"
            shown = shown[len(settings[0]) :] if shown.startswith("settings") else shown
        if shown.strip():
            text += "\n```text\n" + shown.rstrip("\n") + "\n```\n"
    return text


def pages(program: Path) -> dict[str, str]:
    """The text of each page by the name of its file."""
    top = said(program, "--help")
    names = commands(top)
    made = {"README.md": f"# qccl\n\n{MADE}\n{markdown(top, {name: f'{name}.md' for name in names})}"}
    for name in names:
        help_text = said(program, name, "--help")
        inner = commands(help_text)
        links = {each: f"{name}-{each}.md" for each in inner}
        made[f"{name}.md"] = f"# qccl {name}\n\n{MADE}\n{markdown(help_text, links)}"
        for each in inner:
            text = markdown(said(program, name, each, "--help"), {})
            made[f"{name}-{each}.md"] = f"# qccl {name} {each}\n\n{MADE}\n{text}"
    made["codecs.md"] = codecs(program)
    return made


def main() -> int:
    made = pages(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "qccl")
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.glob("*.md"):
        if old.name not in made:
            old.unlink()
    for name, text in made.items():
        (FOLDER / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
