"""What compressing each parameter's gradient costs: bits, error, and the residual that waits."""

import logging
import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from . import _C
from ._feedback import ErrorFeedback

_log = logging.getLogger("qccl")
_MOST_ELEMENTS = 1 << 17  # of a parameter that are encoded, in slices that are spread evenly
_MOST_GAUGES = 100_000
_MOST_RESIDUAL = 2.0


@dataclass(frozen=True)
class Gauge:
    """What compressing a parameter's gradient cost this rank in a step. Errors are of one encoding, before the sum."""

    name: str
    step: int
    compression: str
    count: int
    """Elements of the parameter."""
    bits: float
    """An element, encoded."""
    nmse: float
    """The squared error over the squares of what was encoded: the gradient and, with error feedback, the residual."""
    cosine: float
    """Between what was encoded and what it decodes to."""
    residual: float
    """The residual's norm over the gradient's, both before the step; 0 without error feedback."""


class Report:
    """Gauges, in the order in which they were measured: `print(report)` shows each parameter's last one."""

    def __init__(self, gauges: Iterable[Gauge]) -> None:
        self.gauges = tuple(gauges)

    @property
    def latest(self) -> dict[str, Gauge]:
        """The last gauge of each parameter."""
        return {gauge.name: gauge for gauge in self.gauges}

    @property
    def bits(self) -> float:
        """Bits an element in the mean over the parameters, by their last gauges; 0 without any."""
        gauges = self.latest.values()
        return sum(each.bits * each.count for each in gauges) / max(1, sum(each.count for each in gauges))

    def scalars(self, quantity: str = "nmse") -> dict[str, float]:
        """One quantity ("bits", "nmse", "cosine" or "residual") of each parameter's last gauge, as TensorBoard takes
        it: `writer.add_scalars("nmse", state.report().scalars("nmse"), state.step)`."""
        return {name: getattr(gauge, quantity) for name, gauge in self.latest.items()}

    def __str__(self) -> str:
        if not self.gauges:
            return "nothing has been measured"
        width = max(len("parameter"), *map(len, self.latest))
        heads = f"{'step':>7} {'elements':>10} {'bits':>6} {'NMSE':>9} {'cosine':>7} residual  compression"
        lines = [f"{'parameter':{width}} {heads}"]
        for name, gauge in self.latest.items():
            lines.append(
                f"{name:{width}} {gauge.step:7} {gauge.count:10} {gauge.bits:6.2f} {gauge.nmse:9.2g} "
                f"{gauge.cosine:7.4f} {gauge.residual:8.2g}  {gauge.compression}"
            )
        return "\n".join([*lines, f"{self.bits:.2f} bits an element in the mean"])


def _encoded_values(gradient: torch.Tensor, feedback: ErrorFeedback | None) -> torch.Tensor:
    """What a call encodes of a gradient: with its residual, as float32 in host memory."""
    values = gradient.detach().flatten().to("cpu", torch.float32)
    return values if feedback is None else values + feedback.residual.to("cpu")


class Gauges:
    """Measures parameters every some steps, and says once what goes wrong.

    every: steps; 0: never. most_nmse: the largest relative error that is not worth a warning; None: this rank does not
        warn.
    log: takes the fields of each gauge, for the log of operations.
    """

    def __init__(self, every: int, most_nmse: float | None, log: Callable[[dict[str, Any]], None]) -> None:
        if every < 0:
            raise ValueError(f"gauge_every is a number of steps, or 0 for none: got {every}")
        self._every, self._most_nmse, self._log = every, most_nmse, log
        self._gauges: deque[Gauge] = deque(maxlen=_MOST_GAUGES)
        self._warned: set[str] = set()

    def is_due(self, step: int) -> bool:
        return self._every > 0 and step % self._every == 0

    def report(self) -> Report:
        return Report(self._gauges)

    def measure(
        self, name: str, step: int, compression: str, gradient: torch.Tensor, feedback: ErrorFeedback | None
    ) -> None:
        if compression.startswith("auto"):
            return  # calls choose the encoding
        cost = _C.measure_encoding(compression, _encoded_values(gradient, feedback), _MOST_ELEMENTS)
        waiting = 0.0 if feedback is None else feedback.residual.norm().item()
        norm = gradient.detach().float().norm().item()
        residual = 0.0 if waiting == 0 else waiting / norm if norm > 0 else math.inf
        gauge = Gauge(name, step, compression, gradient.numel(), cost.bits, cost.nmse, cost.cosine, residual)
        self._gauges.append(gauge)
        self._log(asdict(gauge))
        if self._most_nmse is not None:
            self._warn(gauge, self._most_nmse)

    def _warn(self, gauge: Gauge, most_nmse: float) -> None:
        if _MOST_RESIDUAL < gauge.residual < math.inf and "residual" not in self._warned:
            self._warned.add("residual")
            _log.warning(
                "step %d: what %s has not sent of %s piles up: the residual is %.1f times the gradient. Give it more "
                "bits, or a codec with less error; print(state.report()) shows all parameters",
                gauge.step, gauge.compression, gauge.name, gauge.residual,
            )  # fmt: skip
        if gauge.nmse > most_nmse and "nmse" not in self._warned:
            self._warned.add("nmse")
            _log.warning(
                "step %d: %s leaves %.0f %% of the energy of %s in error, more than %.0f %%. Give it more bits, or a "
                "codec with less error; print(state.report()) shows all parameters",
                gauge.step, gauge.compression, 100 * gauge.nmse, gauge.name, 100 * most_nmse,
            )  # fmt: skip
