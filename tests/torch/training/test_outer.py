"""qccl.outer: training that synchronises every H steps."""

import io
import os
import signal
import warnings
import weakref
from datetime import timedelta

import numpy
import pytest
import torch
import torch.distributed as dist
from ranks import TIMEOUT, run_processes, run_ranks, values_of

import qccl


class Small(torch.nn.Module):
    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.blocks = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(4))
        self.norm = torch.nn.BatchNorm1d(64)
        self.to(dtype)

    def forward(self, x):
        for block in self.blocks:
            x = x + torch.tanh(block(x))
        return self.norm(x)


class Training:
    """Batches are a function of rank and step."""

    def __init__(self, rank, dtype=torch.float32, halves_rate=False, **arguments):
        torch.manual_seed(rank)
        self.halves_rate = halves_rate
        self.rank, self.dtype, self.step = rank, dtype, 0
        self.model = Small(dtype)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.outer = qccl.outer.OuterLoop(self.model, **arguments)

    def run(self, until):
        while self.step < until:
            torch.manual_seed(1000 * self.step + self.rank)
            x = torch.randn(16, 64, dtype=self.dtype)
            loss = (self.model(x) - x.roll(1, dims=1)).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.step += 1
            if self.halves_rate and self.step == 5:
                self.outer.outer_optimizer.param_groups[0]["lr"] = 0.35
            self.outer.step()

    def values(self):
        return [each.detach().clone() for each in self.model.parameters()]


def assert_same_on_all_ranks(tensors):
    for tensor in tensors:
        first = tensor.clone()
        dist.broadcast(first, 0)
        assert torch.equal(first, tensor)


STREAMING = {"every": 6, "fragments": 2, "delay": 2, "blend": 0.5, "compression": "int:bits=4"}


@pytest.mark.parametrize(
    "arguments",
    [
        {"every": 5},
        STREAMING,
        {**STREAMING, "outer_optimizer": lambda p: torch.optim.Adam(p, lr=0.01)},
        {"every": 5, "compression": "topk:density=0.05,values=int2", "error_decay": 0.95, "bfloat16_residual": True,
         "outer_optimizer": lambda p: torch.optim.SGD(p, lr=1.0)},
    ],
    ids=["diloco", "streaming", "other optimizer", "sparseloco"],
)  # fmt: skip
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_all_ranks_have_the_same_global_model_and_in_the_end_the_same_parameters(arguments, dtype):
    def body(rank):
        training = Training(rank, dtype, **arguments)
        for until in (5, 13, 20):
            training.run(until)
            assert_same_on_all_ranks(training.outer.global_state().values())
        training.outer.finish()
        assert_same_on_all_ranks(training.model.state_dict().values())
        rounds = training.outer.stats()
        assert [each["round"] for each in rounds] == list(range(len(rounds)))
        assert all(each["bytes"] > 0 and 0 <= each["computing"] <= 1 and each["delta_norm"] > 0 for each in rounds[:3])

    run_ranks(body, 2)


def test_every_step_with_a_rate_of_1_and_no_momentum_is_parameter_averaging_to_the_bit():
    def body(rank):
        training = Training(rank, every=1, outer_optimizer=lambda p: torch.optim.SGD(p, lr=1.0))
        before = training.values()
        training.outer.step = lambda: None
        training.run(1)
        expected = training.values()
        assert not torch.equal(before[0], expected[0])
        # In one call: the order of additions depends on its size.
        buffers = [each for each in training.model.buffers() if each.is_floating_point()]
        average = torch.cat([each.flatten() for each in (*expected, *buffers)])
        dist.all_reduce(average, op=dist.ReduceOp.AVG)
        for each in expected:
            each.copy_(average[: each.numel()].view_as(each))
            average = average[each.numel() :]
        del training.outer.step
        training.outer.step()
        for got, want in zip(training.values(), expected, strict=True):
            assert torch.equal(got, want)

    run_ranks(body, 3)


