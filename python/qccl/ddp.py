"""Compressed gradients for DistributedDataParallel: a policy per parameter, with error feedback.

    model = DistributedDataParallel(network)
    state = qccl.ddp.State(model, "minmax:bits=4")
    model.register_comm_hook(state, qccl.ddp.compress_hook)

It composes with no_sync(), gradient accumulation, mixed precision and Join. A rank that has joined adds zeros and its
residual. Join's divide_by_initial_world_size selects whether averages are over all ranks or over those with inputs.
"""

import weakref
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel

from . import _C
from ._api import Policy, backend_of
from ._budget import Budgets
from ._feedback import ErrorFeedback
from ._gauge import Gauges, Report


class _JoinState:
    """Tracks whether a step's average is over the ranks that still have inputs, and whether this rank is one of them.

    A rank that has joined runs the hook without a forward pass before it.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = weakref.ref(model)  # weak, because the model's hook refers to this object
        self._has_input = False
        if isinstance(model, DistributedDataParallel):
            model.register_forward_pre_hook(self._note_forward)

    def _note_forward(self, model: torch.nn.Module, _inputs: Any) -> None:
        if torch.is_grad_enabled() and model.require_backward_grad_sync:
            self._has_input = True

    def share(self, device: torch.device) -> torch.Tensor | None:
        """1 on a rank with input, 0 on one that has joined; None if the average is over all ranks."""
        model: Any = self._model()
        if not isinstance(model, DistributedDataParallel) or not model._join_config.enable:
            return None
        return None if model._divide_by_initial_world_size else torch.tensor([float(self._has_input)], device=device)

    def end_step(self) -> None:
        self._has_input = False


class State:
    """The state that compress_hook() keeps between steps: the step, and the residual of each parameter of this rank.

    Args:
        model: the DistributedDataParallel, or the module in it; with the module, averages are always over all ranks.
        policy: the compression of each parameter's gradient, a qccl.Policy or its text. A text without conditions, such
            as "minmax:bits=4", leaves small and one-dimensional parameters uncompressed. "budget=1.5" gives each
            parameter the step of codec grid that makes the total error least with so many bits an element in the mean.
        error_feedback: adds the compression error of a parameter's gradient to its next gradient; costs two float32 for
            each compressed element.
        group: the process group of backend qccl to average over. None means the model's own group, or the default group
            if `model` is the module in a DistributedDataParallel.
        optimizer: weighs errors for a budget by the second moments of Adam and the like. None: all count alike.
        gauge_every: steps from one measurement of report() to the next, each a few milliseconds for a parameter; 0:
            none.
        most_nmse: the relative squared error of a parameter's encoding above which rank 0 warns, once, as it does of a
            residual that piles up (logger `qccl`).

    All ranks must give the same. Buckets may be rebuilt, because residuals belong to parameters. Raises ValueError for
    a text that is not a policy.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        policy: Policy | str = "minmax:bits=8",
        error_feedback: bool = True,
        group: dist.ProcessGroup | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        gauge_every: int = 100,
        most_nmse: float = 0.5,
    ) -> None:
        self.policy = policy if isinstance(policy, Policy) else Policy(policy)
        self.error_feedback = error_feedback
        self.step = 0
        module, self._group = model, group
        if isinstance(model, DistributedDataParallel):
            module, self._group = model.module, group or model.process_group
        self._join = _JoinState(model)
        self._names = {id(parameter): name for name, parameter in module.named_parameters()}
        self._sizes = {name: parameter.numel() for name, parameter in module.named_parameters()}
        self._feedback: dict[str, ErrorFeedback] = {}
        self._budgets = Budgets(self._group, optimizer, error_feedback)
        warns = not dist.is_initialized() or dist.get_rank(self._group) == 0
        log = lambda fields: _C.log_gauge(backend_of(self._group), fields)  # noqa: E731
        self._gauges = Gauges(gauge_every, most_nmse if warns else None, log)

    def state_dict(self) -> dict[str, Any]:
        """This rank's checkpoint. Steps after load_state_dict() give the same bits as without interruption."""
        feedback = {name: each.state_dict() for name, each in self._feedback.items()}
        return {"step": self.step, "feedback": feedback, "budgets": self._budgets.state_dict()}

    def load_state_dict(self, state: dict[str, Any], owed: bool = True) -> None:
        """Continues from a checkpoint, in the same model.

        If the number of ranks has changed, a rank that existed before loads its own checkpoint. A new rank loads a
        peer's with owed=False: its residual is zero, but it takes over the step and the call counters. The residuals
        of ranks that no longer exist are lost, once.

        Raises ValueError if `state` is not a checkpoint, or one of another model, and DistNetworkError if it is
        damaged; the state is then unchanged.
        """
        if not isinstance(state, dict) or not {"step", "feedback"} <= set(state):
            raise ValueError("this is no checkpoint of a qccl.ddp.State: it has no 'step' and 'feedback'")
        restored = {name: self._restored(name, saved) for name, saved in state["feedback"].items()}
        if not owed:
            restored = {name: ErrorFeedback(each.size, each.counter) for name, each in restored.items()}
        if "budgets" in state:
            self._budgets.load_state_dict(state["budgets"])
        self.step, self._feedback = state["step"], restored

    def _restored(self, name: str, saved: dict[str, Any]) -> ErrorFeedback:
        if name not in self._sizes:
            raise ValueError(f"the checkpoint is of another model: this one has no parameter {name!r}")
        feedback = ErrorFeedback.from_state_dict(saved)
        if feedback.size != self._sizes[name]:
            raise ValueError(
                f"the checkpoint is of another model: its parameter {name!r} has {feedback.size} elements, "
                f"this one's {self._sizes[name]}"
            )
        return feedback

    def report(self) -> Report:
        """What compression cost in the steps that were measured (gauge_every), for each parameter of this rank."""
        return self._gauges.report()

    def owed(self, name: str) -> torch.Tensor | None:
        """This rank's residual of a parameter, flat, in units of the sum; None if it was never compressed."""
        feedback = self._feedback.get(name)
        return None if feedback is None else feedback.residual

    def reset(self) -> None:
        """Sets all residuals to zero. Call it on all ranks, after an operation has failed."""
        for feedback in self._feedback.values():
            feedback.reset()

    def _end_step(self) -> None:
        if self._budgets.is_due(self.step):
            self._budgets.end_step(self.step)
        self.step += 1
        self._join.end_step()

    def _parts(self, bucket: GradBucket) -> Iterator[_C.CompressedPart]:
        """Adjacent elements of a gradient bucket: one compressed parameter, or several uncompressed ones."""
        buffer = bucket.buffer()
        plain = 0  # where the adjacent uncompressed parameters begin
        for name, parameter, begin, end in self._places(bucket):
            compression = self._compression_of(name, parameter)
            if compression != "none":
                if plain < begin:
                    yield _C.CompressedPart(buffer[plain:begin], "none", None)
                feedback = self._feedback_of(name, parameter)
                self._measure(name, parameter, compression, buffer[begin:end], feedback)
                state = None if feedback is None else feedback._state
                yield _C.CompressedPart(buffer[begin:end], compression, state)
                plain = end
        if plain < buffer.numel():
            yield _C.CompressedPart(buffer[plain:], "none", None)

    def _places(self, bucket: GradBucket) -> Iterator[tuple[str, torch.Tensor, int, int]]:
        """Name, parameter and the elements [begin, end) of the bucket for each of its parameters."""
        begin = 0
        for parameter in bucket.parameters():
            end = begin + parameter.numel()
            yield self._names.get(id(parameter), ""), parameter, begin, end
            begin = end

    def _compression_of(self, name: str, parameter: torch.Tensor) -> str:
        measured = self._budgets.compression(name)
        if measured is not None and self._budget_of(name, parameter) > 0:
            return measured
        return self.policy.choose(name, parameter, self.step)

    def _budget_of(self, name: str, parameter: torch.Tensor) -> float:
        return self.policy.budget(name, parameter, self.step)

    def _measure(
        self,
        name: str,
        parameter: torch.Tensor,
        compression: str,
        gradient: torch.Tensor,
        feedback: ErrorFeedback | None,
    ) -> None:
        if self._gauges.is_due(self.step):
            self._gauges.measure(name, self.step, compression, gradient, feedback)
        if self._budgets.is_due(self.step):
            budget = self._budget_of(name, parameter)
            if budget > 0:
                self._budgets.measure(name, parameter, budget, gradient)

    def _feedback_of(self, name: str, parameter: torch.Tensor) -> ErrorFeedback | None:
        if not self.error_feedback:
            return None
        if name not in self._feedback:
            self._feedback[name] = ErrorFeedback(parameter.numel())
        return self._feedback[name]


def compress_hook(state: State, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The communication hook: averages the ranks' gradients, compressed according to the state's policy.

    Sparse gradients are sent uncompressed. Raises TypeError if it was registered with anything but a State.
    """
    if not isinstance(state, State):
        raise TypeError(
            f"compress_hook needs a qccl.ddp.State, got {type(state).__name__}: "
            "model.register_comm_hook(qccl.ddp.State(model), qccl.ddp.compress_hook)"
        )
    share = state._join.share(bucket.buffer().device)
    share_work = None if share is None else dist.all_reduce(share, dist.ReduceOp.AVG, state._group, async_op=True)
    work = _all_reduce(state, bucket)
    if bucket.is_last():
        state._end_step()
    return _C.hook_future(work, share_work, share)


def _all_reduce(state: State, bucket: GradBucket) -> Any:
    buffer = bucket.buffer()
    parts = [_C.CompressedPart(buffer, "none", None)] if buffer.is_sparse else list(state._parts(bucket))
    return _C.all_reduce_parts(backend_of(state._group), parts, buffer, dist.ReduceOp.AVG, True)
