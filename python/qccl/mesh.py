"""Process groups along the named dimensions of a mesh: pipeline stages, data-parallel copies, tensor-parallel parts.

    mesh = qccl.mesh.Mesh({"pp": 2, "dp": 4, "tp": 2})      # ranks that follow each other differ in tp
    dist.all_reduce(gradient, group=mesh.group("dp"))       # the ranks that differ from this one in dp alone
    dist.barrier(mesh.group("dp-tp"))                       # in dp and tp
    fsdp_mesh = mesh.device_mesh()["dp"]                    # torch's DeviceMesh, of the same groups
"""

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from ._C import MeshShape

__all__ = ["Mesh", "MeshShape", "ordered"]


def ordered(order: str, **sizes: int) -> MeshShape:
    """The shape that Megatron-LM writes as an order, from the fastest dimension to the slowest.

    ordered("tp-cp-ep-dp-pp", tp=2, dp=4, pp=2) is {"pp": 2, "dp": 4, "ep": 1, "cp": 1, "tp": 2}. A dimension without a
    size has size 1; a dimension of another size must be in the order.

    A MeshShape knows without any communication which ranks form groups. `shape.groups("tp-dp")` lists all groups along
    these dimensions, `shape.group_of(rank, "tp-dp")` is the group of a rank, and `shape.coordinate(rank, "pp")` its
    coordinate. `shape.sizes` maps names to sizes, `shape.size` is the number of ranks. Names are joined by "-" in any
    order. For an unknown dimension, ValueError lists the known ones.
    """
    return MeshShape.ordered(order, sizes)


class Mesh:
    """A shape over the ranks of a process group (None: the default group), and groups of backend qccl along it.

    `shape` is a MeshShape, or sizes by name from the slowest dimension to the fastest. ValueError unless it has as many
    ranks as the group.
    """

    def __init__(self, shape: MeshShape | Mapping[str, int], group: dist.ProcessGroup | None = None) -> None:
        self.shape = shape if isinstance(shape, MeshShape) else MeshShape(dict(shape))
        self._global_ranks = dist.get_process_group_ranks(group or dist.group.WORLD)
        if self.shape.size != len(self._global_ranks):
            raise ValueError(
                f"QCCL mesh: {self.shape} is for {self.shape.size} ranks, the group has {len(self._global_ranks)}"
            )
        self._rank = dist.get_rank(group)
        self._groups: dict[frozenset[str], dist.ProcessGroup] = {}  # by the names of their dimensions

    def coordinate(self, dimension: str) -> int:
        """This rank's coordinate."""
        return self.shape.coordinate(self._rank, dimension)

    def group(self, along: str) -> dist.ProcessGroup:
        """This rank's group along these dimensions, with its ranks in ascending order.

        The first call makes the group and is collective over its members; later calls return the same group.
        """
        members = self.shape.group_of(self._rank, along)
        names = frozenset(along.split("-"))
        if names not in self._groups:
            ranks = [self._global_ranks[member] for member in members]
            # Only the members make the group, in the mesh's order. torch 2.11 always sorts and has no sort_ranks.
            order: dict[str, Any] = {} if ranks == sorted(ranks) else {"sort_ranks": False}
            self._groups[names] = dist.new_group(ranks, backend="qccl", use_local_synchronization=True, **order)
        return self._groups[names]

    def make_groups(self, *alongs: str) -> None:
        """Makes the groups along each of these dimensions. Collective over all ranks, with the same list."""
        for along in alongs:
            self.group(along)

    def device_mesh(self, device_type: str = "cpu") -> DeviceMesh:
        """The same mesh as torch's, with the groups along each dimension. Collective over all ranks."""
        names = tuple(self.shape.sizes)
        ranks = torch.tensor(self._global_ranks).reshape(*self.shape.sizes.values())
        groups = [self.group(name) for name in names]
        if len(names) == 1:
            return DeviceMesh.from_group(groups[0], device_type, mesh_dim_names=names)
        return DeviceMesh.from_group(groups, device_type, ranks, mesh_dim_names=names)
