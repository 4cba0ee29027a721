"""What qccl.ddp.State says that compression costs: in its report, its warnings and the log."""

import json
import logging
import re
import subprocess
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import qccl

ROOT = Path(__file__).resolve().parents[3]
NAMES = ("0.weight", "2.weight")


class Warnings(logging.Handler):
    def __init__(self):
        super().__init__(logging.WARNING)
        self.texts = []
        logging.getLogger("qccl").addHandler(self)

    def emit(self, record):
        self.texts.append(record.getMessage())


def make_model():
    torch.manual_seed(1)
    return DistributedDataParallel(nn.Sequential(nn.Linear(128, 256), nn.Tanh(), nn.Linear(256, 160)))


def train(state, model, rank, steps):
    """Yields, after each backward pass, this rank's own gradients by parameter."""
    if not state.is_hooked:
        model.register_comm_hook(state, qccl.ddp.compress_hook)
        state.is_hooked = True
    generator = torch.Generator().manual_seed(rank)
    for _ in range(steps):
        inputs = torch.randn(16, 128, generator=generator)
        model.zero_grad()
        with model.no_sync():
            (model(inputs) - 1).square().mean().backward()
        own = {name: parameter.grad.clone() for name, parameter in model.module.named_parameters()}
        model.zero_grad()
        (model(inputs) - 1).square().mean().backward()
        yield own


def make_state(model, policy, **options):
    state = qccl.ddp.State(model, policy, **options)
    state.is_hooked = False
    return state


def test_a_report_has_what_one_encoding_of_a_gradient_costs():
    def body(rank):
        model = make_model()
        state = make_state(model, "cast:type=bf16", error_feedback=False, gauge_every=2)
        own = list(train(state, model, rank, 4))
        report = state.report()
        assert [(gauge.name, gauge.step) for gauge in report.gauges if gauge.name == "0.weight"] == [
            ("0.weight", 0),
            ("0.weight", 2),
        ]
        assert set(report.latest) == set(NAMES), "biases are not compressed"
        for name, gauge in report.latest.items():
            gradient = own[2][name].double().flatten()
            decoded = own[2][name].bfloat16().double().flatten()
            error = decoded - gradient
            assert gauge.bits == 16 and gauge.count == gradient.numel() and gauge.residual == 0
            assert gauge.compression == "cast:type=bf16"
            assert gauge.nmse == pytest.approx((error.square().sum() / gradient.square().sum()).item(), rel=1e-6)
            assert gauge.cosine == pytest.approx(torch.cosine_similarity(decoded, gradient, 0).item(), abs=1e-9)
        assert report.bits == 16
        assert report.scalars("bits") == dict.fromkeys(NAMES, 16.0)
        assert "0.weight" in str(report) and "16.00 bits an element in the mean" in str(report)

    run_ranks(body, 2)


def test_a_report_has_the_residual_over_the_gradient():
    def body(rank):
        model = make_model()
        state = make_state(model, "int:bits=3", gauge_every=1)
        owed = {name: torch.zeros(1) for name in NAMES}
        for own in train(state, model, rank, 5):
            for name, gauge in state.report().latest.items():
                assert gauge.residual == pytest.approx((owed[name].norm() / own[name].norm()).item(), rel=1e-4)
                owed[name] = state.owed(name).clone()
        assert all(gauge.residual > 0 for gauge in state.report().latest.values())

    run_ranks(body, 3)


@pytest.mark.parametrize("every", [0, 3])
def test_gauges_are_measured_as_often_as_they_were_asked_for(every):
    def body(rank):
        model = make_model()
        state = make_state(model, "int:bits=8", gauge_every=every)
        list(train(state, model, rank, 7))
        assert {gauge.step for gauge in state.report().gauges} == ({0, 3, 6} if every else set())
        if not every:
            assert str(state.report()) == "nothing has been measured" and state.report().bits == 0

    run_ranks(body, 2)


def test_a_residual_that_piles_up_and_a_large_error_are_warned_of_once_on_rank_0():
    def body(rank):
        seen = Warnings()
        few, many = make_model(), make_model()
        list(train(make_state(many, "int:bits=8", gauge_every=1), many, rank, 40))
        assert seen.texts == []
        list(train(make_state(few, "topk:density=0.01", gauge_every=1, most_nmse=0.3), few, rank, 40))
        return seen.texts

    first, second = run_ranks(body, 2)
    assert second == []
    assert sorted("piles up" in text for text in first) == [False, True], first
    error, residual = sorted(first, key=lambda text: "piles up" in text)
    assert "of the energy of" in error and "more than 30 %" in error and "topk:density=0.01" in error
    assert "times the gradient" in residual and "print(state.report())" in residual