@pytest.mark.parametrize("make", [None, lambda p: torch.optim.Adam(p, lr=0.01)], ids=["sgd", "adam"])
@pytest.mark.parametrize("cut", [7, 9, 10])
def test_a_run_that_was_saved_and_resumed_has_the_same_bits(make, cut):
    arguments = {**STREAMING, "outer_optimizer": make, "halves_rate": make is None}

    def body(rank):
        whole = Training(rank, **arguments)
        whole.run(20)
        first = Training(rank, **arguments)
        first.run(cut)
        saved = [first.model.state_dict(), first.optimizer.state_dict(), first.outer.state_dict()]
        second = Training(rank + 5, **arguments)
        second.rank, second.step = rank, cut
        for part, state in zip((second.model, second.optimizer, second.outer), saved, strict=True):
            part.load_state_dict(state)
        if make is None:
            assert second.outer.outer_optimizer.param_groups[0]["lr"] == 0.35
        second.run(20)
        whole.outer.finish()
        second.outer.finish()
        for got, want in zip(second.values(), whole.values(), strict=True):
            assert torch.equal(got, want)

    run_ranks(body, 2)


def test_an_additional_rank_loads_the_state_of_another_one():
    def save(rank):
        training = Training(rank, **STREAMING)
        training.run(7)  # a round is in flight
        states = io.BytesIO()
        torch.save((training.model.state_dict(), training.outer.state_dict()), states)
        return states.getvalue()

    saved = run_ranks(save, 2)

    def resume(rank):
        training = Training(rank, **STREAMING)
        training.step = 7
        model, outer = torch.load(io.BytesIO(saved[rank % 2]))
        if rank < 2:
            training.model.load_state_dict(model)
        training.outer.load_state_dict(outer, own=rank < 2)
        own = dict(training.model.named_parameters())
        is_global = all(torch.equal(own[name], x) for name, x in training.outer.global_state().items() if name in own)
        assert is_global == (rank == 2)
        training.run(20)
        training.outer.finish()
        assert_same_on_all_ranks(training.values())
        return training.outer.stats()[-1]["ranks"]

    assert run_ranks(resume, 3) == [3, 3, 3]


def test_survivors_of_a_kill_finish_the_round(tmp_path):
    def body(rank):
        store = dist.FileStore(str(tmp_path / "store"), 3)
        dist.init_process_group("qccl", store=store, rank=rank, world_size=3, timeout=TIMEOUT)
        training = Training(rank, **STREAMING)
        training.run(10)
        if rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        training.run(30)
        training.outer.finish()
        assert dist.get_world_size() == 2 and training.outer.stats()[-1]["ranks"] == 2
        assert_same_on_all_ranks(training.values())
        dist.destroy_process_group()

    values_of(run_processes(body, 3)[1:])


def shared_store(path):
    """For what processes tell each other beside their job's store, however many they are."""
    store = dist.FileStore(str(path), -1)
    store.set_timeout(TIMEOUT)
    return store


def test_a_rank_that_is_later_than_the_timeout_stays(tmp_path):
    def body(rank):
        shared = shared_store(tmp_path / "shared")
        store = dist.FileStore(str(tmp_path / "store"), 2)
        dist.init_process_group("qccl", store=store, rank=rank, world_size=2, timeout=TIMEOUT)
        dist.barrier()
        group = dist.new_group(timeout=timedelta(seconds=4))
        training = Training(rank, group=group, **STREAMING)
        replace = training.outer._replace_group

        def say_and_replace(loss):
            shared.set("round failed", "")
            replace(loss)

        training.outer._replace_group = say_and_replace
        training.run(4)  # a round is in flight
        if rank == 1:
            shared.get("round failed")
        training.run(20)
        training.outer.finish()
        assert_same_on_all_ranks(training.values())
        dist.barrier()
        sizes = {each["ranks"] for each in training.outer.stats()}
        dist.destroy_process_group()
        return sizes

    assert values_of(run_processes(body, 2)) == [{2}, {2}]


