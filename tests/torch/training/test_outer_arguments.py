"""The arguments of qccl.outer.OuterLoop: what is synchronised, how deltas count, which optimizers step the model."""

import os
import signal
import warnings
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from ranks import TIMEOUT, run_processes, run_ranks, values_of

import qccl


def averaging(parameters):
    return torch.optim.SGD(parameters, lr=1.0)


def model_of(values):
    model = torch.nn.Module()
    for number, value in enumerate(values):
        model.register_parameter(f"x{number}", torch.nn.Parameter(torch.tensor(float(value))))
    return model


@pytest.mark.parametrize(
    ("every", "weighted", "average"),
    [
        (timedelta(hours=1), None, (1 * 1 + 3 * 3) / 4),
        (timedelta(hours=1), False, (1 + 3) / 2),
        (1000, None, (1 + 3) / 2),
        (1000, True, (1 * 1 + 3 * 3) / 4),
    ],
)
def test_deltas_count_by_samples_if_every_is_a_time_or_if_asked_to(every, weighted, average):
    def body(rank):
        model = model_of([0])
        outer = qccl.outer.OuterLoop(model, every=every, weighted=weighted, outer_optimizer=averaging)
        for _ in range(1 + 2 * rank):
            model.x0.data += 1
            outer.step()
        outer.finish()
        assert model.x0.item() == pytest.approx(average)

    run_ranks(body, 2)


def test_a_scheduler_changes_the_outer_rate_without_a_warning():
    def body(rank):
        model = model_of([0])
        outer = qccl.outer.OuterLoop(model, every=1, outer_optimizer=lambda p: torch.optim.SGD(p, lr=0.5, momentum=0.0))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            scheduler = torch.optim.lr_scheduler.LambdaLR(outer.outer_optimizer, lambda epoch: 0.5**epoch)
            expected = 0.0
            for rate in (0.5, 0.25, 0.125):
                model.x0.data += 1
                outer.step()
                scheduler.step()
                expected += rate
                assert model.x0.item() == expected

    run_ranks(body, 2)


def test_frozen_parameters_and_tables_stay_as_they_are():
    def body(rank):
        model = torch.nn.Linear(3, 2)
        model.bias.requires_grad_(False)
        model.register_buffer("table", torch.zeros(4), persistent=False)
        model.register_buffer("mean", torch.zeros(4))
        outer = qccl.outer.OuterLoop(model, every=1, outer_optimizer=averaging)
        assert outer.global_state().keys() == {"weight", "mean"}
        for values in (model.weight.data, model.bias.data, model.table, model.mean):
            values.fill_(rank)
        outer.step()
        ends = [values.unique().item() for values in (model.weight, model.bias, model.table, model.mean)]
        assert ends == [0.5, rank, rank, 0.5]

    run_ranks(body, 2)


def test_an_optimizer_may_divide_the_parameters_into_groups():
    def by_shape(parameters):
        matrices = [each for each in parameters if each.dim() == 2]
        others = [each for each in parameters if each.dim() != 2]
        return torch.optim.SGD([{"params": matrices, "lr": 1.0}, {"params": others, "lr": 0.5}], lr=1.0)

    def body(rank):
        model = torch.nn.Linear(3, 2)
        outer = qccl.outer.OuterLoop(model, every=1, outer_optimizer=by_shape)
        assert outer.outer_optimizer is None
        before = [each.detach().clone() for each in (model.weight, model.bias)]
        for values in (model.weight.data, model.bias.data):
            values += 2 * rank
        outer.step()
        for values, begin, moved in zip((model.weight, model.bias), before, (1.0, 0.5), strict=True):
            torch.testing.assert_close(values, begin + moved)

    run_ranks(body, 2)


@pytest.mark.parametrize("decays", [0.0, 0.1], ids=["by the library", "in Python"])
def test_an_optimizer_that_leaves_parameters_out_is_refused(decays):
    def body(rank):
        with pytest.raises(ValueError, match="took 1 of 2 parameters"):
            qccl.outer.OuterLoop(
                torch.nn.Linear(3, 2), outer_optimizer=lambda p: torch.optim.SGD(p[:1], lr=1.0, weight_decay=decays)
            )

    run_ranks(body, 1)


def test_groups_of_parameters_that_differ_between_ranks_are_refused():
    def body(rank):
        with pytest.raises(ValueError, match="other options.*optimizer"):
            qccl.outer.OuterLoop(
                torch.nn.Linear(3, 2),
                outer_optimizer=lambda p: torch.optim.SGD(
                    [{"params": p[:1]}, {"params": p[1:], "weight_decay": 0.1 * rank}], lr=1.0
                ),
            )

    run_ranks(body, 2)


def test_wrong_quorum_and_patience_are_refused_when_the_loop_is_made():
    def body(rank):
        with pytest.raises(ValueError, match="quorum is .*, not 'Any'"):
            qccl.outer.OuterLoop(model_of([0]), quorum="Any")
        with pytest.raises(TypeError, match="patience is a timedelta or None, not 5"):
            qccl.outer.OuterLoop(model_of([0]), patience=5)

    run_ranks(body, 1)


def test_samples_without_a_meaning_are_refused():
    def body(rank):
        outer = qccl.outer.OuterLoop(model_of([0]), every=2)
        for wrong in (-1, float("nan"), float("inf")):
            with pytest.raises(ValueError, match="samples: give a number from 0"):
                outer.step(wrong)
        assert outer.steps == 0

    run_ranks(body, 1)


def two_ranks(rank, tmp_path, **arguments):
    """A model, and its loop with a round that begins in the second step."""
    store = dist.FileStore(str(tmp_path / "store"), 2)
    dist.init_process_group("qccl", store=store, rank=rank, world_size=2, timeout=TIMEOUT)
    model = model_of([0])
    outer = qccl.outer.OuterLoop(model, every=2, outer_optimizer=averaging, **arguments)
    outer.step()
    model.x0.data += 1
    return model, outer


def test_one_of_two_ranks_goes_on_without_one_that_is_stopped_if_the_quorum_permits(tmp_path):
    def body(rank):
        processes = dist.FileStore(str(tmp_path / "processes"), -1)
        model, outer = two_ranks(rank, tmp_path, quorum="any", patience=timedelta(seconds=1))
        if rank == 0:
            processes.set("stopped", str(os.getpid()))
            os.kill(os.getpid(), signal.SIGSTOP)
        try:
            outer.step()
            assert dist.get_world_size() == 1 and model.x0.item() == 1 and outer.stats()[-1]["ranks"] == 1
            dist.destroy_process_group()
        finally:
            os.kill(int(processes.get("stopped")), signal.SIGKILL)

    values_of(run_processes(body, 2, environment={"QCCL_PEER_TIMEOUT": "2"})[1:])


def test_the_program_may_make_the_next_group_itself(tmp_path):
    def body(rank):
        model, outer = two_ranks(rank, tmp_path, go_on=False)
        if rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        with pytest.raises((dist.DistNetworkError, dist.DistBackendError)):
            outer.step()
        outer.regroup(qccl.shrink())
        assert dist.get_world_size() == 1 and model.x0.item() == 1 and outer.stats()[-1]["ranks"] == 1
        dist.destroy_process_group()

    values_of(run_processes(body, 2)[1:])
