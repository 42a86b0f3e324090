"""Calibration files: what `joinsum.calibrate` has measured, for which sites, and whether it is valid here."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from joinsum import _C
from joinsum.cluster import Cluster
from joinsum.errors import PlanError
from joinsum.profile import Profile, Reader

if TYPE_CHECKING:
    from joinsum.context import Context

__all__ = [
    "Calibration",
    "Machine",
    "RejectedCalibration",
    "cache_folder",
    "cluster_of",
    "load",
    "machine_of",
    "write_whole",
]

FORMAT = "joinsum calibration"
VERSION = 1
_REMEDY = "calibrate these sites again (`joinsum calibrate`, under torchrun as the program is run), or delete the file"


class RejectedCalibration(PlanError):
    """A calibration file that is whole, but was made for something else: the message says what differs."""


@dataclass(frozen=True)
class Machine:
    """What a calibration is valid for.

    sites       for each site its host, processor, cores, threads and device
    layout      the sites as a grid, the transport, and the network interface that the environment names
    libraries   versions of joinsum and torch
    """

    sites: tuple[str, ...]
    layout: tuple[tuple[str, str], ...]
    libraries: tuple[tuple[str, str], ...]

    def to_json(self) -> dict[str, Any]:
        """As the file holds it."""
        return {"sites": list(self.sites), "layout": dict(self.layout), "libraries": dict(self.libraries)}

    @property
    def name(self) -> str:
        """The file's name: by sites and layout, so that other versions of the libraries are noticed."""
        told = json.dumps([list(self.sites), sorted(self.layout)])
        return f"calibration-{hashlib.sha256(told.encode()).hexdigest()[:16]}.json"

    def most_on_a_host(self) -> int:
        """Sites on the host that has most of them."""
        hosts = [site.split(": ")[0] for site in self.sites]
        return max(map(hosts.count, hosts))

    def difference(self, other: Machine) -> str | None:
        """How `other`, a file's machine, is not this one; None if it is."""
        for i, (here, there) in enumerate(zip(self.sites, other.sites, strict=False)):
            if here != there:
                return f"another machine: site={i}, file={there}, here={here}"
        if len(self.sites) != len(other.sites):
            return f"another number of sites: file={len(other.sites)}, here={len(self.sites)}"
        for what, mine, theirs in (
            ("another layout", self.layout, other.layout),
            ("stale, libraries have changed", self.libraries, other.libraries),
        ):
            here_all, there_all = dict(mine), dict(theirs)
            for name in sorted({*here_all, *there_all}):
                if here_all.get(name) != there_all.get(name):
                    return f"{what}: {name}: file={there_all.get(name)}, here={here_all.get(name)}"
        return None


@dataclass(frozen=True)
class Calibration:
    """A profile, with the machine that it was measured on and when (ISO 8601, UTC)."""

    machine: Machine
    made: str
    profile: Profile

    @staticmethod
    def made_now(machine: Machine, profile: Profile) -> Calibration:
        """A calibration that has just been measured."""
        return Calibration(machine, datetime.now(timezone.utc).isoformat(timespec="seconds"), profile)

    def text(self) -> str:
        """The file's contents."""
        told = {
            "format": FORMAT,
            "version": VERSION,
            "made": self.made,
            "machine": self.machine.to_json(),
            "profile": self.profile.to_json(),
        }
        return json.dumps(told, indent=1) + "\n"

    def write(self, path: str | Path | None, here: Context) -> None:
        """Writes the file, whole or not at all, on the process of site 0; all sites must call. Raises PlanError on
        each of them where that fails."""
        problem = ""
        if 0 in here.local_sites:
            target = Path(path) if path is not None else cache_folder() / self.machine.name
            try:
                write_whole(target, self.text())
            except OSError as error:
                problem = f"calibrate: the file cannot be written: path={target}, reason={error.strerror or error}"
        (problem, *_) = _share(here.transport, problem)
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
                reader.text("made"),
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


def cache_folder() -> Path:
    """The user's folder for calibration files: `joinsum` in $XDG_CACHE_HOME, or in ~/.cache.

    >>> cache_folder().name
    'joinsum'
    """
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if os.path.isabs(home) else Path.home() / ".cache") / "joinsum"


