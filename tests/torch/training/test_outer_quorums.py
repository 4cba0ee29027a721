"""qccl.torchft.OuterLoop asks a manager for a quorum before rounds, and only then. A stand-in for torchft's manager."""

import importlib
import sys
from datetime import timedelta
from types import ModuleType, SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks

import qccl


class Manager:
    """Whose quorum is the group that the test sets. As torchft's, it comes when all members have asked for it."""

    def __init__(self):
        self.quorums = 0
        self._pg = SimpleNamespace(parent=dist.group.WORLD)
        self._members = dist.group.WORLD
        self.after_loss = None

    def next_quorum_is(self, group):
        """Of (the group, another one of the same ranks)."""
        self._pg.parent, self._members = group

    def start_quorum(self, allow_heal):
        self.quorums += 1

    def wait_quorum(self):
        dist.barrier(self._members)

    def errored(self):
        return None

    def report_error(self, loss):
        self.next_quorum_is(self.after_loss)

    def should_commit(self):
        return False


def quorum(*ranks):
    return tuple(dist.new_group(ranks, timeout=timedelta(seconds=30)) for _ in range(2))


@pytest.fixture(scope="module")
def outer_loop_class():
    """qccl.torchft.OuterLoop, without torchft: afterwards no module has seen the stand-ins."""
    process_group = ModuleType("torchft.process_group")
    process_group.ProcessGroupWrapper = object
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "torchft", ModuleType("torchft"))
        patch.setitem(sys.modules, "torchft.process_group", process_group)
        patch.delitem(sys.modules, "qccl.torchft", raising=False)
        patch.delattr(qccl, "torchft", raising=False)
        yield importlib.import_module("qccl.torchft").OuterLoop
        sys.modules.pop("qccl.torchft")
        del qccl.torchft


@pytest.mark.parametrize("delay", [0, 2, 4])
def test_one_quorum_for_each_round_whether_or_not_one_is_in_flight(delay, outer_loop_class):
    def body(rank):
        manager = Manager()
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
        outer = outer_loop_class(manager, model, every=8, fragments=2, delay=delay)
        assert manager.quorums == 1
        steps = []
        for step in range(1, 21):
            before = manager.quorums
            outer.step()
            steps += [step] * (manager.quorums - before)
        outer.finish()
        assert steps == [4, 8, 12, 16, 20]
        assert manager.quorums == 1 + 5 + 1

    run_ranks(body, 2)


@pytest.mark.parametrize("delay", [2, 4])
def test_a_replica_that_was_left_out_with_a_round_in_flight_comes_back_with_its_loop(delay, outer_loop_class):
    def body(rank):
        without_2, again = quorum(0, 1), quorum(0, 1, 2)
        manager = Manager()
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
        outer = outer_loop_class(manager, model, every=8, fragments=2, delay=delay, compression="int:bits=4")

        def run(until):
            while outer.steps < until:
                with torch.no_grad():
                    for each in model.parameters():
                        each += 0.01 * torch.sin(torch.arange(each.numel()) * (rank + 2) + outer.steps).view_as(each)
                outer.step()

        run(5)  # a round is in flight
        if rank < 2:
            manager.next_quorum_is(without_2)
            run(19)
        manager.next_quorum_is(again)
        run(26)
        assert outer.group is again[0] and outer.stats()[-1]["ranks"] == 3
        outer.finish()
        for values in (*outer.global_state().values(), *model.parameters()):
            first = values.detach().clone()
            dist.broadcast(first, 0)
            assert torch.equal(first, values)
        return outer.steps

    assert run_ranks(body, 3) == [26] * 3


def test_a_replica_that_missed_one_round_meets_the_others_at_their_next_one(outer_loop_class):
    def body(rank):
        without_2, again = quorum(0, 1), quorum(0, 1, 2)
        manager = Manager()
        model = torch.nn.Linear(8, 8)
        outer = outer_loop_class(manager, model, every=8, outer_optimizer=lambda p: torch.optim.SGD(p, lr=1.0))
        start = model.weight.detach().clone()
        trained = 0

        def run(until):
            nonlocal trained
            while outer.steps < until:
                with torch.no_grad():
                    model.weight += 1
                trained += 1
                outer.step()

        run(7)
        if rank < 2:
            manager.next_quorum_is(without_2)
            run(15)
        manager.next_quorum_is(again)
        run(16)
        assert outer.steps == 16 and outer.stats()[-1]["ranks"] == 3
        # Two rounds of 8 steps, and the replica's 8 count once.
        torch.testing.assert_close(model.weight.detach(), start + 8 + 8)
        return trained, manager.quorums

    assert run_ranks(body, 3) == [(16, 3), (16, 3), (8, 2)]


def test_a_replica_that_is_late_meets_one_that_repeats_its_round_without_a_lost_one(outer_loop_class):
    def body(rank):
        without_1, without_2 = quorum(0, 2), quorum(0, 1)
        manager = Manager()
        outer = outer_loop_class(manager, torch.nn.Linear(8, 8), every=8)
        manager.after_loss = without_2
        while outer.steps < 7:
            outer.step()
        manager.next_quorum_is(without_2 if rank == 1 else without_1)
        if rank == 2:
            outer._meet()
            outer.group._get_backend(torch.device("cpu")).abort()
            return 1
        while outer.steps < 16:
            outer.step()
        assert [each["ranks"] for each in outer.stats()] == [2, 2]
        return manager.quorums

    assert run_ranks(body, 3) == [1 + 2 + 1, 1 + 1 + 1, 1]


def test_a_replica_that_joins_where_the_others_begin_a_round_needs_no_further_quorum_for_it(outer_loop_class):
    def body(rank):
        old, new = quorum(0, 1), quorum(0, 1, 2)
        manager = Manager()
        manager.next_quorum_is(new if rank == 2 else old)
        outer = outer_loop_class(manager, torch.nn.Linear(8, 8), every=8)
        if rank < 2:
            while outer.steps < 15:
                outer.step()
            manager.next_quorum_is(new)
        while outer.steps < 24:
            outer.step()
        outer.finish()
        assert outer.stats()[-1]["ranks"] == 3
        return manager.quorums

    assert run_ranks(body, 3) == [5, 5, 3]


@pytest.mark.parametrize("delay", [0, 4])
@pytest.mark.parametrize("in_finish", [False, True])
def test_a_replica_that_joins_where_the_others_repeat_a_round_meets_them_in_the_next_one(
    delay, in_finish, outer_loop_class
):
    def body(rank):
        old, new = quorum(0, 1, 2), quorum(0, 1, 3)
        manager = Manager()
        manager.next_quorum_is(new if rank == 3 else old)
        manager.after_loss = new
        outer = outer_loop_class(manager, torch.nn.Linear(8, 8), every=4, delay=delay)
        if rank < 3:
            while outer.steps < 7:
                outer.step()
        if rank == 2:  # the others have begun a round that it does not post
            for _ in range(1 if in_finish or delay == 0 else 2):  # until the others wait for that round
                outer._meet()
            outer.group._get_backend(torch.device("cpu")).abort()
            return
        while outer.steps < (7 if in_finish else 16):
            outer.step()
        outer.finish()
        assert outer.stats()[-1]["ranks"] == 3

    run_ranks(body, 4)


def test_what_the_manager_decides_is_no_argument(outer_loop_class):
    with pytest.raises(TypeError, match="the manager decides who takes part: leave out go_on, quorum"):
        outer_loop_class(None, torch.nn.Linear(1, 1), go_on=True, quorum="any")
