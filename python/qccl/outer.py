"""Training that synchronises every H steps (docs/outer.md): DiLoCo, streaming DiLoCo, SparseLoCo, parameter averaging.

    outer = qccl.outer.OuterLoop(model, every=100, fragments=4, delay=5, compression="int:bits=4")
    for batch in batches:
        ...
        optimizer.step()
        outer.step()
    outer.finish()
"""

import io
import operator
import re
import warnings
import weakref
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, Literal, NamedTuple, SupportsIndex

import torch
import torch.distributed as dist

from . import _C
from ._api import backend_of
from ._failures import check_shrink_options, shrink

OptimizerFactory = Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]
_RATES = {"kbit": 125.0, "mbit": 125e3, "gbit": 125e6}  # bytes a second
_TIMES = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


class PlanRow(NamedTuple):
    """For a codec and a number of fragments the smallest H that is enough; 0 if none up to 5000 is."""

    compression: str
    fragments: int
    every: int
    delay: int
    computing: float  # share of the time
    bytes_a_step: float  # sent by a rank
    round_seconds: float  # of a fragment


class Plan(list[PlanRow]):
    """The rows of plan(); as text, a table."""

    def __init__(self, rows: list[PlanRow], table: str) -> None:
        super().__init__(rows)
        self._table = table

    def __str__(self) -> str:
        return self._table


def plan(
    model: torch.nn.Module | int,
    *,
    rate: str,
    latency: str,
    step_seconds: float,
    ranks: int | None = None,
    computing: float = 0.9,
) -> Plan:
    """How often ranks on slow lines can synchronise and still compute for most of the time, as `qccl plan outer` says.

        print(qccl.outer.plan(model, rate="50mbit", latency="20ms", step_seconds=0.4, ranks=4))

    Args:
        model: or its number of parameters. Of a model, rows with more fragments than layers are left out.
        rate: of each rank's line, out and in: "50mbit", "1gbit".
        latency: from rank to rank, one way: "20ms".
        step_seconds: of a step of the inner optimizer.
        ranks: each on a machine of its own. None: as many as the default group has.
        computing: the share of the time that is to be left for computing.

    Local: makes no call to other ranks. Raises ValueError for arguments without a meaning.
    """
    trained = {} if isinstance(model, int) else _trained(model)
    parameters = model if isinstance(model, int) else sum(each.numel() for each in trained.values())
    if ranks is None and not dist.is_initialized():
        raise ValueError("qccl: outer plan: there is no default group: give ranks=")
    line = (_amount(rate, _RATES, "rate"), _amount(latency, _TIMES, "latency"))
    world = dist.get_world_size() if ranks is None else ranks
    rows, table = _C.plan_outer((max(0, parameters), list(trained)), world, step_seconds, computing, line)
    return Plan([PlanRow(*each) for each in rows], table)


def _amount(text: str, units: dict[str, float], what: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?) *([a-z]+)", text.lower())
    if not found or found[2] not in units:
        raise ValueError(f"qccl: outer plan: {what}={text!r} is not a number with {', '.join(units)}")
    return float(found[1]) * units[found[2]]


