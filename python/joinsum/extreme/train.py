"""Training of the extreme classifier on data files, as `joinsum train` does it.

One process runs any number of sites; under `torchrun` every rank is one site, reads the same files and takes the same
batches, and rank 0 alone prints and writes files.

>>> import pathlib, tempfile
>>> folder = pathlib.Path(tempfile.mkdtemp())
>>> _ = (folder / "train.txt").write_text("4 3 2\\n0 0:1\\n1 1:1\\n0 0:1 2:1\\n1 1:1 2:1\\n")
>>> options = Options(data=folder, sites=2, hidden=4, epochs=2, batch=2, save=folder / "run.pt", curve=None)
>>> history = train(options, Console(silent=True))
>>> len(history.losses), len(history.epoch_losses)
(4, 2)
"""

from __future__ import annotations

import math
import os
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

import joinsum
from joinsum import extreme
from joinsum.extreme import checkpoint
from joinsum.extreme.classifier import Classifier, Decision, Sizes, Training, choose
from joinsum.extreme.console import Console, draw_curve

__all__ = ["Console", "Diverged", "History", "Options", "UsageError", "train"]


class UsageError(ValueError):
    """Options that cannot be right: a missing file, an unwritable output, a checkpoint that does not fit."""


class Diverged(ArithmeticError):
    """The loss is no longer a finite number."""


@dataclass(frozen=True)
class Options:
    """The options of `joinsum train`, by their names.

    data          folder with train.txt[.gz] and perhaps test.txt[.gz], or a training file
    test          test file; by default the folder's
    sites         sites of this process, by default 1; on a process group its size
    lr            Adam's learning rate
    plan          auto, data or model; `cost` is the figure by which auto chooses
    dense         whether features are stored densely; by default as they are, sparse
    save          checkpoint, written after each epoch; None for none
    resume        checkpoint to go on from
    curve         picture of the loss; None for none
    limit_steps   steps of an epoch at most
    memory_limit  bytes that a site may hold
    """

    data: Path
    test: Path | None = None
    sites: int | None = None
    hidden: int = 256
    epochs: int = 4
    batch: int = 256
    lr: float = 2e-2
    seed: int = 0
    plan: str = "auto"
    cost: str = "seconds"
    dense: bool = False
    save: Path | None = Path("outputs/classifier.pt")
    resume: Path | None = None
    curve: Path | None = Path("outputs/loss.png")
    limit_steps: int | None = None
    memory_limit: int | None = None


@dataclass
class History:
    """What a training run has seen: the loss of each step; for each epoch its last step, mean loss and precision."""

    losses: list[float] = field(default_factory=list)
    epoch_ends: list[int] = field(default_factory=list)
    epoch_losses: list[float] = field(default_factory=list)
    precisions: list[dict[str, float]] = field(default_factory=list)


def train(options: Options, console: Console) -> History:
    """Trains, reports on `console`, and returns the history, of earlier epochs too where it resumed.

    Raises UsageError; DataError for malformed files; PlanError where no plan fits; TransportError where a site is lost;
    Diverged. KeyboardInterrupt passes through after a line about the checkpoint that is left.
    """
    run = _Run(options, console)
    try:
        for epoch in range(run.epoch + 1, options.epochs + 1):
            run.train_epoch(epoch)
    except KeyboardInterrupt:
        console.report(run.interruption_text())
        raise
    run.finish()
    return run.history


