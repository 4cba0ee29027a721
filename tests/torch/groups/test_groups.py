"""Process groups: subgroups, worlds that come and go in one process, options, traffic."""

import re
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from ranks import needs_unsorted_groups, run_ranks

import qccl


def summed(group=None):
    tensor = torch.tensor([float(dist.get_rank())])
    dist.all_reduce(tensor, group=group)
    return tensor.item()


def test_subgroups_with_other_orders_share_the_world():
    def body(rank):
        ends = dist.new_group([0, 3])
        middle = dist.new_group([1, 2])
        if rank in (0, 3):
            assert summed(ends) == 3 and dist.get_rank(ends) == (0 if rank == 0 else 1)
        else:
            assert summed(middle) == 3
        everyone = dist.new_group()
        assert summed(everyone) == 6
        gathered = torch.zeros(2)
        if rank in (0, 3):
            dist.all_gather_into_tensor(gathered, torch.tensor([float(rank)]), group=ends)
            assert gathered.tolist() == [0, 3]
            tensor = torch.tensor([float(rank)])
            dist.broadcast(tensor, 3, group=ends)
            assert tensor.item() == 3

    run_ranks(body, 4)


def test_a_group_name_can_come_back():
    def body(rank):
        for _ in range(3):
            group = dist.new_group([0, 1], use_local_synchronization=True)
            assert summed(group) == 1
            dist.destroy_process_group(group)

    run_ranks(body)


def test_groups_work_side_by_side():
    def body(rank):
        groups = [dist.new_group() for _ in range(4)]
        tensors = [torch.full((50_000,), float(rank + place)) for place in range(4)]
        works = [
            dist.all_reduce(tensor, group=group, async_op=True) for tensor, group in zip(tensors, groups, strict=True)
        ]
        for work in reversed(works):
            work.wait()
        assert [tensor[0].item() for tensor in tensors] == [1, 3, 5, 7]

    run_ranks(body)


def test_a_thousand_at_once():
    def body(rank):
        groups = [dist.new_group() for _ in range(1000)]
        assert all(summed(group) == 6 for group in groups)

    run_ranks(body, 4)


def test_world_can_be_destroyed_and_made_again(tmp_path):
    def body(rank):
        for round_number in range(3):
            if round_number:
                store = dist.FileStore(str(tmp_path / "store"), 2)
                dist.init_process_group("qccl", store=store, rank=rank, world_size=2)
            assert summed() == 1
            assert summed(dist.new_group()) == 1
            if round_number < 2:
                dist.destroy_process_group()

    run_ranks(body)


def test_beside_gloo_for_some_ranks_only(tmp_path):
    def body(rank):
        dist.destroy_process_group()
        store = dist.FileStore(str(tmp_path / "store"), 3)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=3)
        pair, other = dist.new_group([0, 1], backend="qccl"), dist.new_group([1, 2], backend="qccl")
        if rank in (0, 1):
            assert summed(pair) == 1
        if rank in (1, 2):
            assert summed(other) == 3
        dist.barrier()  # gloo's other ranks may still be connecting

    run_ranks(body, 3)


def test_device_prefixed_backend_name(tmp_path):
    def body(rank):
        dist.destroy_process_group()
        store = dist.FileStore(str(tmp_path / "store"), 2)
        dist.init_process_group("cpu:qccl", store=store, rank=rank, world_size=2)
        assert summed() == 1

    run_ranks(body)


