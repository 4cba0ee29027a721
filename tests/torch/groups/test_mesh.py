"""Meshes: process groups along named dimensions, and torch's DeviceMesh of the same groups."""

import pytest
import torch
import torch.distributed as dist
from ranks import needs_unsorted_groups, run_ranks
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import qccl


def members_of(group):
    gathered = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size(group))]
    dist.all_gather(gathered, torch.tensor([dist.get_rank()]), group=group)
    return [int(member) for member in gathered]


def test_groups_along_every_set_of_dimensions():
    def body(rank):
        mesh = qccl.mesh.Mesh({"pp": 2, "dp": 2, "tp": 2})
        assert 4 * mesh.coordinate("pp") + 2 * mesh.coordinate("dp") + mesh.coordinate("tp") == rank
        for along in ("tp", "dp", "pp", "dp-tp", "pp-tp", "pp-dp", "pp-dp-tp"):
            assert members_of(mesh.group(along)) == mesh.shape.group_of(rank, along)
            assert dist.get_backend(mesh.group(along)) == "qccl"
        assert mesh.group("tp-dp") is mesh.group("dp-tp")

    run_ranks(body, 8)


def test_shapes_are_megatrons():
    shape = qccl.mesh.ordered("tp-cp-ep-dp-pp", tp=2, pp=4, dp=2)
    assert shape.sizes == {"pp": 4, "dp": 2, "ep": 1, "cp": 1, "tp": 2} and shape.size == 16
    assert shape.groups("dp") == [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11], [12, 14], [13, 15]]
    assert shape.groups("pp") == [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]]
    inner = qccl.mesh.ordered("tp-cp-ep-pp-dp", tp=2, pp=4, dp=2)
    assert inner.groups("pp") == [[0, 2, 4, 6], [1, 3, 5, 7], [8, 10, 12, 14], [9, 11, 13, 15]]
    assert str(shape) == "pp=4 x dp=2 x ep=1 x cp=1 x tp=2"


def test_other_ranks_need_not_come():
    def body(rank):
        mesh = qccl.mesh.Mesh({"dp": 2, "tp": 2})
        if rank >= 2:  # only once the other ranks have finished
            dist.recv(torch.zeros(1), rank - 2)
        assert members_of(mesh.group("tp")) == ([0, 1] if rank < 2 else [2, 3])
        if rank < 2:
            dist.send(torch.zeros(1), rank + 2)

    run_ranks(body, 4)


@needs_unsorted_groups
def test_over_a_group_in_another_order():
    def body(rank):
        reversed_ranks = dist.new_group([3, 2, 1], sort_ranks=False)
        if rank == 0:
            return
        mesh = qccl.mesh.Mesh({"dp": 3}, reversed_ranks)
        assert mesh.coordinate("dp") == 3 - rank
        mesh.make_groups("dp")
        assert members_of(mesh.group("dp")) == [3, 2, 1]

    run_ranks(body, 4)


def test_device_mesh_has_the_same_groups():
    def body(rank):
        mesh = qccl.mesh.Mesh(qccl.mesh.ordered("tp-dp", tp=2, dp=2))
        torch_mesh = mesh.device_mesh()
        assert torch_mesh.mesh_dim_names == ("dp", "tp") and torch_mesh.mesh.tolist() == [[0, 1], [2, 3]]
        assert torch_mesh.get_group("tp") is mesh.group("tp")
        assert torch_mesh.get_coordinate() == (rank // 2, rank % 2)
        whole = torch.arange(16.0).reshape(4, 4)
        tensor = distribute_tensor(whole, torch_mesh, [Shard(0), Shard(1)])
        assert tensor.to_local().shape == (2, 2)
        assert torch.equal(tensor.redistribute(placements=[Replicate(), Replicate()]).to_local(), whole)
        line = qccl.mesh.Mesh({"dp": 4}).device_mesh()
        assert line["dp"].size() == 4

    run_ranks(body, 4)


def test_what_is_no_mesh_is_refused_with_what_there_is():
    def body(rank):
        with pytest.raises(ValueError, match="dp=2 x tp=2 is for 4 ranks, the group has 2"):
            qccl.mesh.Mesh({"dp": 2, "tp": 2})
        mesh = qccl.mesh.Mesh({"dp": 2})
        with pytest.raises(ValueError, match="there is no dimension 'tp' in dp=2"):
            mesh.group("dp-tp")
        with pytest.raises(ValueError, match="cp=2 is not in the order 'tp-dp'"):
            qccl.mesh.ordered("tp-dp", cp=2)

    run_ranks(body)
