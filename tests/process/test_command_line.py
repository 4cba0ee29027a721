"""What all commands of the program have in common: help with examples, the version, completion in a shell."""

import re
import shutil
import subprocess

import pytest
from program import PROGRAM, environment, run

COMMANDS = """run|ps|top|dash|perf|doctor|plan|plan check|plan outer|plan show|plan simulate|codec|codec list|codec show
codec bench|key|log|log summary|log plot|log csv|trace|trace merge|version|completion""".replace("\n", "|").split("|")


def completions(*words):
    done = run("--complete", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_list_of_commands_is_whole():
    names = completions()
    assert sorted(names) == sorted(command for command in COMMANDS if " " not in command)
    for name in names:
        subcommands = [word for word in completions(name) if not word.startswith("-")]
        assert sorted(subcommands) == sorted(c.split()[1] for c in COMMANDS if c.startswith(name + " "))


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example_and_exit_codes(command):
    done = run(*command.split(), "--help")
    assert done.returncode == 0, done.stderr
    assert re.search(rf"^Examples?:\n(.*\n)*  .*qccl {command.split()[0]}|^  qccl --version", done.stdout, re.MULTILINE)
    assert re.search(r"^Exit code: ", done.stdout, re.MULTILINE)


def test_the_help_of_all_commands_says_exit_codes():
    assert "\nExit code: " in run("--help").stdout


def test_the_version_names_compiler_processor_and_torch():
    for words in (["--version"], ["version"]):
        version, compiler, processor, torch = run(*words).stdout.splitlines()
        assert re.fullmatch(r"qccl \d+\.\d+\.\d+", version)
        assert re.fullmatch(r"compiler +(GCC|Clang) \d+\..*", compiler)
        assert re.fullmatch(r"CPU +\S.*; SIMD \w+ of .*", processor)
        assert re.match(r"torch +(\d+\.\d+|none)", torch)


def test_flags_and_their_values_are_completed():
    assert {"--tag-output", "-n", "--transport"} <= set(completions("run"))
    assert completions("run", "-n", "4", "--transport") == ["auto", "shm", "tcp"]
    assert "--world" in completions("plan", "show", "all_reduce")


def test_completion_starts_no_program(tmp_path):
    flags = completions("run", "-n", "1", "touch", str(tmp_path / "started"))
    assert "--help" in flags and list(tmp_path.iterdir()) == []


def complete_in(shell, script):
    """What `shell` prints that has sourced its completion, with `qccl` in its path."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    variables = environment(PATH=f"{PROGRAM.parent}:/usr/bin:/bin")
    text = f"compdef() {{ :; }}\nsource <(qccl completion {shell})\n{script}"
    done = subprocess.run(
        [shell, "-c", text], env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


BASH = 'COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _qccl; echo "${{COMPREPLY[@]}}"'


@pytest.mark.parametrize(
    "words, expected",
    [
        ("qccl co", ["codec", "completion"]),
        ("qccl plan s", ["show", "simulate"]),
        ("qccl run --tag", ["--tag-output"]),
        ("qccl run --transport t", ["tcp"]),
        ("qccl run -n 2 -- --t", []),
    ],
)
def test_bash_completes(words, expected):
    assert sorted(complete_in("bash", BASH.format(words=words))) == expected


def test_zsh_reads_its_script():
    words = "words=(qccl plan s); CURRENT=3; compadd() { print -l $found }; _files() {}; "
    assert {"show", "simulate"} <= set(complete_in("zsh", words + "_qccl"))
