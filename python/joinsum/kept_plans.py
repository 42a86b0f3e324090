"""Plans of einsum graphs in the user's cache folder, so that the next process need not plan again.

One file for each graph on each set of sites. A file is used when all that its plan depends on is the same: the graph
with its extents and dtypes, hosts, grid and transport, the cluster's rates or calibration, versions, and joinsum's own
code. Anything else is rejected with the reason. Files are written whole or not at all, so processes may share the
folder; the ones that were used longest ago go when the folder is full.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import warnings
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from joinsum import _C
from joinsum.arguments import show
from joinsum.calibration import Machine, cache_folder, write_whole
from joinsum.cluster import Cluster
from joinsum.errors import PlanError

__all__ = ["KeptPlans", "Key", "Rejected", "package_digest", "plans_folder"]

FORMAT = "joinsum plan"
VERSION = 3
VARIABLE = "JOINSUM_PLAN_CACHE"
_DEFAULT_MEBIBYTES = 64.0
_ABANDONED = 3600.0  # seconds after which a file that was never finished is removed
_FIELDS = ("orders", "binary", "program", "plan", "carried")


class Rejected(Exception):
    """A file that is not used, and why. `damaged`: it is no whole file of a plan, or it lies where it does not belong.
    Otherwise it is stale."""

    def __init__(self, reason: str, damaged: bool) -> None:
        super().__init__(reason)
        self.damaged = damaged


@dataclass(frozen=True)
class Key:
    """What a plan depends on.

    graph      text of the graph, with extents and dtypes
    machine    hosts, grid, transport and versions
    cluster    what costs are priced for
    """

    graph: str
    machine: Machine
    cluster: Cluster

    @property
    def name(self) -> str:
        """The file's name: by graph, hosts and layout, so that other rates and versions are noticed."""
        told = json.dumps([self.graph, list(self.machine.sites), list(self.machine.layout)])
        return hashlib.sha256(told.encode()).hexdigest()[:32] + ".json"

    def to_json(self) -> dict[str, Any]:
        """As the file holds it."""
        return {
            "graph": self.graph,
            "machine": self.machine.to_json(),
            "cluster": {"name": self.cluster.name, "digest": _cluster_digest(self.cluster)},
            "code": _code_digest(),
        }

    def check(self, told: dict[str, Any]) -> None:
        """Raises Rejected unless `told`, a file's key, is this one."""
        mine = self.to_json()
        if told["graph"] != self.graph:
            raise Rejected("foreign: it is the plan of another graph", damaged=True)
        machine = told["machine"]
        theirs = Machine(tuple(machine["sites"]), _pairs(machine["layout"]), _pairs(machine["libraries"]))
        difference = self.machine.difference(theirs)
        if difference is not None:
            raise Rejected(f"stale: {difference}", damaged=False)
        if told["cluster"] != mine["cluster"]:
            names = f"file={told['cluster']['name']}, here={self.cluster.name}"
            raise Rejected(f"stale: it was planned for other rates: {names}", damaged=False)
        if told["code"] != mine["code"]:
            raise Rejected("stale: another build of joinsum made it", damaged=False)