def test_compression_by_options_call_and_environment():
    def bytes_sent(group=None):
        tensor = torch.rand(1 << 18)
        before = qccl.traffic(group).payload_bytes_sent
        dist.all_reduce(tensor, group=group)
        dist.barrier()
        return qccl.traffic(group).payload_bytes_sent - before

    def body(rank):
        plain, compressed = 1 << 20, (1 << 20) / 8
        assert bytes_sent() == pytest.approx(compressed, rel=0.05), "options of the default group"
        other = dist.new_group()
        assert bytes_sent(other) == pytest.approx(plain, rel=0.05), "another group does not inherit them"
        qccl.set_compression(other, "minmax:bits=8")
        assert bytes_sent(other) == pytest.approx(2 * compressed, rel=0.05)
        own = dist.new_group(pg_options=qccl.Options(compression="minmax:bits=2"))
        assert bytes_sent(own) == pytest.approx(compressed / 2, rel=0.1)
        qccl.set_compression(None, "none")
        assert bytes_sent() == pytest.approx(plain, rel=0.05)

    options = qccl.Options(compression="minmax:bits=4")
    run_ranks(body, pg_options=options, environment={"QCCL_TRANSPORT": "tcp"})

    def from_environment(rank):
        assert bytes_sent() == pytest.approx((1 << 20) / 4, rel=0.05)

    environment = {"QCCL_TRANSPORT": "tcp", "QCCL_COMPRESSION": "minmax:bits=8", "QCCL_COMPRESSION_CALLERS": "*"}
    run_ranks(from_environment, environment=environment)


def test_traffic_without_a_group_is_that_of_all_groups_of_the_process(tmp_path):
    def body(rank):
        with pytest.raises(ValueError, match="no open process group of the qccl backend"):
            qccl.traffic()
        groups = [dist.new_group(backend="qccl")]
        before = qccl.traffic().bytes_sent
        assert before == qccl.traffic(groups[0]).bytes_sent
        dist.all_reduce(torch.ones(1 << 18), group=groups[0])
        assert qccl.traffic().bytes_sent - before > 1 << 20

        own = dist.ProcessGroup(dist.FileStore(str(tmp_path / "store"), 2), rank, 2)  # that shares no connections
        spec = torch._C._distributed_c10d._DistributedBackendOptions()
        spec.store, spec.group_rank, spec.group_size, spec.group_id = own.get_group_store(), rank, 2, "own"
        spec.timeout, spec.global_ranks_in_group = timedelta(seconds=20), [0, 1]
        backend = qccl._backend.create(spec, None)
        own._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)
        own._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.CUSTOM, backend)
        groups.append(own)
        before = qccl.traffic().bytes_sent
        own.allreduce([torch.ones(1 << 18)]).wait()
        own.barrier().wait()
        assert qccl.traffic().bytes_sent - before > 1 << 20
        assert qccl.traffic().bytes_sent == sum(qccl.traffic(group).bytes_sent for group in groups)

    run_ranks(body, backend="gloo", environment={"QCCL_TRANSPORT": "tcp"})


def test_compressed_results_are_the_same_bits_on_every_rank_and_small_tensors_are_exact():
    def body(rank):
        torch.manual_seed(rank)
        large, small = torch.randn(200_001), torch.randn(1000)
        parts = [torch.empty_like(small) for _ in range(3)]
        dist.all_gather(parts, small)
        dist.all_reduce(large)
        dist.all_reduce(small)
        torch.testing.assert_close(small, sum(parts), rtol=1e-6, atol=1e-6)
        return large.numpy().tobytes()

    assert len(set(run_ranks(body, 3, pg_options=qccl.Options(compression="minmax:bits=4")))) == 1


def test_bad_options_are_refused_with_what_is_allowed():
    with pytest.raises(ValueError, match="minmax"):
        qccl.Options(compression="minmaxx:bits=4")
    with pytest.raises(ValueError, match="bits"):
        qccl.Options(compression="minmax:bits=77")
    with pytest.raises(TypeError, match="timeout must be a datetime.timedelta, got 5"):
        qccl.Options(timeout=5)
    assert qccl.Options(compression="minmax:bits=4").compression == "minmax:bits=4,bucket_size=1024"

    def body(rank):
        with pytest.raises(TypeError, match="qccl.Options"):
            dist.new_group(pg_options=object())

    run_ranks(body, 1)