def test_a_rank_that_is_stopped_is_left_out_after_the_patience(tmp_path):
    def body(rank):
        shared = shared_store(tmp_path / "shared")
        store = dist.FileStore(str(tmp_path / "store"), 3)
        dist.init_process_group("qccl", store=store, rank=rank, world_size=3, timeout=TIMEOUT)
        training = Training(rank, **STREAMING)
        training.run(10)
        if rank == 0:
            shared.set("process", str(os.getpid()))
            os.kill(os.getpid(), signal.SIGSTOP)
            with pytest.raises((dist.DistBackendError, dist.DistNetworkError)):
                training.run(30)
            return 0
        training.run(30)
        training.outer.finish()
        assert_same_on_all_ranks(training.values())
        dist.barrier()
        if rank == 1:
            os.kill(int(shared.get("process")), signal.SIGCONT)
        dist.destroy_process_group()
        return training.outer.stats()[-1]["ranks"]

    assert values_of(run_processes(body, 3, environment={"QCCL_PEER_TIMEOUT": "2"})) == [0, 2, 2]


@pytest.mark.parametrize("make", [None, lambda p: torch.optim.Adam(p, lr=0.01)], ids=["sgd", "adam"])
@pytest.mark.parametrize("cut", [8, 9, 10], ids=["between rounds", "in the step that began one", "round in flight"])
def test_a_rank_that_joins_gets_the_global_model_and_the_outer_state(make, cut, tmp_path):
    arguments = {**STREAMING, "outer_optimizer": make, "halves_rate": make is None}

    def body(rank):
        shared = shared_store(tmp_path / "doors")
        if rank < 2:
            store = dist.FileStore(str(tmp_path / "store"), 2)
            dist.init_process_group("qccl", store=store, rank=rank, world_size=2, timeout=TIMEOUT)
            shared.set(f"{rank}", qccl.door())
            training = Training(rank, **arguments)
            training.run(cut)
            qccl.grow(at_least=1)
            training.outer.regroup()
        else:
            qccl.join(",".join(shared.get(f"{member}").decode() for member in range(2)), timeout=TIMEOUT)
            training = Training(rank, **arguments)
            training.step = training.outer.steps
            if make is None:
                assert training.outer.outer_optimizer.param_groups[0]["lr"] == 0.35
            values = training.model.state_dict()
            assert all(torch.equal(values[name], each) for name, each in training.outer.global_state().items())
        assert training.step == cut and dist.get_world_size() == 3
        assert_same_on_all_ranks(training.outer.global_state().values())
        for until in range(cut + 1, 24):  # a momentum that differs would show
            training.run(until)
            assert_same_on_all_ranks(training.outer.global_state().values())
        training.outer.finish()
        assert_same_on_all_ranks(training.values())
        assert training.outer.stats()[-1]["ranks"] == 3
        dist.barrier()
        dist.destroy_process_group()
        return len(training.outer.stats())

    members, _, newcomer = values_of(run_processes(body, 3, environment={"QCCL_OPEN": "on"}))
    assert members > newcomer


def test_time_instead_of_steps_and_deltas_by_samples():
    def body(rank):
        training = Training(rank, every=timedelta(milliseconds=30), fragments=2, weighted=True)
        training.run(50 if rank == 0 else 90)
        training.outer.finish()
        assert_same_on_all_ranks(training.values())

    run_ranks(body, 2)


def test_buffers_are_averaged_or_kept():
    def body(rank):
        averaged, kept = Small(), Small()
        loops = [
            qccl.outer.OuterLoop(model, every=1, buffers=how) for model, how in ((averaged, "average"), (kept, "keep"))
        ]
        for model, loop in zip((averaged, kept), loops, strict=True):
            model.norm.running_mean.fill_(float(rank))
            loop.step()
        assert averaged.norm.running_mean[0] == 0.5 and kept.norm.running_mean[0] == rank

    run_ranks(body, 2)


