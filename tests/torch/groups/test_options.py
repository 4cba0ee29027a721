"""qccl.Options wherever torch takes the options of a backend: they are c10d's own kind, and every way keeps them."""

import copy
import inspect
import pickle
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks
from torch._C._distributed_c10d import Backend
from torch.distributed.device_mesh import init_device_mesh

import qccl

COUNT = 1 << 18
BYTES = 4 * COUNT
OVER_TCP = {"QCCL_TRANSPORT": "tcp"}
FOUR_BITS = "int:bits=4"

needs_backend_override = pytest.mark.skipif(
    "backend_override" not in inspect.signature(init_device_mesh).parameters,
    reason="this release's init_device_mesh() takes no options",
)


def share_of_bytes(reduce, group=None):
    """The bytes that a rank of two sends for a sum, as a share of those that it would send uncompressed."""
    before = qccl.traffic(group).bytes_sent
    reduce()
    return (qccl.traffic(group).bytes_sent - before) / BYTES


def all_reduce(group=None):
    return share_of_bytes(lambda: dist.all_reduce(torch.ones(COUNT), group=group), group)


def is_compressed(share):
    return 1 / 8 < share < 1 / 6  # 4 of 32 bits, scales and headers


def is_plain(share):
    return share == pytest.approx(1, rel=0.05)


def test_options_are_of_c10ds_own_kind_and_copies_have_their_settings():
    options = qccl.Options("int:bits=4", timedelta(seconds=5), True, "cast:type=bf16")
    assert isinstance(options, Backend.Options) and options.backend == "qccl"
    assert options._timeout == options.timeout == timedelta(seconds=5)
    copies = [copy.copy(options), copy.deepcopy(options), pickle.loads(pickle.dumps(options))]
    assert {repr(each) for each in copies} == {repr(options)}
    copies[0].compression, copies[0].timeout = None, None
    assert options.compression == "int:bits=4,block=128" and options.timeout is not None
    assert copies[0].compression is None and copies[0].timeout is None
    assert qccl.Options().timeout is None


def test_a_wrong_setting_is_refused_by_its_attribute_too():
    options = qccl.Options()
    with pytest.raises(ValueError, match="minmax"):
        options.compression = "minmaxx"
    with pytest.raises(TypeError, match="timeout must be a datetime.timedelta, got 5"):
        options.timeout = 5


def test_groups_have_the_options_that_init_process_group_and_new_group_are_given():
    def body(rank):
        assert is_compressed(all_reduce())
        plain = dist.new_group()
        assert is_plain(all_reduce(plain))
        own = dist.new_group(pg_options=qccl.Options(FOUR_BITS, timeout=timedelta(seconds=7)))
        backend = own._get_backend(torch.device("cpu"))
        assert is_compressed(all_reduce(own)) and isinstance(backend.options, qccl.Options)
        assert backend.options.timeout == timedelta(seconds=7)

    run_ranks(body, pg_options=qccl.Options(compression=FOUR_BITS), environment=OVER_TCP)


@needs_backend_override
def test_dimensions_of_a_mesh_have_backends_and_options_of_their_own():
    def body(rank):
        override = {"replicate": ("qccl", qccl.Options(compression=FOUR_BITS)), "shard": "gloo"}
        mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("replicate", "shard"), backend_override=override)
        assert is_compressed(all_reduce(mesh.get_group("replicate")))
        assert dist.get_backend(mesh.get_group("shard")) == "gloo"

        options = qccl.Options(compression=FOUR_BITS, timeout=timedelta(seconds=9))
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",), backend_override={"dp": options})
        assert is_compressed(all_reduce(mesh.get_group()))
        assert mesh.get_group()._get_backend(torch.device("cpu")).options.timeout == timedelta(seconds=9)
        if hasattr(mesh, "_unflatten"):
            inner = mesh._unflatten(0, (2, 1), ("a", "b"), backend_override={"a": options})
            assert is_compressed(all_reduce(inner.get_group("a")))

    run_ranks(body, environment=OVER_TCP)


@needs_backend_override
def test_fsdp_and_functional_collectives_compress_as_their_mesh_says():
    def body(rank):
        from torch.distributed._functional_collectives import all_reduce as functional
        from torch.distributed._functional_collectives import wait_tensor
        from torch.distributed.fsdp import fully_shard

        override = {"dp": qccl.Options(compression=FOUR_BITS)}
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",), backend_override=override)
        group = mesh.get_group()
        share = share_of_bytes(lambda: wait_tensor(functional(torch.ones(COUNT), "sum", (mesh, 0))), group)
        assert is_compressed(share)

        model = torch.nn.Linear(512, 512, bias=False)  # COUNT elements
        fully_shard(model, mesh=mesh)
        loss = model(torch.randn(4, 512)).sum()
        share = share_of_bytes(loss.backward, group)
        assert 1 / 16 <= share < 1 / 2 + 1 / 8  # half of the gradients with 4 bits, and the other rank's parameters

    run_ranks(body, environment=OVER_TCP)


def test_parts_of_a_group_inherit_its_options_or_have_their_own():
    def body(rank):
        default = dist.group.WORLD
        backend = default._get_backend(torch.device("cpu"))
        for options in (None, qccl.Options(compression=FOUR_BITS)):
            part = default.split_group([0, 1], timeout=timedelta(seconds=8), opts=options, group_name=f"part {options}")
            assert is_compressed(all_reduce(part))
        plain = default.split_group([0, 1], opts=qccl.Options(compression="none"), group_name="plain")
        assert is_plain(all_reduce(plain))
        qccl.set_compression(None, "none")
        assert backend.options.compression == "none"
        part = default.split_group([0, 1], opts=copy.deepcopy(backend.options), group_name="copied")
        assert is_plain(all_reduce(part))

    run_ranks(body, pg_options=qccl.Options(compression=FOUR_BITS), environment=OVER_TCP)


def test_options_of_another_backend_choose_nothing_and_other_objects_are_refused():
    def body(rank):
        group = dist.new_group(pg_options=Backend.Options("gloo", timedelta(seconds=3)))
        assert is_plain(all_reduce(group))
        assert group._get_backend(torch.device("cpu")).options.timeout != timedelta(seconds=3)
        timed = dist.new_group(pg_options=Backend.Options("qccl", timedelta(seconds=3)))
        assert timed._get_backend(torch.device("cpu")).options.timeout == timedelta(seconds=3)
        with pytest.raises(TypeError, match="qccl.Options, got dict"):
            dist.new_group(pg_options={"compression": FOUR_BITS})

    run_ranks(body, environment=OVER_TCP)
