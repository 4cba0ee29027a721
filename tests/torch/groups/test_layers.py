"""torch's layers over process groups: compiled functional collectives, device meshes, DTensor, DETAIL, stores."""

import threading
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks
from torch.distributed import _functional_collectives as functional

import qccl
from qccl._backend import create


def test_compiled_functional_collectives_have_the_results_of_the_others():
    def program(x, group):
        a = functional.all_reduce(x * 2, "sum", group)
        b = functional.all_gather_tensor(x, 0, group)
        c = functional.reduce_scatter_tensor(b, "sum", 0, group)
        d = functional.all_to_all_single(x, None, None, group)
        e = functional.all_reduce_coalesced([a, d], "max", group)
        f = functional.all_gather_into_tensor_coalesced([x, x + 1], group)
        return a, b, c, d, *e, *f

    def body(rank):
        x = torch.arange(4.0) + 10 * rank
        gathered = [0.0, 1, 2, 3, 10, 11, 12, 13]
        expected = [
            [20, 24, 28, 32],
            gathered,
            [2 * value for value in gathered[4 * rank :][:4]],
            [[0, 1, 10, 11], [2, 3, 12, 13]][rank],
            [20, 24, 28, 32],
            [2, 3, 12, 13],
            gathered,
            [value + 1 for value in gathered],
        ]
        compiled = torch.compile(program, backend="aot_eager", fullgraph=True)
        for called in (program, compiled, compiled):
            assert [result.tolist() for result in called(x, dist.group.WORLD)] == expected
        assert torch._C._distributed_c10d._get_work_registry_size() == 0

    run_ranks(body, deadline_seconds=180)


def test_functional_collectives_with_autograd_and_uneven_splits():
    def body(rank):
        x = torch.arange(3.0, requires_grad=True)
        splits = [1, 2] if rank == 0 else [2, 1]
        received = [1, 2] if rank == 0 else [2, 1]
        y = functional.all_to_all_single_autograd(x, received, splits, dist.group.WORLD)
        (y * (rank + 1)).sum().backward()
        assert x.grad.tolist() == ([1, 2, 2] if rank == 0 else [1, 1, 2])

    run_ranks(body)


def test_autograd_functions_of_distributed_nn():
    from torch.distributed.nn import functional as nn_functional

    def body(rank):
        x = torch.tensor([rank + 1.0], requires_grad=True)
        nn_functional.all_reduce(x).backward()
        assert x.grad.item() == 2
        x.grad = None
        torch.stack(nn_functional.all_gather(x)).sum().backward()
        assert x.grad.item() == 2
        outputs = nn_functional.all_to_all([torch.zeros(1), torch.zeros(1)], [x, x * 2])
        assert [output.item() for output in outputs] == [1.0 * (rank + 1), 2.0 * (rank + 1)]
        x.grad = None
        nn_functional.broadcast(x, 1).backward()
        assert x.grad.item() == (2 if rank == 1 else 0)
        gathered = nn_functional.gather(x, 0)
        assert rank != 0 or [part.item() for part in gathered] == [1, 2]

    run_ranks(body)


def test_device_mesh_and_dtensor():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor

    def body(rank):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "columns"))
        whole = torch.arange(48.0).view(8, 6)
        placed = distribute_tensor(whole, mesh, [Shard(0), Shard(1)])
        assert placed.to_local().shape == (4, 3) and torch.equal(placed.full_tensor(), whole)
        for target in ([Shard(1), Shard(0)], [Replicate(), Shard(1)], [Shard(0), Replicate()]):
            assert torch.equal(placed.redistribute(mesh, target).full_tensor(), whole)
        uneven = distribute_tensor(torch.arange(5.0), mesh["rows"], [Shard(0)])
        assert torch.equal(uneven.full_tensor(), torch.arange(5.0))
        product = placed @ distribute_tensor(torch.ones(6, 5), mesh, [Replicate(), Shard(0)])
        assert product.placements[1] == Partial() and torch.equal(product.full_tensor(), whole @ torch.ones(6, 5))
        ones = torch.ones(2)
        dist.all_reduce(ones, group=mesh.get_group("columns"))
        assert ones.tolist() == [2, 2]

    run_ranks(body, 4)