def test_two_bits_of_a_codec_that_holds_back_too_much_are_warned_of():
    def body(rank):
        with pytest.warns(UserWarning, match="h4:bits=2 sends as many bytes"):
            qccl.outer.OuterLoop(Small(), compression="int:bits=2")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            qccl.outer.OuterLoop(Small(), compression="h4:bits=2")

    run_ranks(body, 1)


def test_wrong_arguments_are_named():
    def body(rank):
        for wrong, text in [
            ({"every": 4, "fragments": 9}, "9"),
            ({"every": 8, "fragments": 2, "delay": 5}, "delay of 5"),
            ({"buffers": "drop"}, "drop"),
            ({"compression": "int:bits=99"}, "99"),
            ({"every": 0}, "every must be at least 1"),
            ({"every": timedelta()}, "every must be positive"),
            ({"fragments": 0}, "fragments must be at least 1"),
            ({"delay": -1}, "delay must be at least 0"),
            ({"every": 8 + rank}, "other options"),
            ({"outer_optimizer": lambda p: torch.optim.SGD(p, lr=0.5 + 0.1 * rank)}, "other options.*optimizer"),
            ({"outer_optimizer": lambda p: torch.optim.Adam(p, lr=0.5 + 0.1 * rank)}, "other options.*optimizer"),
        ]:
            with pytest.raises(ValueError, match=text):
                qccl.outer.OuterLoop(Small(), **wrong)
        for name in ("every", "fragments", "delay"):
            with pytest.raises(TypeError, match=f"{name} is an integer.*, not 2.0"):
                qccl.outer.OuterLoop(Small(), **{name: 2.0})

    run_ranks(body, 2)


def test_numbers_of_steps_may_be_of_any_integer_type():
    def body(rank):
        training = Training(rank, every=numpy.int64(6), fragments=numpy.int32(2), delay=torch.tensor(1))
        begins = []
        for step in range(12):
            begins.append(training.outer.begins_round)
            training.run(step + 1)
        assert [step for step, is_begin in enumerate(begins, start=1) if is_begin] == [3, 6, 9, 12]

    run_ranks(body, 2)


def test_rate_that_differs_between_ranks_is_named_on_all_of_them():
    def body(rank):
        outer = qccl.outer.OuterLoop(Small(), every=2)
        if rank == 1:
            outer.outer_optimizer.param_groups[0]["lr"] = 0.1
        outer.step()
        with pytest.raises(ValueError, match=f"different rates; this rank's is {0.1 if rank else 0.7}"):
            outer.step()
        outer.outer_optimizer.param_groups[0]["lr"] = 0.1
        outer.step()
        assert len(outer.stats()) == 1

    run_ranks(body, 2)


def test_what_replacing_the_group_raises_is_raised_by_the_call_that_met_the_loss():
    losses = []

    class Loop(qccl.outer.OuterLoop):
        def _replace_group(self, loss):
            losses.append(loss)
            raise RuntimeError("no group")

    def body(rank):
        outer = Loop(Small(), every=1)
        if rank == 0:
            with pytest.raises(RuntimeError, match="no group"):
                outer.step()
            assert isinstance(losses[0], dist.DistNetworkError | dist.DistBackendError)
            assert "qccl" in str(losses[0]).lower()

    run_ranks(body, 2)


def test_errors_that_are_no_loss_leave_the_group():
    class Loop(qccl.outer.OuterLoop):
        def _replace_group(self, loss):
            raise AssertionError("a loss")

    class Refusing(torch.optim.Adam):
        def step(self):
            raise dist.DistBackendError("no memory")

    def body(rank):
        outer = Loop(Small(), every=1, outer_optimizer=Refusing)
        with pytest.raises(dist.DistBackendError, match="no memory"):
            outer.step()

    run_ranks(body, 1)


def test_a_loop_ends_with_its_last_reference():
    def body(rank):
        outer = qccl.outer.OuterLoop(Small(), every=1)
        outer.step()
        reference = weakref.ref(outer)
        del outer
        assert reference() is None

    run_ranks(body, 1)
