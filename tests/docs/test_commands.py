"""Every command that a page shows exists, with its flags: of qccl by the program's own help, of make by the Makefile,
of scripts by their files. The pages' programs are run where their subjects are tested.
"""

import functools
import re
import shlex
import subprocess

import pytest
from pages import MADE, ROOT, command_lines, pages
from program import PROGRAM

PAGES = {page: text for page, text in pages().items() if not page.startswith("docs/decisions/")}
# At the start of a line, behind variables, or behind a launcher.
COMMAND = re.compile(r"(?:^(?:[A-Z]\w*=\S* )*|<\(|--no-python |(?=build/))(?:build/)?qccl (?=[a-z-])(.*)$")
GROUPS = ("plan", "codec", "log", "trace")
VARIABLE = re.compile(r"\bQCCL_[A-Z_]+[A-Z]\b")
MAKE = re.compile(r"^(?:[A-Z_]+=\S+ )*make((?: [A-Z_]+=\S+)*) ([a-z-]+)\b")
PLACE = re.compile(r"^(?:\S*=\S+ )*((?:bench|scripts|examples|demo|tests)/[\w/.-]+)")
# Not flags of qccl: what stands for one.
PLACEHOLDER = re.compile(r"^(-+|--[A-Z]+)$")
# Variables of CMake and of make, which are no options of the library.
OTHER_VARIABLES = {"QCCL_OK", "QCCL_CHECK"}


@functools.cache
def help_of(*command: str) -> str:
    done = subprocess.run([str(PROGRAM), *command, "--help"], capture_output=True, text=True)
    assert done.returncode == 0, f"qccl {' '.join(command)} --help: {done.stderr}"
    return done.stdout


def qccl_commands(text: str) -> list[list[str]]:
    """The arguments of each call of qccl, without what a program behind -- gets."""
    found = []
    for line in command_lines(text):
        for part in re.split(r"\s(?:--|\||&&|>|;|on)\s|\s--$", line):
            match = COMMAND.search(part)
            if match:
                found.append(words(match[1]))
    return [each for each in found if each]


def words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quote that the page leaves open, in prose
        return text.split()


def wrong_flags(arguments: list[str]) -> list[str]:
    known = re.findall(r"^  (\w\S*) ", help_of().split("Commands:")[1], re.MULTILINE)
    command = arguments[0]
    if command.startswith("-"):
        return [] if command in ("--version", "--help") else [f"qccl {command}"]
    if command not in known:
        return [f"qccl {command}"]
    inner = [command]
    if command in GROUPS and len(arguments) > 1 and re.fullmatch("[a-z]+", arguments[1]):
        inner.append(arguments[1])
        if not re.search(rf"\b{arguments[1]}\b", help_of(command)):
            return [f"qccl {' '.join(inner)}"]
        if command == "trace":
            return []
    text = help_of(*inner)
    flags = [each.split("=")[0] for each in arguments if re.match(r"^--?[a-zA-Z]", each)]
    return [
        f"qccl {' '.join(inner)} {flag}"
        for flag in flags
        if not PLACEHOLDER.match(flag) and not re.search(rf"(^|[\s,]){re.escape(flag)}\b(?!-)", text)
    ]


@pytest.mark.parametrize("page", [page for page, text in PAGES.items() if qccl_commands(text)])
def test_commands_of_qccl_exist_with_their_flags(page):
    assert [wrong for arguments in qccl_commands(PAGES[page]) for wrong in wrong_flags(arguments)] == []


def test_commands_are_found():
    """The pages have far more commands than this; fewer means that they are not recognised any more."""
    assert sum(len(qccl_commands(text)) for page, text in PAGES.items() if not page.startswith(MADE)) > 60


@pytest.mark.parametrize(
    "line",
    ["qccl pref all_reduce", "build/qccl perf all_reduce --compresion none", "X=1 qccl plan sho", "qccl ps --waits 3"],
)
def test_a_wrong_command_is_noticed(line):
    (arguments,) = qccl_commands(f"```sh\n{line}\n```\n")
    assert wrong_flags(arguments) != []


@pytest.mark.parametrize("page", PAGES)
def test_targets_of_make_exist(page):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {target for line in command_lines(PAGES[page]) for _, target in MAKE.findall(line)}
    assert named - targets == set()


@pytest.mark.parametrize("page", PAGES)
def test_programs_of_the_repository_exist(page):
    found = {match[1].rstrip(".,") for line in command_lines(PAGES[page]) if (match := PLACE.match(line))}
    assert {path for path in found if not (ROOT / path).exists()} == set()


def options_page() -> set[str]:
    return set(re.findall(r"^\| `(QCCL_[A-Z_]+)`", PAGES["docs/options.md"], re.MULTILINE))


def variables_read() -> set[str]:
    """The variables that the library, its bindings and its Python package read."""
    read: set[str] = set()
    for folder in ("src", "bindings", "python", "tools"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".cc", ".h", ".py") and not path.name.endswith("_test.cc"):
                read |= set(re.findall(r'"(QCCL_[A-Z_]+[A-Z])"', path.read_text()))
    return read


def test_the_page_of_options_has_every_variable_and_no_other():
    assert options_page() == variables_read() - OTHER_VARIABLES


# A field of the library's options with a default, and the variable that its comment names.
FIELD = re.compile(
    r"= (?:std::chrono::(?:micro)?seconds\((\d+)\)|([\d* ]+)|(true|false)|\"(\w+)\");\s+// (QCCL_[A-Z_]+)", re.MULTILINE
)


def defaults_in_code() -> dict[str, str]:
    header = (ROOT / "src" / "base" / "options.h").read_text()
    found = {}
    for seconds, number, flag, word, name in FIELD.findall(header):
        product = str(functools.reduce(lambda left, right: left * int(right), number.split("*"), 1)) if number else ""
        found[name] = seconds or product or {"true": "1", "false": "0"}.get(flag, "") or word
    return found


def test_the_page_of_options_has_the_defaults_of_the_code():
    rows = dict(re.findall(r"^\| `(QCCL_[A-Z_]+)` \| `?([^`|;]+?)`?[ ;]*\|", PAGES["docs/options.md"], re.MULTILINE))
    found = defaults_in_code()
    assert len(found) >= 7
    words = {"0": ("0", "off", "any"), "1": ("1", "on")}
    assert [name for name, value in found.items() if rows[name].strip("` ") not in words.get(value, (value,))] == []
