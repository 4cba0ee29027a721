"""A C++ file as the checks see it: comments and literals blanked, and its scopes and statements.

It is not a parser: it follows braces, parentheses and semicolons, which is enough for code that
clang-format has formatted. Blanking keeps every line in its place.
"""

import re
from dataclasses import dataclass
from pathlib import Path

SUFFIXES = {".cc", ".h", ".cpp", ".hpp"}
SOURCE_FOLDERS = ("include", "src", "bindings", "tools", "testing", "tests", "bench", "examples")

_LITERAL = re.compile(
    r"""//(?:\\\n|[^\n])* | /\*.*?\*/
      | R"(?P<fence>[^()\\\s]{0,16})\(.*?\)(?P=fence)"
      | "(?:\\.|[^"\\\n])*" | (?<!\w)'(?:\\.|[^'\\\n])+'""",
    re.S | re.X,
)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.M)


@dataclass(frozen=True)
class Statement:
    """The text before a `;` or a `{`. Scope is "namespace", "class" or "function"."""

    scope: str
    line: int
    text: str


@dataclass(frozen=True)
class Function:
    line: int
    head: str
    body_lines: int


@dataclass(frozen=True)
class Class:
    """A class or struct: how many functions, data members and nested types it declares."""

    line: int
    head: str
    declarations: int


def source_files(root: Path) -> list[Path]:
    """C++ files below the source folders, as paths relative to root, sorted."""
    files = (path for folder in SOURCE_FOLDERS for path in (root / folder).rglob("*"))
    return sorted(path.relative_to(root) for path in files if path.suffix in SUFFIXES and path.is_file())


def blank_literals(text: str) -> str:
    """The text with comments and the contents of literals replaced by spaces. #include paths stay."""

    def blank(match: re.Match) -> str:
        found = match.group()
        if found[0] == "/":
            return re.sub(r"[^\n]", " ", found)
        line_start = text.rfind("\n", 0, match.start()) + 1
        if re.match(r"\s*#\s*include\b", text[line_start : match.start()]):
            return found
        return '"' + re.sub(r"[^\n]", " ", found[1:-1]) + '"'

    return _LITERAL.sub(blank, text)


def scan(code: str) -> tuple[list[Statement], list[Function]]:
    """Statements and functions of a file whose literals are blank."""
    walker = _Walker()
    line = 1
    for character in _DIRECTIVE.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), code):
        walker.take(character, line)
        line += character == "\n"
    return walker.statements, walker.functions


def classes(code: str) -> list[Class]:
    """Classes of a file whose literals are blank."""
    walker = _Walker()
    line = 1
    for character in _DIRECTIVE.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), code):
        walker.take(character, line)
        line += character == "\n"
    return walker.classes


@dataclass
class _Scope:
    kind: str  # namespace, class, function or value (a braced initializer)
    head: str = ""  # the text that opened it
    head_line: int = 0
    open_line: int = 0
    text: str = ""  # of the statement that is being read
    line: int = 0
    parentheses: int = 0
    declarations: int = 0  # of a class


