"""The programs of examples/torch run with the commands in their docstrings."""

import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples" / "torch"
LIMIT_SECONDS = 250


def output_of(example, ranks, *flags):
    command = [str(ROOT / "build" / "qccl"), "run", "-n", str(ranks), "--", sys.executable, str(EXAMPLES / example)]
    done = subprocess.run([*command, *flags], capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "example, ranks",
    [("ddp.py", 2), ("fsdp2.py", 2), ("local_sgd.py", 3), ("outer_gpt2.py", 2)],
    ids=lambda value: str(value),
)
def test_an_example_trains(example, ranks):
    losses = [float(loss) for loss in re.findall(r"loss (\d+\.\d+)", output_of(example, ranks))]
    assert len(losses) >= 4 and losses[-1] < losses[0]


def test_a_job_goes_on_with_three_ranks_and_with_four_again(tmp_path):
    flags = ["--steps", "30", "--plot", str(tmp_path / "plot.png")]
    command = [sys.executable, str(EXAMPLES / "elastic.py"), *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = re.findall(r"step (\d+): loss (\d+\.\d+), (\d) ranks", done.stdout)
    worlds = [int(ranks) for _, _, ranks in lines]
    assert [ranks for ranks, _ in itertools.groupby(worlds)] == [4, 3, 4]
    steps = [int(step) for step, _, _ in lines]
    assert steps == sorted(set(steps)) and (steps[0], steps[-1]) == (1, 30), "no step was lost or made twice"
    first_of = {ranks: float(loss) for _, loss, ranks in reversed(lines)}
    assert first_of["4"] > first_of["3"] > float(lines[-1][1])
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_hosts_of_several_ranks_train_and_go_on_from_their_checkpoint(tmp_path):
    def losses_of(steps, *flags):
        output = output_of("gpu_hosts.py", 4, "--ranks-a-host", "2", "--steps", str(steps), *flags)
        return dict(re.findall(r"step (\d+): loss (\d+\.\d+)", output)), output

    whole, output = losses_of(22)
    assert list(whole) == ["0", "10", "20", "21"] and float(whole["21"]) < float(whole["0"])
    sent, shard = map(float, re.search(r"([\d.]+) MB sent a step.* shard of ([\d.]+) MB", output).groups())
    assert sent < 0.25 * shard
    flags = ["--checkpoint", str(tmp_path)]
    first, second = losses_of(11, *flags)[0], losses_of(11, *flags)[0]
    assert {**first, **second} == whole


def test_a_sum_says_how_many_ranks_have_met():
    assert output_of("all_reduce.py", 3) == "3 ranks: passed\n"


def test_uneven_inputs_end_with_equal_models():
    output = output_of("uneven_inputs.py", 3)
    assert sorted(re.findall(r"rank \d had (\d+) batches", output)) == ["10", "15", "20"]
    assert len(set(re.findall(r"add up to (-?\d+\.\d+)", output))) == 1


def test_a_logged_loop_prints_its_tables_and_names_the_slow_rank():
    output = output_of("logged.py", 3, "--slow", "1")
    assert "Total Latency(ms)" in output and "Breakdown with straggler effect" in output
    times_last = {rank: int(times) for rank, times in re.findall(r"^rank (\d) came last in (\d+)", output, re.M)}
    assert max(times_last, key=times_last.get) == "1"


@pytest.mark.parametrize("example", ["gpt2_wikitext2.py", "bert_mrpc.py"])
def test_epochs_are_timed_and_drawn(example, tmp_path):
    flags = ["--quick", "--ranks", "2", "--compressions", "none", "minmax:bits=4", "--link-rate", "none"]
    command = [sys.executable, str(EXAMPLES / example), *flags, "--plot", str(tmp_path / "plot.png")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    megabytes = {}
    for compression in ("none", "minmax:bits=4"):
        line = rf"2 ranks, {compression}, epoch \d: [\d.]+ s, ([\d.]+) MB sent, training loss ([\d.]+)"
        (_, first), (sent, last) = re.findall(line, done.stdout)
        assert float(last) < float(first)
        megabytes[compression] = float(sent)
    assert megabytes["minmax:bits=4"] < 0.4 * megabytes["none"]
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_a_table_of_paraphrases_is_read(tmp_path):
    table = tmp_path / "table.txt"
    rows = ["1\t1\t2\tthe cat sat\ta cat sat down", "0\t3\t4\tit rains today\tstocks fell again"] * 100
    table.write_text("\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n" + "\n".join(rows) + "\n")
    output = output_of("bert_mrpc.py", 1, "--quick", "--epochs", "1", "--compressions", "none", "--data", str(table))
    assert '"accuracy": 1.0' in output


def test_words_outside_the_vocabulary_are_one_with_wikitexts(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    from epochs import Vocabulary

    vocabulary = Vocabulary(["<unk>", "<unk>", "<unk>", "a", "a", "b"], 2)
    assert vocabulary.numbers(["a", "b", "<unk>", "c"]) == [1, 0, 0, 0]


def test_every_example_is_tested():
    tested = Path(__file__).read_text()
    programs = [path.name for path in EXAMPLES.glob("*.py") if "__main__" in path.read_text()]
    assert programs and [name for name in programs if f'"{name}"' not in tested] == []
