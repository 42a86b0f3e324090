"""What `joinsum train` shows: lines, the table of plans, progress, and the picture of the loss."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from joinsum.extreme.plans import FIGURES, Decision, figure_text

if TYPE_CHECKING:
    from rich.console import Console as RichConsole
    from rich.progress import Progress as RichProgress

__all__ = ["Console", "EpochProgress", "draw_curve"]

_SECONDS_BETWEEN_LINES = 5.0
_WIDTH_OF_FILES = 120


class Console:
    """Writes to standard output; a silent one, for ranks other than 0, writes nothing."""

    def __init__(self, silent: bool = False) -> None:
        from rich.console import Console as RichConsole

        self.silent = silent
        width = None if sys.stdout.isatty() else _WIDTH_OF_FILES
        self.rich: RichConsole = RichConsole(width=width, quiet=silent, highlight=False, soft_wrap=True)

    def report(self, text: str) -> None:
        """Writes one line."""
        self.rich.print(text, markup=False)

    def show_plans(self, decision: Decision, forced: bool) -> None:
        """Writes the costs of both plans, which one runs, and why."""
        from rich.table import Table

        table = Table(title=f"one training step, chosen by {decision.by}" if not forced else "one training step")
        table.add_column("plan")
        for heading in ("seconds (predicted)", "bytes on the wire", "paper's floats", "peak memory of a site"):
            table.add_column(heading, justify="right")
        table.add_column("")
        for plan, cost in decision.costs.items():
            figures = [figure_text(figure, getattr(cost, figure)) for figure in FIGURES]
            peak = figure_text("peak_bytes", cost.peak_bytes)
            note = "runs" if plan == decision.chosen else "does not fit" if plan in decision.refused else ""
            table.add_row(f"{plan} parallel", *figures, peak, note)
        self.rich.print(table)
        self.report(f"plan: {decision.reason}")

    def epoch(self, title: str, points: int) -> EpochProgress:
        """Progress of one epoch; use it in a `with` statement."""
        return EpochProgress(self, title, points)


class EpochProgress:
    """A bar on a terminal; elsewhere a line every few seconds."""

    def __init__(self, console: Console, title: str, points: int) -> None:
        self._console, self._title, self._points = console, title, points
        self._bar: RichProgress | None = None
        self._done, self._loss = 0, float("nan")

    def __enter__(self) -> EpochProgress:
        self._start = self._reported = time.perf_counter()
        if self._console.rich.is_terminal and not self._console.silent:
            from rich import progress

            columns = (
                progress.TextColumn("{task.description}"),
                progress.BarColumn(),
                progress.TextColumn("{task.completed}/{task.total} points  {task.fields[rate]}"),
                progress.TimeRemainingColumn(),
            )
            self._bar = progress.Progress(*columns, console=self._console.rich, transient=True)
            self._task = self._bar.add_task(self._title, total=self._points, rate="")
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    @property
    def points_per_second(self) -> float:
        """Since the epoch began."""
        return self._done / max(time.perf_counter() - self._start, 1e-9)

    def advance(self, points: int, loss: float) -> None:
        """Says that a batch of `points` was trained on, at that loss."""
        self._done += points
        rate = f"loss {loss:.4g}  {self.points_per_second:,.0f} points/s"
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done, rate=rate)
        elif time.perf_counter() - self._reported >= _SECONDS_BETWEEN_LINES:
            self._reported = time.perf_counter()
            self._console.report(f"{self._title}: {self._done:,}/{self._points:,} points  {rate}")


def draw_curve(path: Path, losses: Sequence[float], epoch_ends: Sequence[int], means: Sequence[float]) -> None:
    """Writes a PNG: the loss of each step, and at the end of each epoch the mean of its steps."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot(range(1, len(losses) + 1), losses, linewidth=0.8, color="tab:blue", alpha=0.6, label="each step")
    axes.plot(epoch_ends, means, "o-", color="tab:red", label="mean of each epoch")
    axes.set_yscale("log")
    axes.set_xlabel("step")
    axes.set_ylabel("loss: binary cross entropy,\nsum over labels, mean over points")
    axes.set_title("training loss")
    axes.grid(True, which="both", alpha=0.3)
    axes.legend()
    beside = path.with_name(f".{path.name}.part")
    figure.savefig(beside, format="png", dpi=120)
    beside.replace(path)
