"""Pages whose tables a program writes."""

import re
import sys
from pathlib import Path


def replace_between(page: Path, begin: str, end: str, text: str) -> None:
    """Puts `text` between two marks of the page. What is no regular file, as /dev/stdout, gets the text alone."""
    if not page.is_file():
        page.write_text(text + "\n")
        return
    new, found = re.subn(f"{begin}.*?{end}", lambda _: f"{begin}\n{text}\n{end}", page.read_text(), flags=re.S)
    if found != 1:
        sys.exit(f"{page} must have {begin} and {end} once\n{text}")
    page.write_text(new)
