"""The Python reference: a page for each public module, which mkdocstrings fills from the docstrings.

griffe reads the sources without importing them. qccl.Options is written in C++, and so is its docstring: as an
extension of griffe, this module puts it where griffe looks.
"""

import ast
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import griffe

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = ROOT / "bindings" / "torch" / "module" / "options.cc"
FOLDER = "reference/python"
# Modules with their public names; qccl's own are those of its __all__ that are no modules.
MODULES = {
    "qccl.ddp": ("State", "compress_hook"),
    "qccl.fsdp": ("State",),
    "qccl.outer": ("OuterLoop", "plan", "Plan", "PlanRow"),
    "qccl.mesh": ("Mesh", "MeshShape", "ordered"),
    "qccl.pipeline": (
        "Pipeline",
        "recv_from_prev_pipeline_rank_",
        "send_to_next_pipeline_rank",
        "broadcast_from_last_pipeline_stage",
        "broadcast_from_last_to_first_pipeline_stage",
        "copy_from_last_to_first_pipeline_stage",
        "broadcast_tensor",
        "broadcast_list",
        "broadcast_int_list",
        "broadcast_float_list",
    ),
    "qccl.deepspeed": ("install", "set_compression", "CompressedBackend"),
    "qccl.torchft": ("ProcessGroupQCCL", "OuterLoop"),
}
# Types that functions return.
ALSO = {"qccl": ("_api.TimeEstimate", "_log.CommsLogger"), "qccl.ddp": ("_gauge.Report", "_gauge.Gauge")}


class Docstrings(griffe.Extension):
    def on_class_instance(self, *, cls: griffe.Class, **_: object) -> None:
        if cls.path == "qccl._C.Options":
            (text,) = re.findall(r'kDescription =\s*R"\((.*?)\)"', OPTIONS.read_text(), re.DOTALL)
            cls.docstring = griffe.Docstring(markdown(text), parent=cls, parser="google")

    def on_instance(self, *, obj: griffe.Object, **_: object) -> None:
        if obj.docstring:
            obj.docstring.value = markdown(obj.docstring.value)


CODE = re.compile(r"(?<=\n\n)((?: {4}.*\n|\n)*(?: {4}.*))(?=\n\n|\n*$)")
NAME = re.compile(r"(?<![\w.`\"'/])((?:\w+\.)*\w+)\(\)|\b[A-Z]+_[A-Z_]*[A-Z]\b(?![`\"'])")


def markdown(text: str) -> str:
    """Makes indented code fences of Python, and code of the functions and variables that the text names."""
    links = {name.rpartition(".")[2]: name for names in public().values() for name in names}

    def marked(match: re.Match[str]) -> str:
        name = (match[1] or "").removeprefix("qccl.")
        link = links.get(name) or (f"qccl.{name}" if f"qccl.{name}" in links.values() else "")
        return f"[`{match.group()}`][{link}]" if link else f"`{match.group()}`"

    def prose(part: str) -> str:
        return "`".join(NAME.sub(marked, each) if at % 2 == 0 else each for at, each in enumerate(part.split("`")))

    head, args, rest = text.partition("\nArgs:\n")
    pieces = CODE.split(head)
    pieces[::2] = [prose(piece) for piece in pieces[::2]]
    pieces[1::2] = [f"```python\n{textwrap.dedent(piece).strip()}\n```" for piece in pieces[1::2]]
    return "".join(pieces) + args + prose(rest)


def own_names() -> tuple[str, ...]:
    tree = ast.parse((ROOT / "python" / "qccl" / "__init__.py").read_text())
    (names,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
    )
    modules = {module.removeprefix("qccl.") for module in MODULES}
    return tuple(name for name in names if name not in modules and name != "__version__")


def public() -> dict[str, list[str]]:
    """The full names of what each page shows."""
    names = {"qccl": own_names()} | MODULES
    return {
        module: [f"{module}.{name}" for name in own] + [f"qccl.{name}" for name in ALSO.get(module, ())]
        for module, own in names.items()
    }


def pages() -> dict[str, str]:
    made = {}
    for module, names in public().items():
        doc = ast.get_docstring(ast.parse(source_of(module).read_text())) or ""
        parts = [f"# {module}", markdown(doc), *(f"::: {name}" for name in names)]
        made[f"{FOLDER}/{module}.md"] = "\n\n".join(parts) + "\n"
    return made


def source_of(module: str) -> Path:
    path = ROOT / "python" / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def undocumented() -> Iterator[str]:
    """Public functions, classes, methods and properties without a docstring: "FILE:LINE: NAME"."""
    package = griffe.load("qccl", search_paths=[ROOT / "python"], extensions=griffe.load_extensions(Docstrings))
    for names in public().values():
        for name in names:
            item = package[name.removeprefix("qccl.")]
            item = item.final_target if item.is_alias else item
            inside = item.members.values() if item.is_class else ()
            for each in (item, *(one for one in inside if not one.name.startswith("_"))):
                each = each.final_target if each.is_alias else each
                is_told = each.kind.value == "attribute" and "property" not in each.labels
                if not each.docstring and not is_told and not each.is_alias:
                    yield f"{Path(each.filepath).relative_to(ROOT)}:{each.lineno}: {each.path}"


if __name__ == "__main__":
    print("\n".join(undocumented()))