class _Run:
    """One training run. The constructor prepares it, and first does what can fail quickly."""

    def __init__(self, options: Options, console: Console) -> None:
        self.options, self.console = options, console
        self.epoch = 0
        self.history = History()
        self.started = time.perf_counter()
        train_file, test_file = _find_files(options)
        _prepare_outputs(options)
        found = _load_checkpoint(options.resume)
        header = _read_header(train_file, None)
        if test_file is not None:
            _read_header(test_file, header)
        points = min(options.batch, header.points)
        self.sizes = Sizes(points, header.features, options.hidden, header.labels)
        if found is not None:
            _check_sizes(found, self.sizes, options)
        self._init_sites()
        console.report(f"reading {train_file}" + (f" and {test_file}" if test_file else ""))
        self.points = extreme.load(train_file)
        self.test = None if test_file is None else extreme.load(test_file)
        console.report(f"{header.points:,} points, {header.features:,} features, {header.labels:,} labels")
        self._report_baseline()
        if not options.dense:
            self.sizes = self.sizes._replace(entries=round(len(self.points.indices) / header.points * points))
        plan = self._choose_plan()
        self.classifier = Classifier(self.sizes, plan, Training(rate=options.lr), options.seed)
        self.generator = torch.Generator().manual_seed(options.seed)
        features = torch.empty(points, header.features) if options.dense else None
        self.buffers = extreme.DenseBatch(features, torch.empty(points, header.labels))
        self.configuration = {"batch": options.batch, "lr": options.lr, "seed": options.seed, "plan": plan}
        self.configuration["sites"] = joinsum.sites()
        if found is not None:
            self._resume_from(found)

    def train_epoch(self, epoch: int) -> None:
        """Trains on every point once, measures, and saves."""
        options, points = self.options, len(self.points)
        if options.limit_steps is not None:
            points = min(points, options.limit_steps * self.sizes.points)
        total = trained = 0.0
        with self.console.epoch(f"epoch {epoch}/{options.epochs}", points) as progress:
            for rows in self.points.minibatches(self.sizes.points, self.generator):
                if trained >= points:
                    break
                loss = self.classifier.step(*self.points.batch(rows, out=self.buffers))
                if not math.isfinite(loss):
                    raise Diverged(f"loss is not a finite number: loss={loss}, step={self.classifier.steps}")
                self.history.losses.append(loss)
                total, trained = total + loss * len(rows), trained + len(rows)
                progress.advance(len(rows), loss)
            rate = progress.points_per_second
        self.history.epoch_losses.append(total / trained)
        self.history.epoch_ends.append(len(self.history.losses))
        self.history.precisions.append(self._precision())
        self.console.report(
            f"epoch {epoch}/{options.epochs}: mean loss {total / trained:.4f}"
            f"{_precision_text(self.history.precisions[-1])}, {rate:,.0f} points/s"
        )
        self.epoch = epoch
        self._save()

    def finish(self) -> None:
        """Writes the last line."""
        written = [f"classifier in {self.options.save}"] if self.options.save else []
        written += [f"loss curve in {self.options.curve}"] if self.options.curve and self.history.losses else []
        seconds = time.perf_counter() - self.started
        self.console.report(
            "; ".join([f"done: epoch {self.epoch}, {self.classifier.steps:,} steps, {seconds:.0f} s", *written])
        )

    def interruption_text(self) -> str:
        """The last line of an interrupted run. It reads the file, as the interrupt may have come during writing."""
        save = self.options.save
        if self.epoch == 0 or save is None or not save.exists():
            return "interrupted: no epoch has been saved"
        return f"interrupted: {save} holds epoch {checkpoint.load(save)['epoch']}; go on with --resume {save}"

    def _init_sites(self) -> None:
        ranks = os.environ.get("WORLD_SIZE") if "RANK" in os.environ else None
        sites = self.options.sites
        if ranks is not None and sites is not None and sites != int(ranks):
            raise UsageError(f"--sites: torchrun has one site per rank: sites={sites}, ranks={ranks}")
        context = joinsum.init(sites=sites)
        where = "this process" if context.loopback else f"{context.sites} processes"
        self.console.report(f"sites: {context.sites} (grid {context.grid}) in {where}")

    def _choose_plan(self) -> str:
        """Prices both plans and reports that; returns the one to run."""
        options = self.options
        cluster = replace(joinsum.context().cluster, memory_bytes=options.memory_limit)
        decision: Decision = choose(self.sizes, joinsum.sites(), options.cost, cluster, Training(rate=options.lr))
        forced = options.plan != "auto"
        if forced:
            if options.plan in decision.refused:
                raise joinsum.PlanError(decision.refused[options.plan])
            reason = f"{options.plan} parallel, because it was requested"
            decision = replace(decision, chosen=options.plan, reason=reason)
        self.console.report(f"costs are for {cluster.name}")
        self.console.show_plans(decision, forced)
        return decision.chosen

    def _report_baseline(self) -> None:
        if self.test is None:
            self.console.report("no test file: precision is not measured")
            return
        ks = self._ks()
        values = extreme.frequency_baseline(self.points, self.test, ks)
        most_frequent = {f"P@{k}": float(value) for k, value in zip(ks, values, strict=True)}
        self.console.report(f"baseline, the most frequent labels{_precision_text(most_frequent)}")

    def _ks(self) -> tuple[int, ...]:
        return tuple(k for k in (1, 3, 5) if k <= self.sizes.labels)

    def _precision(self) -> dict[str, float]:
        """Precision on the test set, batch by batch."""
        if self.test is None:
            return {}
        ks, sums = self._ks(), torch.zeros(len(self._ks()), dtype=torch.float64)
        for start in range(0, len(self.test), self.sizes.points):
            rows = range(start, min(start + self.sizes.points, len(self.test)))
            x, y = self.test.batch(rows, out=self.buffers)
            sums += extreme.precision_sums(self.classifier.scores(x), y, ks)
        return {f"P@{k}": value / len(self.test) for k, value in zip(ks, sums.tolist(), strict=True)}

    def _save(self) -> None:
        """Writes checkpoint and curve; every rank takes part in collecting the weights."""
        state = self.classifier.state_dict()
        if 0 not in joinsum.context().local_sites:
            return
        if self.options.save is not None:
            content = {
                "epoch": self.epoch,
                "sizes": _model_sizes(self.sizes),
                "state": state,
                "generator": self.generator.get_state(),
                "configuration": self.configuration,
                "history": asdict(self.history),
            }
            checkpoint.save(self.options.save, content)
        if self.options.curve is not None:
            history = self.history
            draw_curve(self.options.curve, history.losses, history.epoch_ends, history.epoch_losses)

    def _resume_from(self, found: dict[str, Any]) -> None:
        self.classifier.load_state_dict(found["state"])
        self.generator.set_state(found["generator"])
        self.history = History(**found["history"])
        self.epoch = found["epoch"]
        self.console.report(f"going on after epoch {self.epoch} of {self.options.resume}")
        then = found["configuration"]
        changed = [
            f"{name}={then.get(name)}, now {value}"
            for name, value in self.configuration.items()
            if then.get(name) != value
        ]
        if changed:
            self.console.report(f"note: that run had {'; '.join(changed)}")