def machine_of(here: Context) -> Machine:
    """The machine that the context's sites are; every rank of a process group must call, and gets the same."""
    backend = here.transport.name
    layout = {
        "grid": str(here.grid),
        "transport": backend,
        "interface": os.environ.get("GLOO_SOCKET_IFNAME" if backend == "gloo" else "NCCL_SOCKET_IFNAME", ""),
    }
    versions = (("joinsum", _installed_version()), ("torch", torch.__version__))
    sites = _share(here.transport, _site_text(here))
    return Machine(tuple(sites), tuple(sorted(layout.items())), versions)


def cluster_of(calibration: Calibration) -> Cluster:
    """The cluster that a calibration describes. Its flat rates are the profile's for large products and messages."""
    profile, machine = calibration.profile, calibration.machine
    layout = dict(machine.layout)
    default = Cluster()
    table = profile.products[0]
    flops = 2 * table.extents[-1] ** 3 / table.seconds[-1]
    day = calibration.made[:10]
    if not profile.links:
        name = f"calibrated {day} on {layout['transport']}, 10 Gbit between sites"
        return Cluster(name, flops, default.bytes_per_second, default.latency_seconds, profile=profile)
    widest = max(profile.links, key=lambda link: len(link.axes)).all
    name = f"calibrated {day} on {len(machine.sites)} ranks of {layout['transport']}"
    rate = widest.sizes[-1] / max(widest.seconds[-1], 1e-9)
    return Cluster(name, flops, rate, widest.seconds[0], profile=profile)


def load(here: Context, path: str | Path | None = None) -> Cluster | None:
    """The cluster of the calibration file for the context's sites; None where there is no file.

    Site 0's process reads it and shares it, so that all sites have the same; all must call. Raises PlanError for a
    damaged file and RejectedCalibration for one of other sites, versions or layout, on every site.
    """
    machine = machine_of(here)
    target = Path(path) if path is not None else cache_folder() / machine.name
    told: dict[str, str] = {}
    if 0 in here.local_sites:
        try:
            told = {"path": str(target), "text": target.read_text(encoding="utf-8")}
        except FileNotFoundError:
            told = {}
        except (OSError, UnicodeDecodeError) as error:
            told = {"path": str(target), "problem": str(error)}
    told = json.loads(_share(here.transport, json.dumps(told))[0])
    if not told:
        return None
    if "problem" in told:
        raise PlanError(f"calibration: the file cannot be read: {told['problem']}; {_REMEDY}: path={told['path']}")
    calibration = Calibration.of_text(told["text"], told["path"])
    calibration.check(machine, told["path"])
    return cluster_of(calibration)


def _texts(reader: Reader, name: str) -> tuple[tuple[str, str], ...]:
    entries = Reader(reader.get(name), f"{reader.place}.{name}")
    return tuple(sorted((key, entries.text(key)) for key in reader.get(name)))


def _installed_version() -> str:
    from joinsum import __version__

    return __version__


def _site_text(here: Context) -> str:
    """This process's host and device."""
    threads = f"{os.cpu_count()} cores, {torch.get_num_threads()} threads"
    device = here.device
    processor = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    return f"{platform.node()}: {processor}, {threads}"


def _processor() -> str:
    """The processor's name, where the system tells it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def write_whole(path: Path, text: str) -> None:
    """A reader finds the old file or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    number, name = tempfile.mkstemp(prefix=path.name, dir=path.parent)
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def _share(transport: _C.Transport, text: str) -> Sequence[str]:
    """Every process's text, by site; on loopback the one process's, for all its sites."""
    sites = transport.sites
    if len(transport.local_sites) == sites:
        return [text] * sites
    (mine,) = transport.local_sites
    own = text.encode()
    sizes = [int(size) for size in transport.greatest([float(len(own)) if i == mine else 0.0 for i in range(sites)])]
    messages = [(a, b, sizes[a]) for a in range(sites) for b in range(sites) if a != b and sizes[a] > 0]
    array = torch.frombuffer(bytearray(own or b" "), dtype=torch.uint8)[: len(own)]
    payload = {i: array for i, (a, _, _) in enumerate(messages) if a == mine}
    received = transport.exchange("calibration", messages, payload, array)
    texts = ["" if i != mine else text for i in range(sites)]
    for (a, b, _), bytes_ in zip(messages, received, strict=True):
        if b == mine and bytes_ is not None:
            texts[a] = bytes(bytes_.cpu().tolist()).decode()
    return texts
