"""Pipeline parallelism: sends between the stages of a model, and broadcasts from the last stage.

The functions are those of Megatron-LM's schedules and inference, over a process group of stages in rank order (None:
the default group), on CPU tensors, and without their hangs: messages of the two directions never match each other, two
stages that send to each other at once do not block, and a wrong size is an error on both sides.

    pipeline = qccl.pipeline.Pipeline(mesh.group("pp"), torch.float32)
    input = pipeline.recv_forward((32, 1024))            # None on the first stage
    gradient = pipeline.send_forward_recv_backward(model(input), (32, 1024))  # None on the last stage
"""

from collections.abc import Sequence
from typing import TypeVar

import torch
import torch.distributed as dist

Shape = Sequence[int] | None
Value = TypeVar("Value")

# Tags that give a message's direction: in a pipeline of two stages the sender alone does not determine it.
_FORWARD, _BACKWARD, _TO_FIRST = range(0x51CC00, 0x51CC03)
_SHAPES = 3  # a shape's tag is its tensor's tag plus this
_MAX_DIMENSIONS = 8


def _stage(group: dist.ProcessGroup | None) -> tuple[int, int]:
    return dist.get_rank(group), dist.get_world_size(group)


def _send(tensor: torch.Tensor, group: dist.ProcessGroup | None, peer: int, tag: int) -> dist.P2POp:
    return dist.P2POp(dist.isend, tensor.detach().contiguous(), group=_real(group), tag=tag, group_peer=peer)


def _receive(tensor: torch.Tensor, group: dist.ProcessGroup | None, peer: int, tag: int) -> dist.P2POp:
    return dist.P2POp(dist.irecv, tensor, group=_real(group), tag=tag, group_peer=peer)


def _real(group: dist.ProcessGroup | None) -> dist.ProcessGroup:
    found = group or dist.group.WORLD
    assert found is not None, "there is no process group"
    return found


def _post(operations: list[dist.P2POp]) -> list[dist.Work]:
    """Posts all operations before any data moves, so that two stages that send to each other both receive meanwhile."""
    return dist.batch_isend_irecv(operations) if operations else []


def _wait(works: list[dist.Work]) -> None:
    for work in works:
        work.wait()


def _empty_header() -> torch.Tensor:
    return torch.zeros(1 + _MAX_DIMENSIONS, dtype=torch.int64)