def _find_files(options: Options) -> tuple[Path, Path | None]:
    """The training file, and the test file if there is one."""
    data, test = options.data, options.test
    if data.is_dir():
        train_file = _in_folder(data, "train")
        if train_file is None:
            raise UsageError(f"--data: folder has no train.txt or train.txt.gz: folder={data}")
        test = _in_folder(data, "test") if test is None else test
    elif data.exists():
        train_file = data
    else:
        raise UsageError(f"--data: no such file or folder: path={data}")
    if test is not None and not test.is_file():
        raise UsageError(f"--test: no such file: path={test}")
    return train_file, test


def _in_folder(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / f"{name}.txt", folder / f"{name}.txt.gz") if path.is_file()), None)


def _prepare_outputs(options: Options) -> None:
    for name in ("hidden", "batch", "lr", "limit_steps"):
        value = getattr(options, name)
        if value is not None and not value > 0:
            raise UsageError(f"--{name.replace('_', '-')}: not above 0: {name}={value}")
    for name in ("save", "curve"):
        path = getattr(options, name)
        try:
            if path is not None:
                checkpoint.prepare_path(path)
        except OSError as error:
            raise UsageError(f"--{name}: {error}") from None


def _read_header(path: Path, train: extreme.Header | None) -> extreme.Header:
    """The header of a file that has points and, if it is the test file, the training file's features and labels."""
    stream = extreme.read_points(path)
    stream.close()
    header = stream.header
    if header.points == 0:
        raise extreme.DataError(str(path), 1, "file has no points: points=0")
    if train is not None and header[1:] != train[1:]:
        raise extreme.DataError(
            str(path),
            1,
            f"sizes are not the training file's: features={header.features}, labels={header.labels}, "
            f"training features={train.features}, training labels={train.labels}",
        )
    return header


def _load_checkpoint(path: Path | None) -> dict[str, Any] | None:
    if path is None:
        return None
    try:
        return checkpoint.load(path)
    except (joinsum.CheckpointError, OSError) as error:
        raise UsageError(f"--resume: {error}") from None


def _model_sizes(sizes: Sizes) -> dict[str, int]:
    return {"features": sizes.features, "hidden": sizes.hidden, "labels": sizes.labels}


def _check_sizes(found: dict[str, Any], sizes: Sizes, options: Options) -> None:
    wanted = _model_sizes(sizes)
    if found["sizes"] != wanted:
        raise UsageError(
            f"--resume: checkpoint is of other sizes: path={options.resume}, checkpoint={found['sizes']}, run={wanted}"
        )


def _precision_text(precision: dict[str, float]) -> str:
    return "".join(f", {name} {value:.4f}" for name, value in precision.items())
