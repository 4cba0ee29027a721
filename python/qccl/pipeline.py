"""Pipeline parallelism: sends between the stages of a model, and broadcasts from the last stage.

The functions are those of Megatron-LM's schedules and inference, over a process group of stages in rank order (None:
the default group), on CPU tensors (Pipeline takes a GPU's too), and without their hangs: messages of the two directions
never match each other, two stages that send to each other at once do not block, and a wrong size is an error on both
sides. Pipeline needs a group of backend qccl; the other functions take any.

    pipeline = qccl.pipeline.Pipeline(mesh.group("pp"), torch.float32)
    input = pipeline.recv_forward((32, 1024))            # None on the first stage
    gradient = pipeline.send_forward_recv_backward(model(input), (32, 1024))  # None on the last stage
"""

from collections.abc import Sequence
from typing import TypeVar

import torch
import torch.distributed as dist

from . import _C
from ._api import backend_of

Shape = Sequence[int] | None
Value = TypeVar("Value")

# Tags of the functions that need no Pipeline.
_FORWARD, _TO_FIRST = 0x51CC00, 0x51CC02
_MAX_DIMENSIONS = 8


def _stage(group: dist.ProcessGroup | None) -> tuple[int, int]:
    return dist.get_rank(group), dist.get_world_size(group)


class Pipeline:
    """The stages of a model, one per rank of a group of backend qccl: qccl::Pipeline, whose C++ stages it may mix with.

    Args:
        dtype: of the tensors that stages receive. The tensors of a GPU travel through host memory.
        device: of the tensors that stages receive. The tensors of a GPU travel through host memory.
        variable_shapes: sends every tensor's shape before the tensor, so that receivers need not know it and may leave
            out `shape`. All stages must give the same.
        compression: of float32, float16 and bfloat16 tensors, forward and backward, as in Options; their receiver gets
            what one encoding leaves, within the codec's bound. All stages must give the same.
        error_feedback: each stage adds the error of a tensor that it has sent to the next in that direction.

    Making it is collective over the group. Its messages are separate from all others of the group. Received tensors
    require a gradient if their type can have one. On a stage without the neighbour in question, recv_forward() to
    send_backward_recv_forward() do nothing and return None, so that a schedule can call them on every stage.

    Raises ValueError if the group has another backend or for an unknown compression, and an error of
    torch.distributed if ranks differ in variable_shapes or compression.
    """

    def __init__(
        self,
        group: dist.ProcessGroup | None = None,
        dtype: torch.dtype = torch.float32,
        variable_shapes: bool = False,
        device: torch.device | str = "cpu",
        compression: str | None = None,
        error_feedback: bool = False,
    ) -> None:
        self.group = group
        self.dtype = dtype
        self.device = torch.device(device)
        self.variable_shapes = variable_shapes
        self.stage, self.stages = _stage(group)
        self._pipeline = _C.Pipeline(backend_of(group), variable_shapes, compression or "none", error_feedback)

    @property
    def is_first(self) -> bool:
        """Whether this rank is the first stage."""
        return self.stage == 0

    @property
    def is_last(self) -> bool:
        """Whether this rank is the last stage."""
        return self.stage == self.stages - 1

    def recv_forward(self, shape: Shape = None) -> torch.Tensor | None:
        """The input from the previous stage; `shape` may be left out with variable_shapes, here and below."""
        return None if self.is_first else self._exchange(None, None, True, False, shape)[0]

    def recv_backward(self, shape: Shape = None) -> torch.Tensor | None:
        """The gradient from the next stage."""
        return None if self.is_last else self._exchange(None, None, False, True, shape)[1]

    def send_forward(self, output: torch.Tensor | None) -> None:
        """Sends the output to the next stage, and returns when it is sent."""
        if not self.is_last:
            self._exchange(_given(output, "output"), None, False, False, None)

    def send_backward(self, gradient: torch.Tensor | None) -> None:
        """Sends the gradient of the input to the previous stage."""
        if not self.is_first:
            self._exchange(None, _given(gradient, "gradient"), False, False, None)

    def send_forward_recv_backward(self, output: torch.Tensor | None, shape: Shape = None) -> torch.Tensor | None:
        """Exchanges with the next stage at once, so that neither waits for the other to receive."""
        return None if self.is_last else self._exchange(_given(output, "output"), None, False, True, shape)[1]

    def send_backward_recv_forward(self, gradient: torch.Tensor | None, shape: Shape = None) -> torch.Tensor | None:
        """Exchanges with the previous stage at once."""
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
        if (recv_prev or recv_next) and shape is None and not self.variable_shapes:
            raise ValueError("a stage that receives needs the shape, or a Pipeline with variable_shapes=True")
        room = (0,) if self.variable_shapes else shape or ()
        rooms = [
            torch.empty(room, dtype=self.dtype, device="cpu") if wanted else None for wanted in (recv_prev, recv_next)
        ]
        received = self._pipeline.exchange(to_next, to_prev, *rooms)
        can_have_gradient = self.dtype.is_floating_point or self.dtype.is_complex
        from_prev, from_next = (
            None if tensor is None else tensor.to(self.device).requires_grad_(can_have_gradient) for tensor in received
        )
        return from_prev, from_next


def recv_from_prev_pipeline_rank_(recv_buffer: torch.Tensor, pp_group: dist.ProcessGroup | None = None) -> None:
    """Receives the previous stage's tensor into the buffer. RuntimeError on the first stage."""
    stage, stages = _stage(pp_group)
    if stage == 0:
        raise RuntimeError(f"stage 0 of {stages} is the first of its pipeline: there is none to receive from")
    dist.recv(recv_buffer, group=pp_group, tag=_FORWARD, group_src=stage - 1)


def send_to_next_pipeline_rank(tensor: torch.Tensor, pp_group: dist.ProcessGroup | None = None) -> None:
    """Sends the tensor to the next stage. RuntimeError on the last stage."""
    stage, stages = _stage(pp_group)
    if stage == stages - 1:
        raise RuntimeError(f"stage {stage} of {stages} is the last of its pipeline: there is none to send to")
    dist.send(tensor.detach().contiguous(), group=pp_group, tag=_FORWARD, group_dst=stage + 1)


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
        dist.recv(tensor, group=pp_group, tag=_TO_FIRST, group_src=stages - 1)
    else:
        dist.send(tensor.detach().contiguous(), group=pp_group, tag=_TO_FIRST, group_dst=0)


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
        header = torch.zeros(1 + _MAX_DIMENSIONS, dtype=torch.int64)
        if own is not None:
            if own.dim() > _MAX_DIMENSIONS:
                raise ValueError(f"a tensor of {own.dim()} dimensions can't be sent, at most {_MAX_DIMENSIONS}")
            header[: 1 + own.dim()] = torch.tensor([own.dim(), *own.shape])
        dist.broadcast(header, group=group, group_src=rank)
        dimensions, *sizes = header.tolist()
        size = sizes[:dimensions]
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