class OuterLoop:
    """qccl::train::OuterLoop (include/qccl/outer.h) over a module: the same state, bytes and bits.

    Each rank trains alone. Every `every` steps a fragment's delta, the global model minus the rank's own, is averaged
    over the ranks, the outer optimizer steps the global model by it, and the rank goes on from there. Collective: all
    ranks make it with the same arguments, and get rank 0's parameters; a rank that joins later gets the global model.

    Args:
        every: steps between two rounds of a fragment (H), or a time (timedelta), in which ranks make different numbers
            of steps; `delay` is in steps all the same.
        fragments: parts of the model (P) that are synchronised in turn; layer i is in fragment i mod P.
        delay: steps for which a rank trains on before it waits for a round's average (tau), at most every / fragments.
        blend: share of its own model that a rank keeps at the end of a round (alpha).
        compression: of the deltas, for example "int:bits=4" or "h4:bits=2". Buffers are never compressed.
        error_feedback: adds what compression left out to the next delta, multiplied by `error_decay`.
        bfloat16_residual: keeps that in bfloat16: half of the memory.
        weighted: deltas count by the samples given to step(), instead of equally. None: if `every` is a time.
        outer_optimizer: makes the optimizer of the global model from parameters that it is given; None is SGD with a
            rate of 0.7 and Nesterov momentum of 0.9. SGD with one parameter group and without dampening, weight decay
            and maximize is computed by the library, which reads its rate before each step: on all ranks, a scheduler of
            `outer.outer_optimizer` may change it. Of others one is made for each fragment (and one, of zeros, to look
            at its settings), and `outer.outer_optimizer` is then None.
        buffers: "average" averages persistent buffers of floating point, such as batch norm's statistics; "keep" leaves
            each rank its own.
        group: None is the default group.
        go_on: after the loss of ranks, goes on with those that live, as qccl.shrink(), in the default group or in
            `group`. `self.group` is then the new one.
        quorum: of that call of qccl.shrink().
        patience: of that call of qccl.shrink().

    Parameters may be of any floating point type, on any device; deltas are float32, in host memory. Parameters that
    require no gradient when the loop is made are not synchronised, nor sent: all ranks must have the same.

    Raises ValueError for wrong arguments, and if they, the module's parameters or the outer optimizer differ between
    ranks; DistNetworkError or DistBackendError after the loss of a rank, also with `go_on`.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        *,
        every: SupportsIndex | timedelta = 100,
        fragments: SupportsIndex = 1,
        delay: SupportsIndex = 0,
        blend: float = 0.0,
        compression: str = "none",
        error_feedback: bool = True,
        error_decay: float = 1.0,
        bfloat16_residual: bool = False,
        weighted: bool | None = None,
        outer_optimizer: OptimizerFactory | None = None,
        buffers: Literal["average", "keep"] = "average",
        group: dist.ProcessGroup | None = None,
        go_on: bool = True,
        quorum: Literal["majority", "any"] = "majority",
        patience: timedelta | None = None,
    ) -> None:
        if buffers not in ("average", "keep"):
            raise ValueError(f'buffers is "average" or "keep", not {buffers!r}')
        check_shrink_options(quorum, patience)
        parts = _count("fragments", fragments, 1)
        if _C.check_compression(compression).startswith("int:bits=2,"):
            warnings.warn(f"{compression} holds back twice a delta; h4:bits=2 sends as many bytes", stacklevel=2)
        tensors = [(name, each.detach(), False) for name, each in _trained(model).items()]
        shapes = [each.shape for _, each, _ in tensors]
        if buffers == "average":
            tensors += [(name, each, True) for name, each in _statistics(model).items()]
        self.group = group
        self._shrink = partial(shrink, quorum=quorum, patience=patience)
        self._shapes = [each.shape for _, each, _ in tensors]
        self._names = [name for name, _, _ in tensors]
        make = outer_optimizer or _default_optimizer
        made = _made_by(make, [torch.nn.Parameter(torch.zeros(()).expand(each)) for each in shapes])
        as_sgd = _as_sgd(made)
        self.outer_optimizer = made if as_sgd else None
        made._opt_called = True  # type: ignore[attr-defined]  # else its schedulers warn: nobody calls its step()
        optimizer = as_sgd or _FragmentOptimizers(self, make, self._shapes, _settings_of(made))
        settings = {
            "every": parts if isinstance(every, timedelta) else _count("every", every, 1),
            "every_ms": _milliseconds(every) if isinstance(every, timedelta) else None,
            "fragments": parts,
            "delay": _count("delay", delay, 0),
            "blend": blend,
            "compression": compression,
            "error_feedback": error_feedback,
            "error_decay": error_decay,
            "bfloat16_residual": bfloat16_residual,
            "is_weighted": isinstance(every, timedelta) if weighted is None else weighted,
            "replace_group": partial(OuterLoop._replacing_backend, weakref.proxy(self)) if go_on else None,
        }
        self._loop = _C.OuterLoop(backend_of(group), tensors, optimizer, settings)
        self._take_rate()

    def step(self, samples: float = 1) -> None:
        """After each step of the inner optimizer, which took so many samples.

        Raises what torch.distributed raises: without `go_on` for lost ranks (then call regroup()), otherwise if too few
        ranks are left. Raises ValueError on all ranks if their outer optimizers' rates differed when the round began;
        with one rate, the next call begins it again. Raises ValueError, and counts no step, for samples that are
        negative or not finite.
        """
        self._with_rate(lambda: self._loop.step(samples))

    def finish(self) -> None:
        """Waits until all ranks have called it, and synchronises all fragments: all ranks then have the same model."""
        self._with_rate(self._loop.finish)

    def regroup(self, group: dist.ProcessGroup | None = None) -> None:
        """Goes on in another group (None: the default group), after qccl.shrink() or qccl.grow(). Collective over it: a
        rank that has joined makes its OuterLoop meanwhile."""
        self.group = group
        self._with_rate(lambda: self._loop.regroup(backend_of(group)))

    @property
    def begins_round(self) -> bool:
        """Whether the next step() begins a round, possibly after ending one. With a time as `every`: as of now; it may
        become true before the call."""
        return self._loop.begins_round

    @property
    def steps(self) -> int:
        """Calls of step(). A rank that has joined, or missed a round, gets the number of the others."""
        return self._loop.steps

    def stats(self) -> list[dict[str, Any]]:
        """The last 10,000 rounds: "round", "fragment", "step", "ranks", "bytes" (all that this rank sent meanwhile, by
        other calls too), "seconds_waited" (in calls of this class and between a failure and the next call), "seconds"
        (since the round before), "computing" (share of that in which it did not wait), "delta_norm", "residual_norm",
        "ended_ns" (on the machine's monotonic clock). The log has them as well, if it is enabled
        (qccl.configure_log())."""
        return self._loop.history()

    def global_state(self) -> dict[str, torch.Tensor]:
        """The global model by the names of parameters and averaged buffers, float32: the same bits on all ranks that
        have ended the same rounds."""
        values: dict[str, torch.Tensor] = {}
        for fragment in range(self._loop.fragments):
            rest = self._loop.global_values(fragment)
            for member in self._loop.members(fragment):
                count = self._shapes[member].numel()
                values[self._names[member]] = rest[:count].view(self._shapes[member])
                rest = rest[count:]
        return values

    def state_dict(self) -> dict[str, Any]:
        """This rank's state, a round in flight included. Each rank saves its own, with model and inner optimizer."""
        return {"saved": self._loop.save()}

    def load_state_dict(self, state: dict[str, Any], *, own: bool = True) -> None:
        """Into a loop that was made with the same arguments. Load the model's parameters after making it.

        Args:
            own: False for another rank's state, where there are more ranks than there were: the residual begins with
                zeros, and the parameters become the global model: leave them so. With fewer ranks, those that are
                missing take their residuals and their steps since the last round with them.

        States of different rounds make the next round fail on all ranks with ValueError.

        Raises ValueError for another model or other arguments, DistNetworkError if the state is damaged,
        NotImplementedError if another version saved it, DistBackendError if a round is in flight: load into a new loop.
        """
        self._loop.load(state["saved"], own)
        self._take_rate()

    def _replacing_backend(self, loss: Exception) -> Any:
        """The library calls it after a loss, and goes on in the group of this backend."""
        self._replace_group(loss)
        return backend_of(self.group)

    def _replace_group(self, loss: Exception) -> None:
        self.group = self._shrink(self.group)

    def _with_rate(self, call: Callable[[], None]) -> None:
        self._give_rate()
        try:
            call()
        finally:
            self._take_rate()

    def _give_rate(self) -> None:
        if self.outer_optimizer is not None:
            self._loop.learning_rate = float(self.outer_optimizer.param_groups[0]["lr"])

    def _take_rate(self) -> None:
        """That of a saved state, or of the ranks from which this one has taken all over."""
        if self.outer_optimizer is None:
            return
        settings = self.outer_optimizer.param_groups[0]
        if float(settings["lr"]) != self._loop.learning_rate:  # a tensor stays one
            settings["lr"] = self._loop.learning_rate


def _trained(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    return {name: each for name, each in model.named_parameters() if each.requires_grad}


def _statistics(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Buffers that training changes, rather than tables that a module has made: they are part of a checkpoint."""
    tables = {
        f"{prefix}.{name}".lstrip(".")
        for prefix, module in model.named_modules()
        for name in module._non_persistent_buffers_set
    }
    return {name: each for name, each in model.named_buffers() if each.is_floating_point() and name not in tables}


def _count(name: str, value: Any, least: int) -> int:
    try:
        count = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is an integer{' or a timedelta' if name == 'every' else ''}, not {value!r}") from None
    if count < least:
        raise ValueError(f"{name} must be at least {least}, not {count}")
    return count


def _milliseconds(every: timedelta) -> int:
    if every <= timedelta():
        raise ValueError(f"every must be positive, not {every}")
    return max(1, round(every.total_seconds() * 1000))


def _default_optimizer(parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.7, momentum=0.9, nesterov=True)


def _made_by(make: OptimizerFactory, parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    made = make(parameters)
    taken = [id(each) for group in made.param_groups for each in group["params"]]
    if sorted(taken) != sorted(map(id, parameters)):
        raise ValueError(f"outer_optimizer took {len(taken)} of {len(parameters)} parameters: it must step all of them")
    return made


def _settings_of(optimizer: torch.optim.Optimizer) -> str:
    """Without what is off, which a release may lack."""
    kept = (int, float, str, tuple, list, torch.Tensor)
    groups = [
        sorted((name, value) for name, value in group.items() if name != "params" and isinstance(value, kept) and value)
        for group in optimizer.param_groups
    ]
    return f"{type(optimizer).__name__} {groups}"


def _as_sgd(optimizer: torch.optim.Optimizer) -> tuple[float, float, bool] | None:
    """Rate, momentum and Nesterov, if that is all that the optimizer does."""
    settings = optimizer.param_groups[0]
    if len(optimizer.param_groups) > 1:
        return None
    others = ("weight_decay", "dampening", "maximize")
    if type(optimizer) is not torch.optim.SGD or any(settings[each] for each in others):
        return None
    return float(settings["lr"]), settings["momentum"], settings["nesterov"]


class _FragmentOptimizers:
    """An optimizer for each fragment, over the library's memory of its global values."""

    def __init__(self, loop: OuterLoop, make: OptimizerFactory, shapes: list[torch.Size], settings: str) -> None:
        self.settings = settings  # equal on all ranks
        self._loop = weakref.proxy(loop)  # which owns this
        self._make = make
        self._shapes = shapes
        self._parameters: dict[int, list[torch.nn.Parameter]] = {}
        self._made: dict[int, torch.optim.Optimizer] = {}
        self._loaded: dict[int, bytes] = {}

    def step(self, fragment: int, values: torch.Tensor, gradient: torch.Tensor) -> None:
        if fragment not in self._made:
            parameters = [torch.nn.Parameter(each) for each in self._parts(fragment, values)]
            self._parameters[fragment] = parameters
            self._made[fragment] = _made_by(self._make, parameters)
            if fragment in self._loaded:
                state = torch.load(io.BytesIO(self._loaded.pop(fragment)), weights_only=True)
                self._made[fragment].load_state_dict(state)
        optimizer = self._made[fragment]
        for each, part in zip(self._parameters[fragment], self._parts(fragment, gradient), strict=True):
            each.grad = part
        optimizer.step()
        optimizer.zero_grad()

    def save(self, fragment: int) -> bytes:
        if fragment not in self._made:
            return self._loaded.get(fragment, b"")
        saved = io.BytesIO()
        torch.save(self._made[fragment].state_dict(), saved)
        return saved.getvalue()

    def load(self, fragment: int, saved: bytes) -> None:
        self._made.pop(fragment, None)
        self._loaded.pop(fragment, None)
        if saved:
            self._loaded[fragment] = saved

    def _parts(self, fragment: int, values: torch.Tensor) -> list[torch.Tensor]:
        parts: list[torch.Tensor] = []
        for member in self._loop._loop.members(fragment):
            count = self._shapes[member].numel()
            if not values.numel():
                break  # the averaged buffers, which the optimizer does not step
            parts.append(values[:count].view(self._shapes[member]))
            values = values[count:]
        return parts
