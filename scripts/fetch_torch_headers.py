#!/usr/bin/env python3
"""Fetches the headers of torch releases: of all that a wheel is built for, or of some.

    fetch_torch_headers.py FOLDER            leaves FOLDER/2.11/include and so on, 40 MB each
    fetch_torch_headers.py FOLDER 2.11.0     of that release alone

pip fetches torch's wheel (about 500 MB), and all but its headers is deleted. What is there already is kept.
"""

import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

RELEASES = ("2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0")  # a patch release has the layout of its minor release
VERSION_HEADER = Path("include", "torch", "headeronly", "version.h")


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    releases = sys.argv[2:] or RELEASES
    for number, release in enumerate(releases, start=1):
        target = folder / ".".join(release.split(".")[:2])
        if version_of(target) == release:
            continue
        print(f"Fetching the headers of torch {release}, {number} of {len(releases)} (once)", flush=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".") as scratch:
            fetched = fetch(release, Path(scratch))
            shutil.rmtree(target, ignore_errors=True)
            fetched.rename(target)  # in one step: what is there is complete
        if version_of(target) != release:
            sys.exit(f"The headers in {target} are of torch {version_of(target)}, not {release}")


def version_of(folder: Path) -> str | None:
    """The torch release whose headers lie in the folder; None if there are none."""
    header = folder / VERSION_HEADER
    if not header.exists():
        return None
    defined = dict(re.findall(r"^#define TORCH_VERSION_(\w+) (\d+)$", header.read_text(), re.MULTILINE))
    return ".".join(defined.get(part, "?") for part in ("MAJOR", "MINOR", "PATCH"))


def fetch(release: str, scratch: Path) -> Path:
    """A folder in scratch that has only the release's include/."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--no-deps", "--no-cache-dir"]
    ended = subprocess.run([*pip, "--only-binary=:all:", "--dest", str(scratch), f"torch=={release}"])
    if ended.returncode:
        sys.exit(f"pip can't fetch torch {release}, whose headers a wheel for all releases needs (see above)")
    (wheel,) = scratch.glob("torch-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(scratch, [name for name in archive.namelist() if name.startswith("torch/include/")])
    return scratch / "torch"


if __name__ == "__main__":
    main()
