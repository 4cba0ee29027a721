"""The pages of docs/clients: each shows a program of examples/clients that runs with its command on 2 ranks."""

import importlib.metadata
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = {page.stem: page.read_text() for page in (ROOT / "docs" / "clients").glob("*.md") if page.stem != "README"}
LIMIT_SECONDS = 400
QUIET = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "RAY_USAGE_STATS_ENABLED": "0", "RUST_LOG": "warn"}


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGES[page], re.DOTALL | re.MULTILINE)


def run(command, folder, **variables):
    """Runs a page's command in `folder`, which takes what the program writes; returns its output."""
    words = shlex.split(command)
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        variables[name] = value
    launcher, *arguments = words
    modules = {"torchrun": ["-m", "torch.distributed.run"], "python": []}
    done = subprocess.run(
        [sys.executable, *modules[launcher], *arguments],
        cwd=folder,
        env={**os.environ, **QUIET, "HOME": str(folder), **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def run_page(page, folder, number=0):
    """The output of the page's command, and of it what the ranks print: losses and megabytes sent."""
    commands = [line for block in blocks(page, "sh") for line in block.splitlines()]
    (folder / "examples").symlink_to(ROOT / "examples")
    printed = run(commands[number], folder)
    lines = re.findall(r"loss ([\d.]+) over qccl, ([\d.]+) MB sent", printed)
    return printed, [(float(loss), float(sent)) for loss, sent in lines]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_its_program(page):
    (shown,) = blocks(page, "python")
    (path,) = {found for block in blocks(page, "sh") for found in re.findall(r"examples/clients/\w+\.py", block)}
    assert shown == (ROOT / path).read_text()
    assert len(shown.splitlines()) <= 40


def test_every_program_has_a_page_and_every_page_a_line_in_the_index():
    text = "".join(PAGES.values())
    programs = [path.name for path in (ROOT / "examples" / "clients").glob("*.py")]
    assert [name for name in programs if f"examples/clients/{name}" not in text] == []
    index = (ROOT / "docs" / "clients" / "README.md").read_text()
    assert [page for page in PAGES if f"({page}.md)" not in index] == []


@pytest.mark.parametrize("package", ["accelerate", "transformers", "lightning", "torchtitan", "torchft", "ray"])
def test_the_index_names_the_release_that_runs_here(package):
    (row,) = re.findall(rf"\({package}\.md\) \| ([\d.]+) \|", (ROOT / "docs" / "clients" / "README.md").read_text())
    assert row == importlib.metadata.version(package)


@pytest.mark.parametrize(
    "page, number",
    [("accelerate", 0), ("transformers", 0), ("lightning", 0), ("lightning", 1), ("torchtitan", 0), ("ray", 0)],
)
def test_a_client_trains_over_qccl(page, number, tmp_path):
    _, steps = run_page(page, tmp_path, number)
    assert len(steps) >= 3
    losses, megabytes = zip(*steps, strict=True)
    assert losses[-1] < 0.6 * losses[0]
    assert megabytes[-1] >= megabytes[0] > 0


def test_a_torchft_replica_dies_and_the_other_goes_on(tmp_path):
    printed, _ = run_page("torchft", tmp_path)
    steps = re.findall(r"step (\d+): loss ([\d.]+), (\d) replicas", printed)
    assert [(step, replicas) for step, _, replicas in steps] == [
        *(pair for step in (0, 10, 20, 30) for pair in [(str(step), "2")] * 2),
        ("40", "1"),
        ("50", "1"),
    ]
    assert float(steps[-1][1]) < 0.2 * float(steps[0][1])


def test_a_checkpoint_comes_back(tmp_path):
    printed, _ = run_page("checkpoint", tmp_path)
    values = re.findall(r"qccl: saved (\S+), loaded (\S+) in place of (\S+\d)", printed)
    assert len(values) == 2
    for saved, loaded, before in values:
        assert saved == loaded != before


@pytest.mark.parametrize("page", ["accelerate", "transformers"])
def test_an_unchanged_program_gets_qccl_by_the_variable(page, tmp_path):
    program, made = re.subn(r"^dist\.init_process_group.*\n", "", blocks(page, "python")[0], flags=re.MULTILINE)
    assert made == 1
    (tmp_path / "train.py").write_text(program)
    (command,) = re.findall(r"`(QCCL_REPLACE=gloo [^`]*)`", PAGES[page])
    printed = run(command.replace("...", "--standalone --nproc-per-node 2"), tmp_path)
    assert re.search(r"over qccl, [\d.]+ MB sent", printed)


def test_accelerates_launcher_starts_one_process_without_a_rank_on_cpus(tmp_path):
    (tmp_path / "program.py").write_text("import os\nprint('rank', os.environ.get('RANK'))\n")
    printed = run("python -m accelerate.commands.launch --cpu --num_processes 2 program.py", tmp_path)
    assert re.findall("rank .*", printed) == ["rank None"]


def test_accelerate_refuses_the_name_itself(tmp_path):
    (tmp_path / "program.py").write_text("import accelerate\naccelerate.PartialState(cpu=True, backend='qccl')\n")
    with pytest.raises(AssertionError, match="Your assigned backend qccl is not available"):
        run("torchrun --standalone --nproc-per-node 2 program.py", tmp_path)
