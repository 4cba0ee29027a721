"""Callbacks on futures: when they run, and the order of the collectives that they make."""

import random
import threading
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks

WAIT_SECONDS = 20.0


class Late:
    """A message that arrives when the peer calls come()."""

    def __init__(self, rank, tag=1):
        self.peer, self.tag = 1 - rank, tag
        self.work = dist.irecv(torch.zeros(1), self.peer, tag=tag)

    def then(self, callback):
        return self.work.get_future().then(callback)


def come(*lates):
    """Once all ranks have added their callbacks."""
    dist.barrier()
    for late in lates:
        dist.send(torch.ones(1), late.peer, tag=late.tag)


def complete_work():
    work = dist.all_reduce(torch.ones(10), async_op=True)
    work.wait()
    return work


def summing(order, name):
    """A callback that makes an all_reduce like all others: which ones meet depends on their order alone."""

    def callback(_):
        tensor = torch.full((1,), float(name))
        dist.all_reduce(tensor)
        order.append(name)
        return tensor.item()

    return callback


# ---- when callbacks run


def test_callback_on_a_complete_future_runs_at_once_while_an_earlier_one_is_pending():
    def body(rank):
        here, done, late, ran = threading.get_ident(), complete_work(), Late(rank), []
        earlier = late.then(summing([], 1))
        future = done.get_future().then(lambda _: ran.append(threading.get_ident()))
        assert ran == [here] and future.done()
        done.get_future().add_done_callback(lambda _: ran.append(threading.get_ident()))
        assert ran == [here, here]
        come(late)
        assert earlier.wait() == 2

    run_ranks(body)


def test_callback_on_a_complete_future_runs_at_once_while_an_earlier_one_runs():
    def body(rank):
        done, late, ran = complete_work(), Late(rank), []
        began, go_on = threading.Event(), threading.Event()
        earlier = late.then(lambda _: (began.set(), go_on.wait(WAIT_SECONDS)))
        come(late)
        assert began.wait(WAIT_SECONDS)
        assert done.get_future().then(lambda _: ran.append(1)).done() and ran == [1]
        go_on.set()
        assert earlier.wait() == (None, True)

    run_ranks(body)


def test_callbacks_have_returned_when_wait_returns():
    def once(with_collective):
        work, ran = dist.all_reduce(torch.ones(1000), async_op=True), []
        future = work.get_future()
        last = future.then(lambda done: ran.append(done.value()[0][0].item())).then(lambda _: ran.append("then"))
        future.add_done_callback(lambda _: ran.append("done"))
        if with_collective:
            future.then(lambda _: dist.all_reduce(torch.ones(10)))
        work.wait()
        assert sorted(map(str, ran)) == ["2.0", "done", "then"] and last.done()

    def body(rank):
        for n in range(100):
            once(n % 2)

    run_ranks(body)


def test_wait_inside_a_callback_waits_for_the_operation_alone():
    def body(rank):
        late, ended = Late(rank), threading.Event()
        others = [Late(rank, tag) for tag in (2, 3)]

        def callback(_):
            for each in (late, *others):
                each.work.wait()
            ended.set()

        futures = [late.then(callback)]
        futures += [other.then(lambda _: (ended.wait(WAIT_SECONDS), summing([], 1)(None))) for other in others]
        come(*others, late)
        assert [future.wait() for future in futures] == [None, (True, 2), (True, 2)]

    run_ranks(body)


def test_chains_whose_variables_change_after_then_as_in_torchfts_manager():
    """The manager waits, adds a callback and then changes the variable that it reads: a callback that does not run
    before then() returns reads the wrong one. An earlier callback on the operation raises, as an injected failure."""

    def once(rank, injects, others):
        def fail(_):
            failures.append(1)
            raise RuntimeError("injected")

        failures, seen, names = [], [], ["first", "second"]
        work = dist.all_reduce(torch.full((100,), float(rank)), async_op=True)
        if injects:
            work.get_future().then(fail)
        for _ in range(others):
            dist.all_reduce(torch.ones(100), async_op=True).get_future().then(lambda _: None)
        assert work.wait() is True
        assert len(failures) == injects
        future = work.get_future()
        while names:

            def callback(done):
                done.wait()
                seen.append(names[0])
                return names[0]

            future = future.then(callback)
            names.pop(0)
        assert future.wait() == "second" and seen == ["first", "second"]

    def body(rank):
        for n in range(200):
            once(rank, bool(n % 3), n % 5)

    run_ranks(body)


def test_failed_operation_completes_its_callbacks_with_the_error():
    def body(rank):
        gate, group = dist.new_group(backend="gloo"), dist.new_group()
        dist.barrier(gate)  # both ranks have made the group before one of them aborts in it
        if rank == 0:
            work, seen = dist.all_reduce(torch.ones(10), group=group, async_op=True), []

            def callback(done):
                with pytest.raises(dist.DistError, match="aborted") as raised:
                    done.value()
                seen.append(raised.value)

            work.get_future().then(callback)
            work.abort()
            with pytest.raises(dist.DistError, match="aborted"):
                work.wait()
            assert len(seen) == 1
        dist.barrier(gate)

    run_ranks(body)


