"""The programs of examples/torch run as their first lines say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLES = ROOT / "examples" / "torch"


def output_of(example, ranks, *flags):
    command = [str(ROOT / "build" / "qccl"), "run", "-n", str(ranks), "--", sys.executable, str(EXAMPLES / example)]
    done = subprocess.run([*command, *flags], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "example, ranks", [("ddp.py", 2), ("fsdp2.py", 2), ("local_sgd.py", 3)], ids=lambda value: str(value)
)
def test_an_example_trains(example, ranks):
    losses = [float(loss) for loss in re.findall(r"loss (\d+\.\d+)", output_of(example, ranks))]
    assert len(losses) >= 4 and losses[-1] < losses[0]


def test_uneven_inputs_end_with_equal_models():
    output = output_of("uneven_inputs.py", 3)
    assert sorted(re.findall(r"rank \d had (\d+) batches", output)) == ["10", "15", "20"]
    assert len(set(re.findall(r"add up to (-?\d+\.\d+)", output))) == 1


def test_a_logged_loop_prints_its_tables_and_names_the_slow_rank():
    output = output_of("logged.py", 3, "--slow", "1")
    assert "Total Latency(ms)" in output and "Breakdown with straggler effect" in output
    assert re.search(r"^rank (\d) came last", output, re.M)[1] == "1"


def test_every_example_is_tested():
    tested = Path(__file__).read_text()
    assert [path.name for path in EXAMPLES.glob("*.py") if f'"{path.name}"' not in tested] == []
