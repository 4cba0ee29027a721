#!/usr/bin/env python3
"""Doxygen's input filter: makes documentation of a header's plain comments, each kept word for word.

    cpp_filter.py HEADER     prints it; no line moves, so that Doxygen's line numbers are the header's

A comment on lines of its own belongs to the declaration below it, one at the end of a line to what is on that line.
"""

import re
import sys
from pathlib import Path

COMMENT = re.compile(r"^( *)// ?(.*)$")
TRAILING = re.compile(r"^(.*\S.*?)  // (.*)$")
NOT_DECLARED = re.compile(r"\s*(#|namespace\b|[})]|public:|private:|return\b|$)")


def verbatim(lines: list[str], opening: str) -> list[str]:
    text = [f"{opening} {line}" for line in lines]
    text[0] = f"{opening} @verbatim {lines[0]}"
    text[-1] += " @endverbatim"
    return text


def filtered(lines: list[str]) -> list[str]:
    result, at = [], 0
    while at < len(lines):
        line = lines[at]
        trailing = TRAILING.match(line)
        comment = COMMENT.match(line)
        end = at + 1
        if trailing and "//" not in trailing[1]:
            column = " " * line.index("  // ") + "  // "
            while end < len(lines) and lines[end].startswith(column):
                end += 1
            words = [trailing[2], *(each.strip()[3:] for each in lines[at + 1 : end])]
            made = verbatim(words, "///<")
            result += [f"{trailing[1]} {made[0]}", *made[1:]]
        elif comment:
            while end < len(lines) and COMMENT.match(lines[end]):
                end += 1
            block = lines[at:end]
            declared = end < len(lines) and not NOT_DECLARED.match(lines[end])
            result += verbatim([COMMENT.match(each)[2] for each in block], "///") if declared else block
        else:
            result.append(line)
        at = end
    return result


if __name__ == "__main__":
    print("\n".join(filtered(Path(sys.argv[1]).read_text().splitlines())))
