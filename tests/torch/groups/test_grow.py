"""Jobs that grow: qccl.grow(), qccl.join(), qccl.door()."""

import os
import signal
import socket
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from ranks import TIMEOUT, run_processes, values_of
from torch.nn.parallel import DistributedDataParallel

import qccl

LOST = (dist.DistNetworkError, dist.DistBackendError)
OPEN = {"QCCL_OPEN": "on"}


def begin(rank, members, folder, **options):
    """A member of an open job, whose door is in the folder's store."""
    store = dist.FileStore(str(folder / "store"), members)
    pg_options = qccl.Options(**options)
    dist.init_process_group("qccl", store=store, rank=rank, world_size=members, timeout=TIMEOUT, pg_options=pg_options)
    dist.FileStore(str(folder / "doors"), -1).set(f"{rank}", qccl.door())


def doors(members, folder):
    store = dist.FileStore(str(folder / "doors"), -1)
    store.set_timeout(TIMEOUT)
    return ",".join(store.get(f"{rank}").decode() for rank in range(members))


def sum_of(group=None):
    tensor = torch.full((1000,), float(dist.get_rank(group) + 1))
    dist.all_reduce(tensor, group=group)
    return tensor[0].item()


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_newcomers_join_the_default_group_and_make_groups_with_its_ranks(transport, tmp_path):
    def body(rank):
        if rank < 2:
            begin(rank, 2, tmp_path, compression="minmax:bits=8")
            assert sum_of() == 3
            group = qccl.grow(at_least=2)
        else:
            group = qccl.join(doors(2, tmp_path), timeout=TIMEOUT)
        assert group is dist.group.WORLD and dist.get_backend() == "qccl" and dist.get_world_size() == 4
        assert dist.get_rank() == rank if rank < 2 else dist.get_rank() in (2, 3)
        assert sum_of() == 10
        large = torch.full((100_000,), 0.5)
        before = qccl.traffic().payload_bytes_sent
        dist.all_reduce(large)
        assert qccl.traffic().payload_bytes_sent - before < large.nbytes, "the newcomers have the compression as well"
        pair = dist.new_group([1, 3])
        if dist.get_rank() in (1, 3):
            assert sum_of(pair) == 3
        gathered = [None] * 4
        dist.all_gather_object(gathered, dist.get_rank())
        dist.barrier()
        dist.destroy_process_group()
        return gathered

    assert values_of(run_processes(body, 4, environment=OPEN | {"QCCL_TRANSPORT": transport})) == [[0, 1, 2, 3]] * 4


def test_the_environments_compression_is_for_gradients_with_newcomers_too(tmp_path):
    def body(rank):
        if rank < 2:
            begin(rank, 2, tmp_path)
            qccl.grow(at_least=1)
        else:
            qccl.join(doors(2, tmp_path), timeout=TIMEOUT)
        values = torch.linspace(0, 1, 100_000)
        dist.all_reduce(values)
        assert torch.equal(values, 3 * torch.linspace(0, 1, 100_000)), "no gradients"
        model = DistributedDataParallel(torch.nn.Linear(300, 300, bias=False))
        before = qccl.traffic().payload_bytes_sent
        model(torch.randn(4, 300)).sum().backward()
        return (qccl.traffic().payload_bytes_sent - before) / (300 * 300 * 4)

    sent = values_of(run_processes(body, 3, environment=OPEN | {"QCCL_COMPRESSION": "int:bits=4"}))
    assert all(0 < each < 0.5 for each in sent), "uncompressed it is 4/3"


