"""qccl.torchft.OuterLoop asks a manager for a quorum before rounds, and only then. A stand-in for torchft's manager."""

import importlib
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks

import qccl


class Manager:
    """Whose quorum is the group that the test sets."""

    def __init__(self):
        self.quorums = 0
        self._pg = SimpleNamespace(parent=dist.group.WORLD)

    def next_quorum_is(self, group):
        self._pg.parent = group

    def start_quorum(self, allow_heal):
        self.quorums += 1

    def wait_quorum(self):
        pass

    def errored(self):
        return None


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
        without_2, again = dist.new_group([0, 1]), dist.new_group([0, 1, 2])
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
        assert outer.group is again and outer.stats()[-1]["ranks"] == 3
        outer.finish()
        for values in (*outer.global_state().values(), *model.parameters()):
            first = values.detach().clone()
            dist.broadcast(first, 0)
            assert torch.equal(first, values)
        return outer.steps

    assert run_ranks(body, 3) == [26] * 3


def test_a_replica_that_missed_one_round_meets_the_others_at_their_next_one(outer_loop_class):
    def body(rank):
        without_2, again = dist.new_group([0, 1]), dist.new_group([0, 1, 2])
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

    assert run_ranks(body, 3) == [(16, 5), (16, 5), (8, 3)]
