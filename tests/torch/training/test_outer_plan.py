"""qccl.outer.plan(): the rows of `qccl plan outer`."""

import subprocess
from pathlib import Path

import pytest
import torch
from ranks import run_ranks

import qccl

PROGRAM = Path(__file__).resolve().parents[3] / "build/qccl"
LINE = {"rate": "50mbit", "latency": "20ms", "step_seconds": 0.4}


@pytest.mark.skipif(not PROGRAM.exists(), reason="build/qccl is not built")
@pytest.mark.parametrize(
    ("arguments", "flags"),
    [
        ({**LINE, "ranks": 4}, "--world 4 --rate 50mbit --latency 20ms --step-seconds 0.4s"),
        (
            {"rate": "1gbit", "latency": "5 ms", "step_seconds": 2, "ranks": 9, "computing": 0.95},
            "--world 9 --rate 1gbit --latency 5ms --step-seconds 2s --computing 0.95",
        ),
        ({**LINE, "rate": "56.5kbit", "ranks": 2}, "--world 2 --rate 56.5kbit --latency 20ms --step-seconds 400ms"),
        ({**LINE, "ranks": 1}, "--world 1 --rate 50mbit --latency 20ms --step-seconds 400ms"),
    ],
)
def test_table_is_that_of_the_program(arguments, flags):
    plan = qccl.outer.plan(10 << 20, **arguments)
    command = [PROGRAM, "plan", "outer", "--parameters", "10M", *flags.split()]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert printed.endswith("\n\n" + str(plan)), printed
    assert len(plan) == len(str(plan).splitlines()) - 1


def test_rows_are_what_the_table_says():
    layers = torch.nn.Sequential(*(torch.nn.Linear(1 << 9, 1 << 8, bias=False) for _ in range(8)))
    plan = qccl.outer.plan(layers, ranks=4, **LINE)
    assert plan == qccl.outer.plan(1 << 20, ranks=4, **LINE)
    for row, line in zip(plan, str(plan).splitlines()[1:], strict=True):
        assert line.split()[:4] == [row.compression, str(row.fragments), str(row.every), str(row.delay)]
        assert f"{100 * row.computing:.1f}%" in line and line.endswith(f" {row.bytes_a_step:.0f}")
        waited = max(0, row.round_seconds - 0.4 * row.delay)
        work = 0.4 * row.every
        assert 0.9 <= row.computing == pytest.approx(work / (work + row.fragments * waited))


def test_a_model_has_no_rows_with_more_fragments_than_layers():
    layers = torch.nn.Sequential(*(torch.nn.Linear(1 << 9, 1 << 9) for _ in range(5)))
    layers[0].requires_grad_(False)
    plan = qccl.outer.plan(layers, ranks=4, **LINE)
    assert plan == [row for row in qccl.outer.plan(4 * ((1 << 18) + (1 << 9)), ranks=4, **LINE) if row.fragments <= 4]
    assert {row.fragments for row in plan} == {1, 4}


def test_ranks_are_those_of_the_default_group():
    with pytest.raises(ValueError, match="no default group"):
        qccl.outer.plan(1000, **LINE)

    def body(rank):
        assert qccl.outer.plan(1 << 22, **LINE) == qccl.outer.plan(1 << 22, **LINE, ranks=2)
        assert qccl.outer.plan(1 << 22, **LINE) != qccl.outer.plan(1 << 22, **LINE, ranks=3)

    run_ranks(body, 2)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"rate": "50"}, "rate='50' is not a number with kbit, mbit, gbit"),
        ({"rate": "50ms"}, "rate='50ms'"),
        ({"rate": "0mbit"}, "carries nothing"),
        ({"latency": "fast"}, "latency='fast' is not a number with us, ms, s"),
        ({"step_seconds": 0}, "more than 0 seconds"),
        ({"step_seconds": float("nan")}, "more than 0 seconds"),
        ({"computing": 1.5}, "share of the time"),
        ({"ranks": 0}, "0 ranks"),
        ({"model": 0}, "no parameters"),
    ],
)
def test_wrong_arguments_are_named(wrong, words):
    with pytest.raises(ValueError, match=words):
        qccl.outer.plan(**({"model": 1000, "ranks": 2} | LINE | wrong))