class KeptPlans:
    """The folder of plans of this process's user.

    >>> import tempfile
    >>> kept = KeptPlans(Path(tempfile.mkdtemp()), mebibytes=1)
    >>> machine = Machine(("host: cpu",), (("grid", "1"),), (("torch", "2"),))
    >>> key = Key("einsum ...", machine, Cluster())
    >>> kept.read(key) is None
    True
    >>> kept.write(key, {"orders": "{}", "binary": "b", "program": "t", "plan": "i", "carried": ""})
    >>> kept.read(key)["plan"]
    'i'
    >>> kept.read(Key("einsum ...", machine, Cluster("another", 1e9))) # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    ...
    joinsum.kept_plans.Rejected: stale: it was planned for other rates: file=10 Gbit ..., here=another
    """

    def __init__(self, folder: Path, mebibytes: float) -> None:
        self.folder = folder
        self.limit = int(mebibytes * 2**20)
        self._unpruned: int | None = None  # bytes written since the folder was last pruned; None: never

    def path(self, key: Key) -> Path:
        """Where the plan for `key` is kept."""
        return self.folder / key.name

    def read(self, key: Key) -> dict[str, str] | None:
        """Texts of what was planned for `key`; None where there is no file. Raises Rejected."""
        path = self.path(key)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Rejected(f"it cannot be read: {error.strerror or error}", damaged=True) from None
        told = _checked_content(content)
        try:
            key.check(told["key"])
            texts = {name: told[name] for name in _FIELDS}
        except (KeyError, TypeError, AttributeError):
            raise Rejected("foreign: its fields are not those of a plan", damaged=True) from None
        if not all(isinstance(text, str) for text in texts.values()):
            raise Rejected("foreign: its fields are not those of a plan", damaged=True)
        with suppress(OSError):
            os.utime(path)  # the last use, by which files are removed
        return texts

    def write(self, key: Key, texts: dict[str, str]) -> None:
        """Keeps what was planned for `key`. A folder that cannot be written is a warning: the plan is good without."""
        body = {"format": FORMAT, "version": VERSION, "key": key.to_json(), **texts}
        text = json.dumps({**body, "checksum": _checksum(body)})
        if len(text) > self.limit:
            return
        try:
            write_whole(self.path(key), text)
            self._prune(len(text))
        except OSError as error:
            warnings.warn(
                f"einsum: the plan cannot be kept; set {VARIABLE}=0 to keep none: folder={self.folder}, "
                f"reason={error.strerror or error}",
                stacklevel=2,
            )

    def _prune(self, written: int) -> None:
        """Removes the files that were used longest ago: the folder stays within its limit, however many a process
        writes, because it is looked through again each eighth of that."""
        if self._unpruned is not None and self._unpruned + written <= self.limit // 8:
            self._unpruned += written
            return
        self._unpruned = 0
        files = []
        for entry in os.scandir(self.folder):
            with suppress(FileNotFoundError):  # another process prunes too
                status = entry.stat()
                if entry.name.endswith(".json"):
                    files.append((status.st_mtime_ns, status.st_size, entry.path))
                elif status.st_mtime < time.time() - _ABANDONED:
                    os.unlink(entry.path)
        excess = sum(size for _, size, _ in files) - self.limit * 7 // 8
        for _, size, path in sorted(files):
            if excess <= 0:
                break
            with suppress(FileNotFoundError):
                os.unlink(path)
            excess -= size


@cache
def _kept_in(folder: Path, mebibytes: float) -> KeptPlans:
    return KeptPlans(folder, mebibytes)


def plans_folder() -> KeptPlans | None:
    """The user's folder of plans, `plans` beside the calibration files; None where the environment turns it off.

    JOINSUM_PLAN_CACHE in the environment is the folder's limit in MiB (64 by default), 0 turns it off. Raises PlanError
    for what is no such number.
    """
    text = os.environ.get(VARIABLE, "")
    try:
        mebibytes = float(text) if text else _DEFAULT_MEBIBYTES
    except ValueError:
        mebibytes = -1.0
    if not 0 <= mebibytes < float("inf"):
        raise PlanError(f"einsum: {VARIABLE} is a limit in MiB, 0 for no folder of plans: {VARIABLE}={show(text)}")
    return _kept_in(cache_folder() / "plans", mebibytes) if mebibytes > 0 else None


def _checked_content(content: bytes) -> dict[str, Any]:
    """A file's fields; raises Rejected for what is no whole file of this format."""
    try:
        told = json.loads(content)
    except (ValueError, RecursionError):
        raise Rejected("it is cut off or damaged: not JSON", damaged=True) from None
    if not isinstance(told, dict) or told.get("format") != FORMAT:
        raise Rejected("foreign: it is no plan of joinsum's", damaged=True)
    if told.get("version") != VERSION:
        version = f"file={told.get('version')}, here={VERSION}"
        raise Rejected(f"stale: another version of the format: {version}", damaged=False)
    body = {name: value for name, value in told.items() if name != "checksum"}
    if told.get("checksum") != _checksum(body):
        raise Rejected("it is damaged: its checksum is another", damaged=True)
    return told


def _checksum(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _pairs(values: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(values.items()))


def _cluster_digest(cluster: Cluster) -> str:
    rates = {name: value for name, value in asdict(cluster).items() if name != "profile"}
    profile = None if cluster.profile is None else cluster.profile.to_json()
    return hashlib.sha256(json.dumps([rates, profile], sort_keys=True).encode()).hexdigest()


@cache
def _code_digest() -> str:
    """Of the package's Python files, and of the core's size and time: a rebuilt planner plans anew."""
    core = Path(_C.__file__).stat()
    return f"{package_digest(Path(__file__).parent)} {core.st_size} {core.st_mtime_ns}"


def package_digest(folder: Path) -> str:
    """A hash of the Python files in a folder and the folders below it, and of their names."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
