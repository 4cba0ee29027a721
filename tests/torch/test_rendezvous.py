"""Agreement on a job's name over stores that earlier starts have used."""

import threading
from datetime import timedelta

import pytest
import torch.distributed as dist
from qccl._rendezvous import agree_on_job


def agree(store, ranks, world, timeout=timedelta(seconds=20)):
    """What every rank comes back with, each in a thread of its own."""
    results = {}

    def one(rank):
        try:
            # A TCP client serves one thread at a time, and one that waits would keep the others from answering it.
            own = store.clone() if isinstance(store, dist.TCPStore) else store
            results[rank] = agree_on_job(own, rank, world, timeout)
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=one, args=(rank,)) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results[rank] for rank in ranks]


@pytest.fixture(params=["hash", "file", "tcp"])
def store(request, tmp_path):
    if request.param == "hash":
        return dist.HashStore()
    if request.param == "file":
        return dist.FileStore(str(tmp_path / "store"), 3)
    return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def test_ranks_agree_and_a_second_start_gets_another_name(store):
    first, second = agree(store, range(3), 3), agree(store, range(3), 3)
    assert len(set(first)) == len(set(second)) == 1
    assert first[0] != second[0]


def test_world_of_one_needs_no_other(store):
    assert agree(store, [0], 1)[0]


def test_keys_of_a_start_that_died_halfway_do_not_mislead():
    store = dist.HashStore()
    store.set("qccl/ticket/1", "left-by-a-dead-rank")
    short = timedelta(seconds=0.5)
    failed = agree(store, [0, 2], 3, short)
    assert isinstance(failed[0], dist.DistNetworkError) and "rank 1 of 3" in str(failed[0])
    again = agree(store, range(3), 3)
    assert len(set(again)) == 1 and isinstance(again[0], str)


def test_missing_rank_zero_is_named():
    (error,) = agree(dist.HashStore(), [1], 2, timedelta(seconds=0.3))
    assert isinstance(error, dist.DistNetworkError) and "rank 0" in str(error)
