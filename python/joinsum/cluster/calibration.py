"""Calibration files: what `joinsum.calibrate` has measured, for which sites, and whether it is valid on these."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from joinsum.base.errors import PlanError
from joinsum.base.files import write_atomically
from joinsum.cluster.cache_folder import cache_folder
from joinsum.cluster.cluster import Cluster
from joinsum.cluster.machine import Machine, Sites, machine_of
from joinsum.cluster.profile import Profile, Reader

__all__ = ["Calibration", "RejectedCalibration", "cluster_of", "load"]

FORMAT = "joinsum calibration"
VERSION = 5
_REMEDY = "calibrate these sites again (`joinsum calibrate`, under torchrun as the program is run), or delete the file"


class RejectedCalibration(PlanError):
    """A calibration file that is intact, but of other sites or versions: the message says what differs."""


@dataclass(frozen=True)
class Calibration:
    """A profile, with the machine that it was measured on and when (ISO 8601, UTC)."""

    machine: Machine
    time: str
    profile: Profile

    @staticmethod
    def now(machine: Machine, profile: Profile) -> Calibration:
        """A calibration that has just been measured."""
        return Calibration(machine, datetime.now(timezone.utc).isoformat(timespec="seconds"), profile)

    def text(self) -> str:
        """The file's contents."""
        found = {
            "format": FORMAT,
            "version": VERSION,
            "time": self.time,
            "machine": self.machine.to_json(),
            "profile": self.profile.to_json(),
        }
        return json.dumps(found, indent=1) + "\n"

    def write(self, path: str | Path | None, sites: Sites) -> None:
        """Writes the file atomically on the process of site 0; all sites must call. Raises PlanError on
        each of them where that fails."""
        problem = ""
        if 0 in sites.local_sites:
            target = Path(path) if path is not None else cache_folder() / self.machine.name
            try:
                write_atomically(target, self.text())
            except OSError as error:
                problem = f"calibrate: the file cannot be written: path={target}, reason={error.strerror or error}"
        problem = sites.transport.gather_texts("calibration", problem)[0]
        if problem:
            raise PlanError(problem)

    @staticmethod
    def of_text(text: str, path: str) -> Calibration:
        """Reads a file's contents; raises PlanError naming the place and the remedy, RejectedCalibration for another
        version of the format."""
        try:
            value = json.loads(text)
        except json.JSONDecodeError as error:
            raise PlanError(
                f"calibration: the file is cut off or damaged at line {error.lineno}, column {error.colno} "
                f"({error.msg}); {_REMEDY}: path={path}"
            ) from None
        try:
            reader = Reader(value, "file")
            if reader.text("format") != FORMAT:
                raise PlanError(f"file.format: not a calibration: got={reader.text('format')!r}")
            version = reader.number("version")
            if version != VERSION:
                reason = f"another version of the format: file={version:g}, here={VERSION}"
                raise RejectedCalibration(f"calibration: {reason}; {_REMEDY}: path={path}")
            machine = Reader(reader.get("machine"), "file.machine")
            return Calibration(
                Machine(
                    tuple(map(str, machine.entries("sites"))), _texts(machine, "layout"), _texts(machine, "libraries")
                ),
                reader.text("time"),
                Profile.of_json(reader.get("profile")),
            )
        except RejectedCalibration:
            raise
        except PlanError as error:
            raise PlanError(f"calibration: the file is damaged: {error}; {_REMEDY}: path={path}") from None

    def check(self, machine: Machine, path: str) -> None:
        """Raises RejectedCalibration unless it is one of `machine`."""
        reason = machine.difference(self.machine)
        if reason is not None:
            raise RejectedCalibration(f"calibration: {reason}; {_REMEDY}: path={path}")


def cluster_of(calibration: Calibration) -> Cluster:
    """The cluster that a calibration describes. Its flat rates are the profile's for large products and messages."""
    profile, machine = calibration.profile, calibration.machine
    layout = dict(machine.layout)
    default = Cluster()
    table = profile.products[0]
    flops = 2 * table.extents[-1] ** 3 / table.seconds[-1]
    day = calibration.time[:10]
    if not profile.links:
        name = f"calibrated {day} on {layout['transport']}, 10 Gbit between sites"
        return Cluster(name, flops, default.bytes_per_second, default.latency_seconds, profile=profile)
    widest = max(profile.links, key=lambda link: len(link.axes)).all
    name = f"calibrated {day} on {len(machine.sites)} ranks of {layout['transport']}"
    rate = widest.sizes[-1] / max(widest.seconds[-1], 1e-9)
    return Cluster(name, flops, rate, widest.seconds[0], profile=profile)


def load(sites: Sites, path: str | Path | None = None) -> Cluster | None:
    """The cluster of the calibration file for the context's sites; None where there is no file.

    Site 0's process reads it and shares it, so that all sites have the same; all must call. Raises PlanError for a
    damaged file and RejectedCalibration for one of other sites, versions or layout, on every site.
    """
    machine = machine_of(sites)
    target = Path(path) if path is not None else cache_folder() / machine.name
    found: dict[str, str] = {}
    if 0 in sites.local_sites:
        try:
            found = {"path": str(target), "text": target.read_text(encoding="utf-8")}
        except FileNotFoundError:
            found = {}
        except (OSError, UnicodeDecodeError) as error:
            found = {"path": str(target), "problem": str(error)}
    found = json.loads(sites.transport.gather_texts("calibration", json.dumps(found))[0])
    if not found:
        return None
    if "problem" in found:
        raise PlanError(f"calibration: the file cannot be read: {found['problem']}; {_REMEDY}: path={found['path']}")
    calibration = Calibration.of_text(found["text"], found["path"])
    calibration.check(machine, found["path"])
    return cluster_of(calibration)


def _texts(reader: Reader, name: str) -> tuple[tuple[str, str], ...]:
    entries = Reader(reader.get(name), f"{reader.place}.{name}")
    return tuple(sorted((key, entries.text(key)) for key in reader.get(name)))
