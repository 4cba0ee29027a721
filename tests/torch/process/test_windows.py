"""One-sided writes: torch's windows, dist._new_window(), which torch has from 2.15 on."""

import gc
import os
import signal
import threading
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from ranks import TIMEOUT, run_processes, run_ranks, values_of

c10d = torch._C._distributed_c10d

pytestmark = [
    pytest.mark.skipif(not hasattr(c10d, "Window"), reason="torch has windows from 2.15 on"),
    pytest.mark.parametrize("transport", ["shm", "tcp"]),
]


def run(body, transport, world=2):
    return run_ranks(body, world, environment={"QCCL_TRANSPORT": transport})


def wait_option(seconds):
    options = c10d.WaitSignalOptions()
    options.timeout = timedelta(seconds=seconds)
    return options


@pytest.mark.parametrize("world", [2, 4])
def test_every_rank_puts_into_every_window(transport, world):
    def body(rank):
        assert dist._supports_window()
        for count in (0, 1, 7, 100_001):
            tensor = torch.full((world, count + 3), -1.0)
            window = dist._new_window(tensor)
            value = torch.arange(float(count)) + 1000 * rank
            works = [window.put(value, to, rank * (count + 3) + 1, True) for to in range(world)]
            for source in range(world):
                window.wait_signal(source, False)
                sent = torch.arange(float(count)) + 1000 * source
                row = torch.cat([torch.tensor([-1.0]), sent, torch.full((2,), -1.0)])
                assert torch.equal(tensor[source], row)
            for work in works:
                work.wait()
            window.tensor_deregister()

    run(body, transport, world)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.complex64, torch.bool, torch.int64])
def test_elements_of_any_type_are_put(transport, dtype):
    def body(rank):
        tensor = torch.zeros(5, dtype=dtype)
        window = dist._new_window(tensor)
        window.put(torch.ones(6, dtype=dtype)[::2], 1 - rank, 1, False)  # not contiguous
        window.wait_signal(1 - rank, False)
        assert tensor.tolist() == torch.tensor([0, 1, 1, 1, 0], dtype=dtype).tolist()
        window.tensor_deregister()

    run(body, transport)


def test_puts_arrive_in_order_and_signals_are_counted(transport):
    def body(rank):
        tensor = torch.zeros(50_000)
        window = dist._new_window(tensor)
        peer = 1 - rank
        works = []
        for i in range(100):
            works.append(window.put(torch.full((50_000 if i % 9 == 0 else 3,), float(i)), peer, 0, True))
        works.append(window.signal(peer, True))
        for _ in range(101):
            window.wait_signal(peer, False)
        assert tensor[:3].tolist() == [99] * 3 and tensor[3].item() == 99
        for work in works:
            work.wait()
        with pytest.raises(dist.DistNetworkError, match=f"rank {peer} has sent 101 signals so far"):
            window.wait_signal(peer, False, wait_option(0.05))
        dist.barrier()
        window.signal(peer, False)
        window.wait_signal(peer, False)
        window.tensor_deregister()

    run(body, transport)


def test_a_signal_that_is_awaited_asynchronously_completes_its_future(transport):
    def body(rank):
        window = dist._new_window(torch.zeros(1))
        peer = 1 - rank
        early, late = window.wait_signal(peer, True), window.wait_signal(peer, True, wait_option(0.05))
        done = early.get_future().then(lambda _: "arrived")
        with pytest.raises(dist.DistNetworkError, match="wait_signal"):
            late.wait()
        assert not early.is_completed()
        dist.barrier()
        window.signal(peer, False)
        assert done.wait() == "arrived"
        assert early.is_completed() and early.is_success()
        window.tensor_deregister()

    run(body, transport)