def test_the_log_has_the_gauges_and_plot_draws_them(tmp_path):
    def body(rank):
        qccl.configure_log(enabled=True)
        model = make_model()
        state = make_state(model, "int:bits=4", gauge_every=2)
        list(train(state, model, rank, 5))
        qccl.save_log(tmp_path / f"log_{rank}.json")
        return len(state.report().gauges)

    counts = run_ranks(body, 2)
    for rank, count in enumerate(counts):
        events = json.loads((tmp_path / f"log_{rank}.json").read_text())["traceEvents"]
        gauges = [event["args"] for event in events if event.get("cat") == "qccl gauge"]
        assert len(gauges) == count == 6
        assert {(gauge["name"], gauge["step"]) for gauge in gauges} == {
            (name, at) for name in NAMES for at in (0, 2, 4)
        }
        assert all(gauge["compression"].startswith("int:bits=4") and 4 < gauge["bits"] < 5 for gauge in gauges)
    program, files = str(ROOT / "build" / "qccl"), sorted(map(str, tmp_path.glob("log_*.json")))
    merged, picture = tmp_path / "all.json", tmp_path / "all.png"
    subprocess.run([program, "trace", "merge", merged, *files], check=True, timeout=60)
    assert merged.read_text().count('"qccl gauge"') == sum(counts)
    subprocess.run([program, "log", "plot", picture, *files], check=True, timeout=120)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_log_keeps_the_gauges_of_jobs_that_have_ended(tmp_path):
    def body(rank):
        qccl.configure_log(enabled=True)
        for job in range(2):
            model = make_model()
            list(train(make_state(model, "int:bits=4"), model, rank, 1))
            del model
            if job == 0:
                dist.destroy_process_group()
                store = dist.FileStore(str(tmp_path / "store"), 2)
                dist.init_process_group("qccl", store=store, rank=rank, world_size=2)
        qccl.save_log(tmp_path / f"log_{rank}.json")

    run_ranks(body, 2)
    assert [(tmp_path / f"log_{rank}.json").read_text().count('"qccl gauge"') for rank in range(2)] == [4, 4]


@pytest.mark.parametrize("quantity", ["nmse", "residual"])
def test_the_line_for_tensorboard_draws_every_parameter(tmp_path, quantity):
    page = (ROOT / "docs" / "torch-compression.md").read_text()
    (line,) = re.findall(r"^writer\.add_scalars\(.*\)$", page, re.MULTILINE)
    line = line.replace("nmse", quantity)

    def body(rank):
        from torch.utils.tensorboard import SummaryWriter  # here: it takes seconds, which other tests save

        model = make_model()
        state = make_state(model, "int:bits=4", gauge_every=2)
        written = []
        with SummaryWriter(tmp_path / str(rank)) as writer:
            for _ in train(state, model, rank, 5):
                exec(line, {"writer": writer, "state": state})
                last = {gauge.name: getattr(gauge, quantity) for gauge in state.report().gauges}
                written.append((state.step, last))
        return written

    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for rank, written in enumerate(run_ranks(body, 2)):
        assert [step for step, _ in written] == [1, 2, 3, 4, 5]
        for name in NAMES:
            events = EventAccumulator(str(tmp_path / str(rank) / f"{quantity}_{name}")).Reload()
            assert events.Tags()["scalars"] == [quantity]
            drawn = [(event.step, event.value) for event in events.Scalars(quantity)]
            assert drawn == [(step, pytest.approx(values[name], rel=1e-6)) for step, values in written]
            assert len({value for _, value in drawn}) == 3, "it is measured in steps 0, 2 and 4"


def test_gauges_change_no_sum():
    def body(rank, every):
        model = make_model()
        state = make_state(model, "int:bits=3,rounding=stochastic", gauge_every=every)
        list(train(state, model, rank, 4))
        return b"".join(parameter.grad.numpy().tobytes() for parameter in model.parameters())

    assert run_ranks(body, 2, 0) == run_ranks(body, 2, 1)


def test_a_negative_interval_is_refused():
    with pytest.raises(ValueError, match="gauge_every is a number of steps"):
        qccl.ddp.State(nn.Linear(2, 2), gauge_every=-1)