# ---- the order of their collectives


def test_collectives_of_callbacks_are_in_the_order_of_then_whichever_future_completes_first():
    def body(rank):
        order, lates = [], [Late(rank, tag) for tag in range(20)]
        futures = [late.then(summing(order, late.tag)) for late in lates]
        random.Random(rank).shuffle(lates)
        come(*lates)
        assert [future.wait() for future in futures] == [2.0 * tag for tag in range(20)]
        assert order == list(range(20))

    run_ranks(body)


def test_collective_of_a_callback_that_runs_at_once_waits_for_earlier_callbacks():
    def body(rank):
        done, late, order = complete_work(), Late(rank), []
        began, added = threading.Event(), []
        first = late.then(summing(order, 1))

        def second(value):
            began.set()
            return summing(order, 2)(value)

        thread = threading.Thread(target=lambda: added.append(done.get_future().then(second)))
        thread.start()
        assert began.wait(WAIT_SECONDS)
        come(late)
        thread.join()
        assert (first.wait(), added[0].wait()) == (2, 4) and order == [1, 2]

    run_ranks(body)


def test_any_number_of_callbacks_may_wait_for_their_turn():
    def body(rank):
        order, began = [], threading.Semaphore(0)
        first, *others = lates = [Late(rank, tag) for tag in range(150)]

        def callback(name):
            return lambda _: (began.release(), summing(order, name)(None))[1]

        futures = [late.then(callback(late.tag)) for late in lates]
        come(*reversed(others))
        for _ in others:
            assert began.acquire(timeout=WAIT_SECONDS)
        assert order == []
        come(first)
        assert [future.wait() for future in futures] == [2.0 * tag for tag in range(150)]
        assert order == list(range(150))

    run_ranks(body)


def test_a_collective_whose_turn_does_not_come_in_time_names_the_reason():
    def body(rank):
        done, late, ended, began = complete_work(), Late(rank), threading.Event(), threading.Event()
        earlier = late.then(lambda _: (began.set(), ended.wait(WAIT_SECONDS)))
        come(late)
        assert began.wait(WAIT_SECONDS)
        options = dist.BarrierOptions()
        options.timeout = timedelta(milliseconds=50)
        reason = "rank [01], group 'world': qccl:barrier in a callback did not begin within 50 ms: .* has not returned"

        def second(_):
            with pytest.raises(dist.DistNetworkError, match=reason):
                dist.group.WORLD.barrier(options)

        done.get_future().then(second).wait()
        ended.set()
        earlier.wait()
        dist.barrier()

    run_ranks(body)


def test_callbacks_that_issue_and_wait_for_collectives_with_callbacks_of_their_own():
    def body(rank):
        order = []

        def nested(name):
            def callback(_):
                inner = dist.all_reduce(torch.ones(1), async_op=True).get_future().then(summing(order, name + 1))
                work = dist.all_reduce(torch.ones(1), async_op=True)
                left_behind = work.get_future().then(summing(order, name + 2))
                work.get_future().wait()
                return inner.wait(), left_behind

            return callback

        works = [dist.all_reduce(torch.ones(10), async_op=True) for _ in range(6)]
        futures = [work.get_future().then(nested(10 * n)) for n, work in enumerate(works)]
        for n, future in enumerate(futures):
            value, left_behind = future.wait()
            assert value == 2 * (10 * n + 1) and left_behind.wait() == 2 * (10 * n + 2)
        assert order == [10 * n + k for n in range(6) for k in (1, 2)]

    run_ranks(body)


def test_callback_may_wait_for_the_collective_of_a_later_one():
    def body(rank):
        order, later = [], []
        first, *others = [Late(rank, tag) for tag in range(1, 5)]

        def waiting(_):
            value = later[-1].wait()
            return value, summing(order, 1)(None)

        future = first.then(waiting)
        later += [other.then(summing(order, other.tag)) for other in others]
        come(*others, first)
        assert future.wait() == (8, 2)
        assert [each.wait() for each in later] == [4, 6, 8] and order == [4, 1, 2, 3]

    run_ranks(body)


def test_messages_of_callbacks_are_in_their_order_too():
    def body(rank):
        def exchange(name):
            def callback(_):
                tensor = torch.full((1,), float(name))
                (dist.send if rank == 0 else dist.recv)(tensor, 1 - rank)
                return tensor.item()

            return callback

        lates = [Late(rank, tag) for tag in range(1, 10)]
        futures = [late.then(exchange(late.tag if rank == 0 else -1)) for late in lates]
        random.Random(rank).shuffle(lates)
        come(*lates)
        assert [future.wait() for future in futures] == list(range(1, 10))

    run_ranks(body)