def test_every_kind_of_call_under_torchs_detail_mode():
    def body(rank):
        tensor = torch.arange(4.0) + 10 * rank
        dist.all_reduce(tensor)
        assert tensor.tolist() == [10, 12, 14, 16]
        own = tensor + 100 * rank
        reduced = own.clone()
        dist.reduce(reduced, 0)
        assert rank != 0 or reduced.tolist() == [120, 124, 128, 132]
        gathered = [torch.zeros(4), torch.zeros(4)]
        dist.gather(own, gathered if rank == 0 else None, 0)
        assert rank != 0 or [part.tolist() for part in gathered] == [[10, 12, 14, 16], [110, 112, 114, 116]]
        scattered = torch.zeros(4)
        dist.scatter(scattered, gathered if rank == 0 else None, 0)
        assert torch.equal(scattered, own)
        exchanged = torch.zeros(4)
        dist.all_to_all_single(exchanged, own)
        assert exchanged.tolist() == ([10, 12, 110, 112] if rank == 0 else [14, 16, 114, 116])
        sparse = torch.sparse_coo_tensor([[rank]], [1.0], (2,))
        dist.all_reduce(sparse)
        assert sparse.to_dense().tolist() == [1, 1]
        received = torch.zeros(4)
        if rank == 0:
            dist.send(own, 1, tag=5)
        else:
            assert dist.recv(received, tag=5) == 0
            assert received.tolist() == [10, 12, 14, 16]
        peer = 1 - rank
        exchange = [dist.P2POp(dist.isend, own, peer), dist.P2POp(dist.irecv, received, peer)]
        for work in dist.batch_isend_irecv(exchange):
            work.wait()
        assert torch.equal(received, tensor + 100 * peer)
        dist.group.WORLD.monitored_barrier(timedelta(seconds=10))
        with pytest.raises(RuntimeError, match="Detected mismatch between collectives on ranks"):
            dist.all_reduce(torch.ones(3 + rank))

    run_ranks(body, environment={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})


def test_groups_split_off():
    def body(rank):
        world = dist.group.WORLD
        half = world.split_group([0, 2] if rank % 2 == 0 else [1, 3])
        tensor = torch.tensor([float(rank)])
        half._get_backend(torch.device("cpu")).allreduce([tensor]).wait()
        assert tensor.item() == (2 if rank % 2 == 0 else 4)
        assert half.size() == 2 and half.rank() == rank // 2

    run_ranks(body, 4)


def test_one_process_with_a_hash_store_and_a_thread_for_each_rank():
    def body(_rank):
        store = dist.HashStore()
        sums, failures = {}, []

        def use(rank):
            try:
                options = torch._C._distributed_c10d._DistributedBackendOptions()
                options.store, options.group_rank, options.group_size = store, rank, 3
                options.timeout, options.group_id = timedelta(seconds=20), "threads"
                options.global_ranks_in_group = [0, 1, 2]
                backend = create(options, None)
                for count in (1, 100_000):
                    tensor = torch.full((count,), float(rank))
                    backend.allreduce([tensor]).wait()
                    sums.setdefault(rank, []).append(tensor[-1].item())
                backend.shutdown()
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=use, args=(rank,)) for rank in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures, failures
        assert sums == {rank: [3, 3] for rank in range(3)}

    run_ranks(body, 1)


def test_two_devices_in_one_name(tmp_path):
    def body(rank):
        dist.destroy_process_group()
        store = dist.FileStore(str(tmp_path / "store"), 2)
        dist.init_process_group("cpu:qccl,cuda:gloo", store=store, rank=rank, world_size=2)
        tensor = torch.tensor([rank + 1.0])
        dist.all_reduce(tensor)
        assert tensor.item() == 3
        assert dist.group.WORLD._get_backend(torch.device("cpu")).name() == "qccl"
        objects = [None, None]
        dist.all_gather_object(objects, rank)
        assert objects == [0, 1]

    run_ranks(body)


def test_a_tcp_store_of_the_programs_own():
    def body(rank):
        assert qccl.describe()
        port = torch.zeros(1, dtype=torch.int64)
        server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) if rank == 0 else None
        if server:
            port[0] = server.port
        dist.broadcast(port, 0)
        dist.destroy_process_group()
        store = server or dist.TCPStore("127.0.0.1", int(port), is_master=False)
        dist.init_process_group("qccl", store=store, rank=rank, world_size=2)
        tensor = torch.ones(3)
        dist.all_reduce(tensor)
        assert tensor.tolist() == [2, 2, 2]
        dist.barrier()

    run_ranks(body)


def test_profiler_shows_one_event_for_each_operation_with_its_shapes():
    def body(rank):
        with torch.profiler.profile(record_shapes=True) as profile:
            dist.all_reduce(torch.ones(3, 4))
            dist.broadcast(torch.ones(5), 0, async_op=True).wait()
            dist.barrier()
        events = {event.name: event for event in profile.events() if event.name.startswith("qccl:")}
        assert sorted(events) == ["qccl:all_reduce", "qccl:barrier", "qccl:broadcast"]
        assert events["qccl:all_reduce"].input_shapes == [[3, 4]] and events["qccl:all_reduce"].count == 1
        assert events["qccl:broadcast"].is_async

    run_ranks(body)
