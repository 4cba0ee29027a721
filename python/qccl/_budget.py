"""Spends a budget of bits: a step of the codec `grid` for each parameter, so that the total error is least."""

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from . import _C
from ._api import all_reduce as _all_reduce

_BLOCK, _MOST_BLOCKS = 256, 64  # elements; of a parameter: what is measured
_OCTAVES = range(-9, 6)  # candidate bounds: powers of 2 times the root mean square of all gradients
_PARTS = 8  # between two candidates, whose cost is interpolated
_FIRST_INTERVAL, _LONGEST_INTERVAL = 10, 40  # steps; doubled after each measurement


@dataclass
class _Measured:
    """A parameter in the step that is being measured."""

    count: int
    budget: float
    weight: float
    squares: float  # of this rank's gradient
    sample: torch.Tensor  # of it, float32 in host memory


def _sample(gradient: torch.Tensor) -> torch.Tensor:
    """Blocks that are spread evenly."""
    values = gradient.detach().flatten()
    blocks = min(_MOST_BLOCKS, -(-values.numel() // _BLOCK))
    last = max(0, values.numel() - _BLOCK)
    begins = [last * block // max(1, blocks - 1) for block in range(blocks)]
    return torch.cat([values[begin : begin + _BLOCK] for begin in begins]).to("cpu", torch.float32)


def _specification(bound: float) -> str:
    return f"grid:entropy=rans,bound={min(max(bound, 1e-30), 1e30):.6g}"


def cheapest(bits: torch.Tensor, errors: torch.Tensor, counts: torch.Tensor, budget: float) -> list[int]:
    """For each parameter (row) the candidate (column) that makes the sum of the errors least within the budget.

    bits: an element, float64[parameters, candidates]. errors: of the whole parameter, of the same shape. counts:
    elements, float64[parameters]. budget: bits an element in the mean. Where even the cheapest candidates cost more,
    these.

    Lagrange: of all choices that cost no more, the one that minimises error + price x bits has the least error; the
    price is found by bisection.
    """
    total = bits * counts[:, None]

    def choice(price: float) -> torch.Tensor:
        return (errors + price * total).argmin(1)

    def is_within(chosen: torch.Tensor) -> bool:
        return total.gather(1, chosen[:, None]).sum().item() <= budget * counts.sum().item()

    if is_within(choice(0)):
        return [int(each) for each in choice(0)]
    low, high = -300.0, 300.0  # logarithms of prices: too low, high enough
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (low, middle) if is_within(choice(math.exp(middle))) else (middle, high)
    return [int(each) for each in choice(math.exp(high))]


def _interpolated(values: torch.Tensor) -> torch.Tensor:
    """Rows with _PARTS - 1 more columns between each two, by their logarithms."""
    values = values.clamp(min=1e-300).log()
    part = torch.arange(_PARTS, dtype=values.dtype) / _PARTS
    between = values[:, :-1, None] + (values[:, 1:] - values[:, :-1])[:, :, None] * part
    return torch.cat([between.flatten(1), values[:, -1:]], 1).exp()


class Budgets:
    """The bounds of parameters whose policy is a budget. All ranks have the same: rank 0 of the group decides.

    Steps are measured every 40 training steps, at first more often: on a sample of each gradient, what encoding it and
    the ranks' average costs with each of some candidates. Error feedback adds a residual, which is spread evenly over a
    step: so is what the measurement adds, because the residual of the moment is that of another step.

    optimizer: weighs a parameter's error by the reciprocal of its mean second moment, if it has one (Adam's has).
    """

    def __init__(
        self, group: dist.ProcessGroup | None, optimizer: torch.optim.Optimizer | None, error_feedback: bool
    ) -> None:
        self._group, self._optimizer, self._error_feedback = group, optimizer, error_feedback
        self._bounds: dict[str, float] = {}
        self._next_step, self._interval = 0, _FIRST_INTERVAL
        self._measured: dict[str, _Measured] = {}

    def state_dict(self) -> dict[str, Any]:
        return {"bounds": dict(self._bounds), "next_step": self._next_step, "interval": self._interval}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._bounds, self._next_step, self._interval = dict(state["bounds"]), state["next_step"], state["interval"]

    def compression(self, name: str) -> str | None:
        """None: the parameter has not been measured."""
        bound = self._bounds.get(name)
        return None if bound is None else _specification(bound)

    def is_due(self, step: int) -> bool:
        return step >= self._next_step

    def measure(self, name: str, parameter: torch.Tensor, budget: float, gradient: torch.Tensor) -> None:
        squares = gradient.detach().double().square().sum().item()
        weight = self._weight(parameter)
        self._measured[name] = _Measured(parameter.numel(), budget, weight, squares, _sample(gradient))

    def end_step(self, step: int) -> None:
        """After all gradients of a step that is_due(). Collective, if a parameter was measured."""
        measured, self._measured = self._measured, {}
        rows = list(measured.values())
        if not rows:
            return
        known = self._average(torch.tensor([[row.squares, row.weight] for row in rows], dtype=torch.float64))
        scale = math.sqrt(known[:, 0].sum().item() / sum(row.count for row in rows))
        averages = self._average(torch.cat([row.sample for row in rows]))
        if not known.isfinite().all() or scale == 0:
            return  # a step that a loss scaler skips, say: the next one is measured
        bounds = [scale * 2.0**octave for octave in _OCTAVES]
        parts = torch.split(averages, [row.sample.numel() for row in rows])
        costs = [self._costs(row.sample, average, bounds) for row, average in zip(rows, parts, strict=True)]
        table = self._average(torch.tensor(costs, dtype=torch.float64))
        errors = _interpolated(table[:, 1]) * known[:, 1:]
        columns = _spend(rows, _interpolated(table[:, 0]), errors)
        chosen = torch.tensor([bounds[0] * 2 ** (column / _PARTS) for column in columns], dtype=torch.float64)
        dist.broadcast(chosen, group=self._group, group_src=0)
        self._bounds |= zip(measured, chosen.tolist(), strict=True)
        self._next_step, self._interval = step + self._interval, min(2 * self._interval, _LONGEST_INTERVAL)

    def _average(self, values: torch.Tensor) -> torch.Tensor:
        _all_reduce(values, dist.ReduceOp.AVG, self._group, compression="none")
        return values

    def _costs(self, sample: torch.Tensor, average: torch.Tensor, bounds: list[float]) -> list[list[float]]:
        """For each bound the bits of an element, and its squared error in the average that all ranks get."""
        ranks = dist.get_world_size(self._group)
        spread = torch.zeros(sample.numel())
        if self._error_feedback:
            spread.uniform_(-1, 1, generator=torch.Generator().manual_seed(0))
        bits, errors = [], []
        for bound in bounds:
            own, whole = (
                _C.measure_encoding(_specification(bound), values + bound * spread, values.numel())
                for values in (sample, average)
            )
            bits.append((own.bits + whole.bits) / 2)
            errors.append((own.error_squares / ranks + whole.error_squares) / max(1, own.elements))
        return [bits, errors]

    def _weight(self, parameter: torch.Tensor) -> float:
        state = {} if self._optimizer is None else self._optimizer.state.get(parameter, {})
        moment = state.get("exp_avg_sq")
        return 1.0 if moment is None else 1 / max(moment.mean().item(), 1e-30)


def _spend(rows: list[_Measured], bits: torch.Tensor, errors: torch.Tensor) -> list[int]:
    """The column of each row; errors: weighted, of an element."""
    counts = torch.tensor([row.count for row in rows], dtype=torch.float64)
    columns = [0] * len(rows)
    for budget in {row.budget for row in rows}:
        own = [index for index, row in enumerate(rows) if row.budget == budget]
        chosen = cheapest(bits[own], errors[own] * counts[own, None], counts[own], budget)
        for index, column in zip(own, chosen, strict=True):
            columns[index] = column
    return columns