def _header_of(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dim() > _MAX_DIMENSIONS:
        raise ValueError(f"a tensor of {tensor.dim()} dimensions can't be sent, at most {_MAX_DIMENSIONS}")
    header = _empty_header()
    header[: 1 + tensor.dim()] = torch.tensor([tensor.dim(), *tensor.shape])
    return header


def _shape_in(header: torch.Tensor) -> list[int]:
    dimensions, *sizes = header.tolist()
    return sizes[:dimensions]


class Pipeline:
    """The stages of a model, one per rank of a group.

    dtype: of the tensors that stages receive.
    variable_shapes: sends every tensor's shape before the tensor, so that receivers need not know it and may leave out
        `shape`. All stages must give the same.

    Received tensors require a gradient if their type can have one. On a stage without the neighbour in question,
    recv_forward() to send_backward_recv_forward() do nothing and return None, so that a schedule can call them on every
    stage.
    """

    def __init__(
        self,
        group: dist.ProcessGroup | None = None,
        dtype: torch.dtype = torch.float32,
        variable_shapes: bool = False,
    ) -> None:
        self.group = group
        self.dtype = dtype
        self.variable_shapes = variable_shapes
        self.stage, self.stages = _stage(group)

    @property
    def is_first(self) -> bool:
        return self.stage == 0

    @property
    def is_last(self) -> bool:
        return self.stage == self.stages - 1

    def recv_forward(self, shape: Shape = None) -> torch.Tensor | None:
        return None if self.is_first else self._exchange(None, None, True, False, shape)[0]

    def recv_backward(self, shape: Shape = None) -> torch.Tensor | None:
        return None if self.is_last else self._exchange(None, None, False, True, shape)[1]

    def send_forward(self, output: torch.Tensor | None) -> None:
        if not self.is_last:
            self._exchange(_given(output, "output"), None, False, False, None)

    def send_backward(self, gradient: torch.Tensor | None) -> None:
        if not self.is_first:
            self._exchange(None, _given(gradient, "gradient"), False, False, None)

    def send_forward_recv_backward(self, output: torch.Tensor | None, shape: Shape = None) -> torch.Tensor | None:
        return None if self.is_last else self._exchange(_given(output, "output"), None, False, True, shape)[1]

    def send_backward_recv_forward(self, gradient: torch.Tensor | None, shape: Shape = None) -> torch.Tensor | None:
        return None if self.is_first else self._exchange(None, _given(gradient, "gradient"), True, False, shape)[0]

    def send_forward_recv_forward(
        self, output: torch.Tensor | None, recv_prev: bool, shape: Shape = None
    ) -> torch.Tensor | None:
        """Around the ring: the first and the last stage are neighbours. None is not sent."""
        return self._exchange(output, None, recv_prev, False, shape)[0]

    def send_backward_recv_backward(
        self, gradient: torch.Tensor | None, recv_next: bool, shape: Shape = None
    ) -> torch.Tensor | None:
        """Around the ring, the other way."""
        return self._exchange(None, gradient, False, recv_next, shape)[1]

    def send_forward_backward_recv_forward_backward(
        self,
        output: torch.Tensor | None,
        gradient: torch.Tensor | None,
        recv_prev: bool,
        recv_next: bool,
        shape: Shape = None,
    ) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Both ways at once: returns the tensors from the previous stage and from the next."""
        return self._exchange(output, gradient, recv_prev, recv_next, shape)

    def _exchange(
        self,
        to_next: torch.Tensor | None,
        to_prev: torch.Tensor | None,
        recv_prev: bool,
        recv_next: bool,
        shape: Shape,
    ) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        following, previous = (self.stage + 1) % self.stages, (self.stage - 1) % self.stages
        ways = ((previous, _FORWARD), (following, _BACKWARD))
        wanted = [way for want, way in zip((recv_prev, recv_next), ways, strict=True) if want]
        sends = []
        for tensor, peer, tag in ((to_next, following, _FORWARD), (to_prev, previous, _BACKWARD)):
            if tensor is None:
                continue
            if self.variable_shapes:
                sends.append(_send(_header_of(tensor), self.group, peer, tag + _SHAPES))
            sends.append(_send(tensor, self.group, peer, tag))
        rooms = (
            self._exchange_shapes(wanted, sends) if self.variable_shapes else self._exchange_data(wanted, sends, shape)
        )
        came = dict(zip(wanted, rooms, strict=True))
        from_prev, from_next = (came.get(way) for way in ways)
        return from_prev, from_next

    def _exchange_data(
        self, wanted: list[tuple[int, int]], sends: list[dist.P2POp], shape: Shape
    ) -> list[torch.Tensor]:
        if wanted and shape is None:
            raise ValueError("a stage that receives needs the shape, or a Pipeline with variable_shapes=True")
        rooms = [torch.empty(shape or (), dtype=self.dtype) for _ in wanted]
        _wait(_post([*self._receives(rooms, wanted), *sends]))
        return self._with_gradients(rooms)

    def _exchange_shapes(self, wanted: list[tuple[int, int]], sends: list[dist.P2POp]) -> list[torch.Tensor]:
        """No send waits for a receive: a neighbour may need this stage's tensor before it sends its own."""
        headers = [_empty_header() for _ in wanted]
        arriving = _post(self._receives(headers, wanted, _SHAPES))
        sent = _post(sends)
        _wait(arriving)
        rooms = [torch.empty(_shape_in(header), dtype=self.dtype) for header in headers]
        _wait(_post(self._receives(rooms, wanted)))
        _wait(sent)
        return self._with_gradients(rooms)

    def _receives(self, rooms: list[torch.Tensor], wanted: list[tuple[int, int]], kind: int = 0) -> list[dist.P2POp]:
        return [_receive(room, self.group, peer, tag + kind) for room, (peer, tag) in zip(rooms, wanted, strict=True)]

    def _with_gradients(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        possible = self.dtype.is_floating_point or self.dtype.is_complex
        return [tensor.requires_grad_(possible) for tensor in tensors]


def recv_from_prev_pipeline_rank_(recv_buffer: torch.Tensor, pp_group: dist.ProcessGroup | None = None) -> None:
    """Receives the previous stage's tensor into the buffer. RuntimeError on the first stage."""
    stage, stages = _stage(pp_group)
    if stage == 0:
        raise RuntimeError(f"stage 0 of {stages} is the first of its pipeline: there is none to receive from")
    _wait(_post([_receive(recv_buffer, pp_group, stage - 1, _FORWARD)]))


def send_to_next_pipeline_rank(tensor: torch.Tensor, pp_group: dist.ProcessGroup | None = None) -> None:
    """Sends the tensor to the next stage. RuntimeError on the last stage."""
    stage, stages = _stage(pp_group)
    if stage == stages - 1:
        raise RuntimeError(f"stage {stage} of {stages} is the last of its pipeline: there is none to send to")
    _wait(_post([_send(tensor, pp_group, stage + 1, _FORWARD)]))


def broadcast_from_last_pipeline_stage(
    size: Shape, dtype: torch.dtype, tensor: torch.Tensor | None = None, pp_group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    """The last stage's tensor, on all stages. Only the last stage needs to pass it."""
    return broadcast_tensor(size, dtype, tensor, _stage(pp_group)[1] - 1, pp_group)


def broadcast_from_last_to_first_pipeline_stage(
    size: Sequence[int],
    dtype: torch.dtype,
    tensor: torch.Tensor | None = None,
    pp_group: dist.ProcessGroup | None = None,
) -> torch.Tensor | None:
    """The last stage's tensor, on the first and the last stage; None on others."""
    stage, stages = _stage(pp_group)
    if stage not in (0, stages - 1):
        return None
    if stage == stages - 1:
        _check(_given(tensor, "tensor"), size, dtype)
    else:
        tensor = torch.empty(size, dtype=dtype)
    copy_from_last_to_first_pipeline_stage(size, dtype, tensor, pp_group)
    return tensor


def copy_from_last_to_first_pipeline_stage(
    size: Sequence[int],
    dtype: torch.dtype,
    tensor: torch.Tensor | None = None,
    pp_group: dist.ProcessGroup | None = None,
) -> None:
    """Copies the last stage's tensor into the first stage's, which may be a view. Does nothing on other stages."""
    stage, stages = _stage(pp_group)
    if stages == 1 or stage not in (0, stages - 1):
        return
    tensor = _check(_given(tensor, "tensor"), size, dtype)
    if stage == 0:
        _wait(_post([_receive(tensor, pp_group, stages - 1, _TO_FIRST)]))
    else:
        _wait(_post([_send(tensor, pp_group, 0, _TO_FIRST)]))


def broadcast_tensor(
    size: Shape,
    dtype: torch.dtype,
    tensor: torch.Tensor | None = None,
    rank: int = 0,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """The tensor of one rank of a group, on all ranks. Only that rank needs to pass it.

    If the ranks do not know its size, all of them pass None for `size`: the size is then broadcast first.
    """
    is_root = dist.get_rank(group) == rank
    own = _check(_given(tensor, "tensor"), size, dtype).contiguous() if is_root else None
    if size is None:
        header = _empty_header() if own is None else _header_of(own)
        dist.broadcast(header, group=group, group_src=rank)
        size = _shape_in(header)
    shared = torch.empty(size, dtype=dtype) if own is None else own
    dist.broadcast(shared, group=group, group_src=rank)
    return shared


def broadcast_list(
    size: int | None,
    dtype: torch.dtype,
    list_values: Sequence[float] | None = None,
    rank: int = 0,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """The numbers of one rank of a group, as a tensor on all ranks. None for `size`: as in broadcast_tensor()."""
    values = None
    if dist.get_rank(group) == rank:
        values = torch.tensor(_given(list_values, "list_values"), dtype=dtype)
    return broadcast_tensor(None if size is None else [size], dtype, values, rank, group)


def broadcast_int_list(
    size: int | None,
    int_list: Sequence[int] | None = None,
    rank: int = 0,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """broadcast_list() of int64."""
    return broadcast_list(size, torch.int64, int_list, rank, group)


def broadcast_float_list(
    size: int | None,
    float_list: Sequence[float] | None = None,
    rank: int = 0,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """broadcast_list() of float32."""
    return broadcast_list(size, torch.float32, float_list, rank, group)


def _given(value: Value | None, name: str) -> Value:
    if value is None:
        raise ValueError(f"this rank sends: it needs `{name}`")
    return value


def _check(tensor: torch.Tensor, size: Shape, dtype: torch.dtype) -> torch.Tensor:
    """Checks shape and type before anything is sent."""
    if tensor.dtype != dtype or (size is not None and list(tensor.shape) != list(size)):
        raise ValueError(
            f"expected a tensor of shape {None if size is None else list(size)} and type {dtype}, "
            f"got one of shape {list(tensor.shape)} and type {tensor.dtype}"
        )
    return tensor
