"""Makes the packages of python/ importable in this interpreter's environment, with the entry points of
pyproject.toml, like `pip install --editable` but without a build. Changes nothing when all is in place. A folder as
its argument gets the same instead: in PYTHONPATH it has the entry points.
"""

import sys
import sysconfig
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    site = Path(sys.argv[1] if len(sys.argv) > 1 else sysconfig.get_paths()["purelib"])
    info = site / "qccl-0.dist-info"
    write(site / "qccl.pth", f"{ROOT / 'python'}\n")
    write(info / "METADATA", "Metadata-Version: 2.1\nName: qccl\nVersion: 0\nSummary: a checkout, see qccl.pth\n")
    write(info / "INSTALLER", "scripts/link_python.py\n")
    write(info / "RECORD", "qccl.pth,,\n" + "".join(f"qccl-0.dist-info/{name},,\n" for name in RECORDED))
    write(info / "entry_points.txt", entry_points(project["entry-points"]))


RECORDED = ("METADATA", "INSTALLER", "RECORD", "entry_points.txt")


def entry_points(groups: dict[str, dict[str, str]]) -> str:
    lines: list[str] = []
    for group, entries in groups.items():
        lines.append(f"[{group}]")
        lines += [f"{name} = {target}" for name, target in entries.items()]
    return "\n".join(lines) + "\n"


def write(path: Path, text: str) -> None:
    if path.exists() and path.read_text() == text:
        return
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)  # another environment may share it by a hard link
    path.write_text(text)


if __name__ == "__main__":
    main()
