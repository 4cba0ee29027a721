"""Python and C++ in the pages compiles, or names what exists. Programs are run where their subjects are tested."""

import ast
import importlib
import importlib.util
import re
import textwrap

import pytest
from pages import ROOT, blocks, pages

PAGES = {page: text for page, text in pages().items() if not page.startswith("docs/decisions/")}
PYTHON = [(page, code) for page, text in PAGES.items() for code in blocks(text, "python")]
CPP = [(page, code) for page, text in PAGES.items() for code in blocks(text, "cpp")]
# Libraries of the integration tests, which run the pages that import them.
CLIENTS = (
    *("accelerate", "transformers", "lightning", "ray", "torchft", "torchtitan"),
    *("datasets", "deepspeed", "megatron"),
)


def parsed(code: str) -> ast.Module:
    return ast.parse(textwrap.dedent(code))


def is_client(name: str) -> bool:
    return name.split(".")[0] in CLIENTS


@pytest.mark.parametrize(("page", "code"), PYTHON)
def test_python_compiles_and_its_imports_resolve(page, code):
    for node in ast.walk(parsed(code)):
        if isinstance(node, ast.Import):
            wrong = [each.name for each in node.names if not is_client(each.name) and not is_there(each.name)]
            assert wrong == []
        elif isinstance(node, ast.ImportFrom) and node.module and not is_client(node.module):
            module = importlib.import_module(node.module)
            wrong = [each.name for each in node.names if not is_in(module, each.name)]
            assert wrong == [], node.module


def is_there(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def is_in(module: object, name: str) -> bool:
    return hasattr(module, name) or is_there(f"{module.__name__}.{name}")  # type: ignore[attr-defined]


def names_of_qccl(code: str) -> set[str]:
    """ "qccl.ddp.State" and the like, as the code uses them."""
    return {
        ast.unparse(node)
        for node in ast.walk(parsed(code))
        if isinstance(node, ast.Attribute) and re.fullmatch(r"qccl(\.\w+)+", ast.unparse(node))
    }


@pytest.mark.parametrize(("page", "code"), [(page, code) for page, code in PYTHON if names_of_qccl(code)])
def test_names_of_qccl_exist(page, code):
    import qccl

    for name in names_of_qccl(code):
        if name.split(".")[1] == "torchft":  # imports torchft
            continue
        found: object = qccl
        for at, part in enumerate(name.split(".")[1:]):
            if at == 0 and not hasattr(found, part):
                found = importlib.import_module(f"qccl.{part}")
            else:
                assert hasattr(found, part), name
                found = getattr(found, part)


@pytest.mark.parametrize(("page", "code"), [(page, code) for page, code in CPP if "qccl::" in code])
def test_public_names_of_cpp_exist(page, code):
    headers = "\n".join(path.read_text() for path in (ROOT / "include" / "qccl").glob("*.h"))
    inside = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.h"))
    named = set(re.findall(r"\bqccl::(?:train::|testing::|internal::)?(\w+)", code)) - {"qccl", "extras", "testing"}
    known = headers if page not in ("docs/add-a-codec.md", "docs/add-an-algorithm.md") else headers + inside
    assert {name for name in named if not re.search(rf"\b{name}\b", known)} == set()


def test_names_in_comments_of_headers_exist():
    """The examples with which headers begin are on the site as well."""
    lines = [line for path in (ROOT / "include" / "qccl").glob("*.h") for line in path.read_text().splitlines()]
    code = "\n".join(line for line in lines if not line.lstrip().startswith("//"))
    comments = "\n".join(line for line in lines if line.lstrip().startswith("//"))
    named = set(re.findall(r"\bqccl::(?:train::|testing::)?(\w+)", comments)) - {"testing", "extras", "train"}
    assert len(named) > 20
    assert {name for name in named if not re.search(rf"\b{name}\b", code)} == set()