class _Walker:
    def __init__(self):
        self.statements: list[Statement] = []
        self.functions: list[Function] = []
        self.classes: list[Class] = []
        self._stack = [_Scope("namespace")]

    def take(self, character: str, line: int) -> None:
        scope = self._stack[-1]
        if character == "{":
            self._open(scope, line)
        elif character == "}":
            self._close(line)
        elif character == ";" and scope.parentheses <= 0:
            self._end_statement(scope)
            scope.text, scope.parentheses = "", 0
        else:
            scope.parentheses += (character == "(") - (character == ")")
            if not scope.text and not character.isspace():
                scope.line = line
            if scope.text or not character.isspace():
                scope.text += character

    def _end_statement(self, scope: _Scope) -> None:
        if scope.text and scope.kind != "value":
            text = _plain(scope.text)
            self.statements.append(Statement(scope.kind, scope.line, text))
            scope.declarations += not re.match(r"(?:using|friend|static_assert|(?:class|struct|enum)\b[^(]*$)", text)

    def _open(self, scope: _Scope, line: int) -> None:
        kind = _kind_of_block(scope)
        if scope.kind == "function" and scope.parentheses <= 0:
            self._end_statement(scope)
        self._stack.append(_Scope(kind, scope.text, scope.line or line, line))

    def _close(self, line: int) -> None:
        if len(self._stack) == 1:
            return
        closed = self._stack.pop()
        scope = self._stack[-1]
        if closed.kind == "function" and scope.kind in ("namespace", "class"):
            self.functions.append(Function(closed.head_line, _plain(closed.head), line - closed.open_line + 1))
            scope.declarations += 1
        if closed.kind == "class":
            head = _plain(closed.head)
            scope.declarations += scope.kind == "class"
            if re.match(r"(?:template\s*<.*>\s*)?(?:class|struct)\b", head):
                self.classes.append(Class(closed.head_line, head, closed.declarations))
        if closed.kind == "value" or scope.parentheses > 0:
            scope.text += "{}"
        else:
            scope.text, scope.parentheses = "", 0


def _plain(text: str) -> str:
    """One line, without attributes and access labels."""
    text = re.sub(r"\[\[.*?\]\]|\balignas\s*\([^()]*\)|\b__attribute__\s*\(\(.*?\)\)", " ", text, flags=re.S)
    text = re.sub(r"^(?:\s*(?:public|private|protected)\s*:(?!:))+", "", text)
    return " ".join(text.split())


def parameters(head: str) -> tuple[str, int, bool]:
    """A function's name, how many parameters it has, and whether it is a constructor. References that a constructor
    takes, which its object uses, do not count."""
    flat = without_angles(re.sub(r"\boperator\s*(?:\(\)|[^\w\s(]+)", "operator", head).replace("->", " "))
    start = flat.find("(")
    named = re.search(r"[\w~:]+(?=\s*$)", flat[: max(start, 0)])
    if not named:
        return "", 0, False
    depth, commas, end = 0, 0, start
    for end in range(start, len(flat)):
        depth += (flat[end] in "([{") - (flat[end] in ")]}")
        commas += flat[end] == "," and depth == 1
        if depth == 0:
            break
    names = named[0].split("::")
    is_constructor = (
        names[-1] == names[-2]
        if len(names) > 1
        else not re.sub(r"\b(?:explicit|constexpr|inline|template)\b", "", flat[: named.start()]).strip()
    )
    listed = flat[start + 1 : end]
    used = len(re.findall(r"\w\s*&\s*\w", listed)) if is_constructor else 0
    return named[0], commas + bool(listed.strip()) - used, is_constructor


def without_angles(text: str) -> str:
    """The text without template argument lists."""
    while (shorter := re.sub(r"<[^<>;{}]*>", " ", text)) != text:
        text = shorter
    return text


def _kind_of_block(scope: _Scope) -> str:
    head = without_angles(_plain(scope.text))
    if scope.kind in ("function", "value"):
        return "value" if scope.kind == "value" and not re.search(r"[)\]]$", head) else "function"
    if scope.parentheses > 0:
        return "function" if re.search(r"[)\]]$", head) else "value"
    if re.match(r"(?:inline\s+)?namespace\b|extern\s*\"", head):
        return "namespace"
    if re.search(r"\b(?:class|struct|union|enum)\b", head) and not re.search(r"[()=]", head):
        return "class"
    if re.search(r"\)[\w\s]*:(?!:)(?:.*,)?\s*\w+$", head):
        return "value"  # a member's braces in a constructor's initializer list
    is_initializer = re.search(r"(?<![=!<>])=(?!=)", head) and "operator" not in head and not re.search(r"[)\]]$", head)
    return "function" if ")" in head and not is_initializer else "value"
