"""Error feedback: the compression error of a sum is added to the next call's sum."""

from typing import Any

import torch

from . import _C


class ErrorFeedback:
    """The residual of one tensor that qccl.all_reduce() sums: two float32 for each element.

        feedback = qccl.ErrorFeedback(gradient.numel())
        qccl.all_reduce(gradient, compression="minmax:bits=2", error_feedback=feedback)

    Each rank has its own; either all ranks of a call pass one or none does. One call at a time may use it. After a call
    that failed, residual and counter are what they were before it.

    Args:
        count: elements of the tensor.
        counter: calls so far. Random rounding depends on it, so a rank that joins later takes its peers' counter.

    Raises ValueError if one of them is negative.
    """

    def __init__(self, count: int, counter: int = 0) -> None:
        if count < 0 or counter < 0:
            raise ValueError(f"an error feedback can't be of {count} elements after {counter} calls")
        self._state = _C.ErrorFeedback(count, counter)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._state.size

    @property
    def counter(self) -> int:
        """The number of calls with it that ended well; all ranks must have the same."""
        return self._state.counter

    @property
    def residual(self) -> torch.Tensor:
        """The residual, in units of the sum; float32[size], shares memory with the state."""
        return self._state.residual

    def settle(self, counter: int) -> None:
        """After a failure: makes this the state after `counter` calls, where that is self.counter or one more or less.

        One less undoes the last call, which ended well here; one more redoes the last call, which failed here: only of
        an all_reduce that ended well on another rank. Raises DistBackendError for another number.
        """
        self._state.settle(counter)

    def reset(self, begin: int | None = None, count: int | None = None) -> None:
        """Sets the residual to zero; with both arguments, only that of `count` elements from `begin` on."""
        if begin is None and count is None:
            self._state.reset()
        elif begin is not None and count is not None:
            self._state.reset(begin, count)
        else:
            raise ValueError("reset() takes both begin and count, or neither")

    def state_dict(self) -> dict[str, Any]:
        """This rank's checkpoint: calls after load_state_dict() give the same bits as without interruption."""
        return {"saved": torch.frombuffer(bytearray(self._state.save()), dtype=torch.uint8)}

    @staticmethod
    def from_state_dict(state: dict[str, Any]) -> "ErrorFeedback":
        """Raises ValueError if `state` is not a checkpoint, DistNetworkError if it is damaged."""
        saved = state.get("saved") if isinstance(state, dict) else None
        if not isinstance(saved, torch.Tensor):
            raise ValueError("this is no checkpoint of a qccl.ErrorFeedback: it has no tensor 'saved'")
        feedback = ErrorFeedback(0)
        feedback._state = _C.ErrorFeedback.restore(saved.cpu().numpy().tobytes())
        return feedback

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Raises ValueError if `state` is not a checkpoint or of another size, DistNetworkError if it is damaged."""
        restored = ErrorFeedback.from_state_dict(state)
        if restored.size != self.size:
            raise ValueError(f"the checkpoint is of {restored.size} elements, this error feedback has {self.size}")
        self._state = restored._state
