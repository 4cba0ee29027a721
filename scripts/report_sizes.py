#!/usr/bin/env python3
"""Shows the ten largest classes, functions, files and include closures of the code that is shipped.

    report_sizes.py [root]     the four lists; exit 1 if docs/sizes.md gives no reason for one of them

Sizes are no limits: a class is not split for its number. docs/sizes.md says of each why it is as large as it is.
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from cpp_source import blank_literals, classes, scan, without_angles

FOLDERS = ("include", "src", "bindings", "tools", "testing")
LISTED = 10
REASONS = Path("docs/sizes.md")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.M)


@dataclass(frozen=True)
class Size:
    name: str  # as docs/sizes.md names it
    size: int


def shipped(root: Path) -> dict[Path, str]:
    """The text of each file that is no test, by its path from the root."""
    files = (path for folder in FOLDERS for path in (root / folder).rglob("*") if path.suffix in (".h", ".cc"))
    kept = (path for path in sorted(files) if not path.stem.endswith(("_test", "_support")))
    return {path.relative_to(root): path.read_text() for path in kept}


def class_sizes(sources: dict[Path, str]) -> list[Size]:
    found = []
    for path, text in sources.items():
        for declared in classes(blank_literals(text)):
            name = re.search(r"\b(?:class|struct)\s+([\w:]+)", without_angles(declared.head))
            if name:
                found.append(Size(f"{name[1]} ({path})", declared.declarations))
    return found


def function_sizes(sources: dict[Path, str]) -> list[Size]:
    found = []
    for path, text in sources.items():
        for function in scan(blank_literals(text))[1]:
            name = re.search(r"([\w:~]+)\s*\(", function.head)
            found.append(Size(f"{name[1] if name else function.head} ({path})", function.body_lines))
    return found


def file_sizes(sources: dict[Path, str]) -> list[Size]:
    return [Size(str(path), text.count("\n")) for path, text in sources.items()]


def closure(path: Path, sources: dict[Path, str]) -> set[Path]:
    """The project's headers that a header includes, itself or by others, as the compiler would find them."""
    found: set[Path] = set()
    waiting = [path]
    while waiting:
        current = waiting.pop()
        for target in INCLUDE.findall(sources[current]):
            bases = (current.parent, "include", "src", "bindings/torch", "")
            places = [Path(base, target) for base in bases]
            header = next((place for place in places if place in sources), None)
            if header is not None and header not in found:
                found.add(header)
                waiting.append(header)
    return found - {path}


def closure_sizes(sources: dict[Path, str]) -> list[Size]:
    return [Size(str(path), len(closure(path, sources))) for path in sources if path.suffix == ".h"]


def largest(sizes: list[Size]) -> list[Size]:
    return sorted(sizes, key=lambda each: (-each.size, each.name))[:LISTED]


def main() -> int:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent)
    sources = shipped(root)
    reasons = (root / REASONS).read_text() if (root / REASONS).exists() else ""
    without = []
    for title, unit, sizes in (
        ("classes", "declarations", class_sizes(sources)),
        ("functions", "lines", function_sizes(sources)),
        ("files", "lines", file_sizes(sources)),
        ("include closures", "headers", closure_sizes(sources)),
    ):
        print(f"largest {title}, in {unit}:")
        for each in largest(sizes):
            print(f"  {each.size:5}  {each.name}")
            if f"`{each.name.split(' (')[0]}`" not in reasons:
                without.append(each.name)
    for name in without:
        print(f"{REASONS} gives no reason for the size of {name}: say why it is so large, or make it smaller")
    return 1 if without else 0


if __name__ == "__main__":
    sys.exit(main())