def test_a_replacement_trains_on_with_the_survivors_of_a_kill(tmp_path):
    def body(rank):
        torch.manual_seed(rank)
        model = torch.nn.Linear(20, 10)
        if rank < 3:
            begin(rank, 3, tmp_path)
            if rank == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            with pytest.raises(LOST):
                while True:
                    dist.all_reduce(torch.ones(100_000))
            qccl.shrink()
            qccl.grow(at_least=1)
        else:
            qccl.join(doors(3, tmp_path), timeout=TIMEOUT)
        assert dist.get_world_size() == 3
        parallel = DistributedDataParallel(model)  # broadcasts rank 0's
        optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
        for step in range(5):
            optimizer.zero_grad()
            parallel(torch.full((4, 20), float(dist.get_rank() + step))).sum().backward()
            optimizer.step()
        dist.barrier()
        dist.destroy_process_group()
        return [parameter.tolist() for parameter in model.parameters()]

    outcomes = run_processes(body, 4, environment=OPEN)
    models = values_of(outcomes[1:])
    assert models[0] == models[1] == models[2]


@pytest.mark.parametrize("backend", ["qccl", "cpu:qccl,cuda:gloo"])
def test_a_newcomer_finds_the_members_in_the_store_that_they_were_given(backend, tmp_path):
    def body(rank):
        if rank < 2:
            store = dist.FileStore(str(tmp_path / "store"), 2)
            dist.init_process_group(backend, store=store, rank=rank, world_size=2, timeout=TIMEOUT)
            qccl.grow(at_least=1)
        else:
            qccl.join(store=dist.FileStore(str(tmp_path / "store"), -1), backend=backend, timeout=TIMEOUT)
        assert sum_of() == 6
        dist.barrier()
        dist.destroy_process_group()

    values_of(run_processes(body, 3, environment=OPEN | {"QCCL_KEY": "0123456789abcdef"}))


@pytest.mark.parametrize("agent", ["True", "False"])
def test_a_newcomer_finds_the_members_by_the_variables_that_they_have(agent):
    def body(rank):
        if rank < 2:
            os.environ["RANK"] = str(rank)
            dist.init_process_group("qccl", timeout=TIMEOUT)
            qccl.grow(at_least=1)
        else:
            os.environ["QCCL_JOIN"] = "store"
            qccl.join(timeout=TIMEOUT)
        assert sum_of() == 6
        dist.barrier()
        dist.destroy_process_group()

    agents_store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with socket.socket() as held:  # it has the port until rank 0 listens there as well
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        port = agents_store.port if agent == "True" else held.getsockname()[1]
        variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
        variables |= {"TORCHELASTIC_USE_AGENT_STORE": agent, "TORCHELASTIC_RESTART_COUNT": "0"}
        values_of(run_processes(body, 3, environment=OPEN | variables))


def test_without_newcomers_nothing_changes(tmp_path):
    def body(rank):
        begin(rank, 2, tmp_path)
        group = dist.group.WORLD
        assert qccl.grow() is group and sum_of() == 3
        with pytest.raises(dist.DistNetworkError, match="0 of 1 newcomers"):
            qccl.grow(at_least=1, timeout=timedelta(milliseconds=100))
        assert qccl.grow() is group and sum_of() == 3
        dist.barrier()
        dist.destroy_process_group()

    values_of(run_processes(body, 2, environment=OPEN))


def test_wrong_arguments_and_closed_jobs_are_refused(tmp_path):
    def body(rank):
        begin(rank, 2, tmp_path)
        assert qccl.door() == ""
        with pytest.raises(dist.DistBackendError, match="no member is open"):
            qccl.grow()
        with pytest.raises(ValueError, match="at_least"):
            qccl.grow(at_least=-1)
        with pytest.raises(ValueError, match="at_least"):
            qccl.grow(at_least=2, at_most=1)
        dist.barrier()
        dist.destroy_process_group()
        with pytest.raises(ValueError, match="QCCL_JOIN"):
            qccl.join()
        with pytest.raises(ValueError, match="not both"):
            qccl.join("127.0.0.1:1", store=dist.HashStore())
        with pytest.raises(ValueError, match="HOST:PORT"):
            qccl.join("somewhere")
        with pytest.raises(dist.DistNetworkError, match="no job took this process in"):
            qccl.join("127.0.0.1:1", timeout=timedelta(milliseconds=100))

    values_of(run_processes(body, 2))
