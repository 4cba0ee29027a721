"""The demo's results: as a table, as a picture and as JSON."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

# Colour-blind safe (Okabe and Ito); the first is drawn wide, so that it stays visible under other curves.
_COLOURS = ("#999999", "#0072b2", "#d55e00")
_LINE_WIDTHS = (4.5, 1.8, 1.8)


@dataclass(frozen=True)
class Point:
    step: int
    seconds: float
    loss: float


@dataclass(frozen=True)
class Run:
    """One training. Times and bytes are means over all steps but the first, in which DDP lays out its buckets."""

    name: str
    compression: str
    milliseconds_per_step: float
    tokens_per_second: float
    megabytes_sent_per_step: float
    validation: list[Point]

    @property
    def final(self) -> Point:
        return self.validation[-1]


@dataclass(frozen=True)
class Result:
    ranks: int
    link_rate: str
    parameters: int
    runs: list[Run]

    @staticmethod
    def collect(events: list[dict[str, Any]], compressions: dict[str, str], ranks: int, link_rate: str) -> "Result":
        start = next(event for event in events if event["event"] == "start")
        runs = [_run(name, spec, events, start["tokens_per_step"]) for name, spec in compressions.items()]
        return Result(ranks, link_rate, start["parameters"], runs)

    def speed_up(self, run: Run) -> float:
        return self.runs[0].milliseconds_per_step / run.milliseconds_per_step

    def loss_change(self, run: Run) -> float:
        """The change of the final validation loss against the first run's, in percent."""
        return 100 * (run.final.loss / self.runs[0].final.loss - 1)

    def conclusion(self) -> str:
        best = max(self.runs[1:], key=self.speed_up)
        factor = self.speed_up(best)
        pace = f"{factor:.1f} times as fast as" if factor >= 1.05 else f"no faster ({factor:.2f} times) than"
        return (
            f"{best.name} trained {pace} {self.runs[0].name}, to a validation loss of {best.final.loss:.3f} "
            f"against {self.runs[0].final.loss:.3f} ({self.loss_change(best):+.2f} %) after {best.final.step} steps."
        )

    def table(self) -> Table:
        table = Table(title=self._title(), caption="MB sent by each rank; loss in nats a byte, at the same step")
        table.add_column("gradients")
        for heading in ("ms/step", "tokens/s", "MB sent/step", "val. loss", "speed-up"):
            table.add_column(heading, justify="right")
        for run in self.runs:
            table.add_row(
                run.name,
                f"{run.milliseconds_per_step:.0f}",
                f"{run.tokens_per_second:.0f}",
                f"{run.megabytes_sent_per_step:.2f}",
                f"{run.final.loss:.3f}",
                f"{self.speed_up(run):.2f} x",
            )
        return table

    def write_json(self, path: Path) -> None:
        content = asdict(self)
        for entry, run in zip(content["runs"], self.runs, strict=True):
            entry["speed_up"] = self.speed_up(run)
            entry["loss_change_percent"] = self.loss_change(run)
        content["conclusion"] = self.conclusion()
        path.write_text(json.dumps(content, indent=2) + "\n")

    def draw(self, path: Path) -> None:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        style = {
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.alpha": 0.25,
            "font.size": 10,
            "axes.titlesize": 11,
            "axes.titleweight": "bold",
        }
        with pyplot.rc_context(style):
            figure, (by_step, by_time, sent) = pyplot.subplots(
                1, 3, figsize=(13, 4.2), width_ratios=(1, 1, 0.75), layout="constrained"
            )
            _draw_losses(by_step, self.runs, lambda point: point.step, "training steps")
            by_step.set_title("Loss against steps")
            _draw_losses(by_time, self.runs, lambda point: point.seconds, "seconds of training")
            by_time.set_title("Loss against time")
            _draw_bytes(sent, self.runs)
            sent.set_title("Sent")
            figure.suptitle(self._title())
            figure.savefig(path, dpi=150)
            pyplot.close(figure)

    def _title(self) -> str:
        link = "an unpaced link" if self.link_rate == "none" else f"{self.link_rate} a rank"
        return f"GPT of {self.parameters / 1e6:.1f} M parameters, {self.ranks} ranks, DDP over QCCL, TCP, {link}"


def _run(name: str, spec: str, events: list[dict[str, Any]], tokens_per_step: int) -> Run:
    own = [event for event in events if event.get("compression") == spec]
    steps = [event for event in own if event["event"] == "step"]
    timed = steps[1:] or steps
    seconds = sum(step["seconds"] for step in timed) / len(timed)
    points = [
        Point(event["step"], event["seconds"], event["loss"]) for event in own if event["event"] == "validation"
    ]
    return Run(
        name=name,
        compression=spec,
        milliseconds_per_step=1000 * seconds,
        tokens_per_second=tokens_per_step / seconds,
        megabytes_sent_per_step=sum(step["bytes_sent"] for step in timed) / len(timed) / 1e6,
        validation=points,
    )


def _draw_losses(axes: Any, runs: list[Run], position: Any, label: str) -> None:
    for run, colour, width in zip(runs, _COLOURS, _LINE_WIDTHS, strict=True):
        places = [position(point) for point in run.validation]
        losses = [point.loss for point in run.validation]
        axes.plot(places, losses, color=colour, label=run.name, marker="o", markersize=1.5 + width, linewidth=width)
    axes.set_xlabel(label)
    axes.set_ylabel("validation loss, nats a byte")
    axes.set_xlim(left=0)
    axes.legend(frameon=False)


def _draw_bytes(axes: Any, runs: list[Run]) -> None:
    names = [run.name for run in runs]
    bars = axes.bar(names, [run.megabytes_sent_per_step for run in runs], color=_COLOURS, width=0.6)
    axes.bar_label(bars, fmt="%.2f", padding=2)
    axes.set_ylabel("MB sent per rank and step")
    axes.grid(axis="x", visible=False)