def test_calls_that_are_wrong_are_refused_and_the_window_stays_usable(transport):
    def body(rank):
        window = dist._new_window()
        for call in (
            lambda: window.put(torch.ones(1), 0, 0, False),
            lambda: window.signal(0, False),
            lambda: window.wait_signal(0, False),
            lambda: window.map_remote_tensor(rank),
            lambda: window.get_attr(rank),
            lambda: window.tensor_deregister(),
        ):
            with pytest.raises(dist.DistBackendError, match="no tensor is registered"):
                call()
        with pytest.raises(ValueError, match="must be contiguous"):
            window.tensor_register(torch.zeros(4, 4).t())
        with pytest.raises(NotImplementedError, match="CPU memory"):
            window.tensor_register(torch.zeros(4, device="meta"))
        tensor = torch.zeros(4 + 2 * rank, dtype=torch.int32)
        window.tensor_register(tensor)
        with pytest.raises(dist.DistBackendError, match="deregister that one first"):
            window.tensor_register(tensor)
        own = torch.ones(3, dtype=torch.int32)
        for to, offset, count in ((0, 2, 3), (1, 4, 3), (1, -1, 3), (1, 2**62, 3)):
            room = 4 + 2 * to
            message = f"{count} elements from offset {offset} on exceed the window of rank {to}, which has {room}"
            with pytest.raises(ValueError, match=message):
                window.put(own, to, offset, False)
        with pytest.raises(ValueError, match="elements of type Float, the window of rank 1 of Int"):
            window.put(torch.ones(1), 1, 0, False)
        for call in (lambda to: window.put(own, to, 0, False), lambda to: window.signal(to, False), window.get_attr):
            for to in (-1, 2):
                with pytest.raises(ValueError, match=f"there is no rank {to} in a group of 2"):
                    call(to)
        with pytest.raises(NotImplementedError, match=f"rank {rank} can't map the memory of rank {1 - rank}"):
            window.map_remote_tensor(1 - rank)
        assert window.map_remote_tensor(rank).data_ptr() == tensor.data_ptr()
        assert window.get_attr(rank).access_type == c10d.WindowAccessType.UNIFIED
        assert window.get_attr(1 - rank).access_type == c10d.WindowAccessType.SEPARATE
        window.put(own, 1, 3, False)
        if rank == 1:
            window.wait_signal(0, False)
            window.wait_signal(1, False)
            assert tensor.tolist() == [0, 0, 0, 1, 1, 1]
        window.tensor_deregister()
        window.tensor_register(tensor)  # again
        window.tensor_deregister()

    run(body, transport)


def test_windows_are_dropped_in_any_order_while_others_put(transport):
    def body(rank):
        tensors = [torch.zeros(10_000) for _ in range(3)]
        windows = [dist._new_window(tensor) for tensor in tensors]
        for i, window in enumerate(windows):
            window.put(torch.full((10_000,), i + 1.0), 1 - rank, 0, False)
        for i, window in enumerate(windows):
            window.wait_signal(1 - rank, False)
            assert tensors[i].sum().item() == 10_000 * (i + 1)
        for i in (0, 1, 2) if rank == 0 else (2, 0, 1):
            windows[i] = None
            gc.collect()
        dist.barrier()
        left = dist._new_window(tensors[0])  # closed by the end of the group
        left.signal(1 - rank, False)
        left.wait_signal(1 - rank, False)

    run(body, transport)


def test_a_window_ends_with_its_group_and_the_default_group_goes_on(transport):
    def body(rank):
        group = dist.new_group([0, 2])
        if rank != 1:
            tensor = torch.zeros(1)
            window = dist._new_window(tensor, group)
            window.put(torch.tensor([5.0]), 1 - dist.get_rank(group), 0, False)
            window.wait_signal(1 - dist.get_rank(group), False)
            assert tensor.item() == 5
            dist.destroy_process_group(group)
            window.tensor_deregister()  # waits for the end, which the group has begun
            with pytest.raises(dist.DistBackendError, match="no tensor is registered"):
                window.signal(0, False)
        dist.barrier()

    run(body, transport, 3)


def test_a_killed_rank_ends_every_wait(transport, tmp_path):
    def body(rank):
        store = dist.FileStore(str(tmp_path / "store"), 3)
        dist.init_process_group("qccl", store=store, rank=rank, world_size=3, timeout=TIMEOUT)
        window = dist._new_window(torch.zeros(100))
        work = window.wait_signal((rank + 1) % 2, True)
        store.set(f"opened {rank}", "")
        if rank == 2:
            store.wait(["opened 0", "opened 1"])  # else the loss could end their opening
            os.kill(os.getpid(), signal.SIGKILL)
        with pytest.raises(dist.DistNetworkError, match="rank 2"):
            work.wait()
        with pytest.raises((dist.DistNetworkError, dist.DistBackendError)):
            window.put(torch.ones(100), 1 - rank, 0, False)
        with pytest.raises((dist.DistNetworkError, dist.DistBackendError)):
            window.tensor_deregister()

    values_of(run_processes(body, 3, environment={"QCCL_TRANSPORT": transport})[:2])


def test_waiting_and_closing_let_other_threads_run(transport):
    def body(rank):
        closing, talking = (dist._new_window(torch.zeros(1)) for _ in range(2))
        if rank == 0:

            def answer():
                talking.wait_signal(1, False)
                talking.signal(1, False)

            thread = threading.Thread(target=answer)
            thread.start()
            closing.tensor_deregister()  # waits for rank 1, which waits for the answer
            thread.join()
        else:
            with pytest.raises(dist.DistNetworkError, match="rank 0 has closed the window"):
                closing.wait_signal(0, False)  # so rank 0 waits in tensor_deregister()
            talking.signal(0, False)
            talking.wait_signal(0, False)
            closing.tensor_deregister()
        talking.tensor_deregister()

    run(body, transport)