def test_backend_describes_itself():
    def body(rank):
        assert dist.get_backend() == "qccl"
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        assert backend.name() == "qccl"
        assert f"rank {rank} of 2" in qccl.describe()
        with pytest.raises(ValueError, match="gloo"):
            qccl.traffic(dist.new_group(backend="gloo"))
        dist.barrier()  # gloo's other ranks may still be connecting

    run_ranks(body)


@needs_unsorted_groups
def test_a_subgroup_is_described_by_its_own_ranks():
    def body(rank):
        pair, alone, turned = dist.new_group([2, 0], sort_ranks=False), dist.new_group([1]), dist.new_group([2, 1, 0])
        world = f"rank {rank} of 3 from init() options"
        everyone = ", ".join(str(peer) for peer in range(3) if peer != rank)
        assert qccl.describe().endswith(f"{world}, tcp to ranks {everyone}")
        assert qccl.describe(turned) == qccl.describe()
        if rank == 1:
            assert f"rank 0 of 1 in group '{alone.group_name}" in qccl.describe(alone)
            assert qccl.describe(alone).endswith(f"({world})")
        else:
            assert f"rank {1 - rank // 2} of 2 in group '{pair.group_name}" in qccl.describe(pair)
            assert qccl.describe(pair).endswith(f"({world}), tcp to rank {2 - rank}")

    run_ranks(body, 3, environment={"QCCL_TRANSPORT": "tcp"})


def test_calls_for_a_group_without_this_rank_say_so():
    def body(rank):
        group = dist.new_group([0])
        if rank == 0:
            return
        for call in (
            lambda: qccl.set_compression(group, "minmax"),
            lambda: qccl.all_reduce(torch.ones(2), group=group),
            lambda: qccl.describe(group),
            lambda: qccl.empty(3, group=group),
            lambda: qccl.traffic(group),
            lambda: qccl.trace(group),
        ):
            with pytest.raises(ValueError, match="rank 1 is not in this process group"):
                call()

    run_ranks(body)


def test_every_call_is_checked_under_torchs_detail_mode():
    def body(rank):
        assert summed() == 1
        assert summed(dist.new_group()) == 1
        assert qccl.traffic().header_bytes_sent >= 0

    run_ranks(body, environment={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})


def test_policy_chooses_by_name_size_dimensions_type_and_step():
    policy = qccl.Policy("warmup=2; name=*.head minmax:bits=8; minmax:bits=4 @10 minmax:bits=2")
    large = torch.zeros(200, 200)
    assert policy.choose("h.0", large, 1) == policy.choose("bias", large.flatten(), 5) == "none"
    assert policy.choose("h.0", large.int(), 5) == policy.choose("h.0", torch.zeros(10, 10), 5) == "none"
    assert policy.choose("h.0", large.bfloat16(), 5) == "minmax:bits=4,bucket_size=1024"
    assert policy.choose("h.0", large, 10) == "minmax:bits=2,bucket_size=1024"
    assert policy.choose("h.head", large, 10) == "minmax:bits=8,bucket_size=1024"
    assert repr(policy) == (
        "qccl.Policy('warmup=2; name=*.head minmax:bits=8,bucket_size=1024; "
        "minmax:bits=4,bucket_size=1024 @10 minmax:bits=2,bucket_size=1024')"
    )
    with pytest.raises(ValueError, match="zip.*@STEP SPEC"):
        qccl.Policy("zip")


def test_members_that_wait_under_different_names_say_both():
    """Names of locally synchronised groups count the groups that a process has made."""

    def body(rank):
        if rank == 0:
            dist.new_group([0], use_local_synchronization=True)
        with pytest.raises(dist.DistNetworkError) as failed:
            dist.new_group([0, 1], use_local_synchronization=True)
        return str(failed.value)

    (own, other) = run_ranks(body, timeout=timedelta(seconds=4))
    names = [re.search(r"group '(\w+#\d+)'", text)[1] for text in (own, other)]
    assert names[0] != names[1]
    assert f"rank 1 did not make this group but group '{names[1]}'" in own
    assert f"rank 0 did not make this group but group '{names[0]}'" in other
    assert "call new_group() equally often" in own
