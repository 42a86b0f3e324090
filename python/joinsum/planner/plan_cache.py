"""Plans of einsum graphs in the user's cache folder, so that the next process need not plan again.

One file for each graph on each set of sites. A file is used when all that its plan depends on is the same: the graph
with its extents and dtypes, hosts, grid and transport, the cluster's rates or calibration, versions, and joinsum's own
code. Anything else is rejected with the reason. Files are written atomically, so processes may share the
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
from joinsum.base.files import write_atomically
from joinsum.cluster.cache_folder import PLAN_CACHE_VARIABLE, cache_folder, plan_cache_mebibytes
from joinsum.cluster.cluster import Cluster
from joinsum.cluster.machine import Machine

__all__ = ["CacheKey", "PlanCache", "RejectedPlan", "package_digest", "user_plan_cache"]

FORMAT = "joinsum plan"
VERSION = 5
_ABANDONED = 3600.0  # seconds after which a file that was never finished is removed
_FIELDS = ("orders", "binary", "program", "plan", "reuse", "search_seconds")


class RejectedPlan(Exception):
    """A file that is not used, and why. `damaged`: it is no complete file of a plan, or has another plan's name;
    otherwise it is stale."""

    def __init__(self, reason: str, damaged: bool) -> None:
        super().__init__(reason)
        self.damaged = damaged


@dataclass(frozen=True)
class CacheKey:
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
        text = json.dumps([self.graph, list(self.machine.sites), list(self.machine.layout)])
        return hashlib.sha256(text.encode()).hexdigest()[:32] + ".json"

    def to_json(self) -> dict[str, Any]:
        """As the file holds it."""
        return {
            "graph": self.graph,
            "machine": self.machine.to_json(),
            "cluster": {"name": self.cluster.name, "digest": _cluster_digest(self.cluster)},
            "code": _code_digest(),
        }

    def check(self, other: dict[str, Any]) -> None:
        """Raises RejectedPlan unless `other`, a file's key, is this one."""
        mine = self.to_json()
        if other["graph"] != self.graph:
            raise RejectedPlan("foreign: it is the plan of another graph", damaged=True)
        machine = other["machine"]
        theirs = Machine(tuple(machine["sites"]), _pairs(machine["layout"]), _pairs(machine["libraries"]))
        difference = self.machine.difference(theirs)
        if difference is not None:
            raise RejectedPlan(f"stale: {difference}", damaged=False)
        if other["cluster"] != mine["cluster"]:
            names = f"file={other['cluster']['name']}, here={self.cluster.name}"
            raise RejectedPlan(f"stale: it was planned for other rates: {names}", damaged=False)
        if other["code"] != mine["code"]:
            raise RejectedPlan("stale: another build of joinsum made it", damaged=False)


class PlanCache:
    """The folder of plans of this process's user.

    >>> import tempfile
    >>> plans = PlanCache(Path(tempfile.mkdtemp()), mebibytes=1)
    >>> machine = Machine(("host: cpu",), (("grid", "1"),), (("torch", "2"),))
    >>> key = CacheKey("einsum ...", machine, Cluster())
    >>> plans.read(key) is None
    True
    >>> plans.write(key, dict.fromkeys(_FIELDS, "") | {"plan": "i"})
    >>> plans.read(key)["plan"]
    'i'
    >>> plans.read(CacheKey("einsum ...", machine, Cluster("another", 1e9))) # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    ...
    joinsum.planner.plan_cache.RejectedPlan: stale: it was planned for other rates: file=10 Gbit ..., here=another
    """

    def __init__(self, folder: Path, mebibytes: float) -> None:
        self.folder = folder
        self.limit = int(mebibytes * 2**20)
        self._unpruned: int | None = None  # bytes written since the folder was last pruned; None: never

    def path(self, key: CacheKey) -> Path:
        """The file of the plan for `key`."""
        return self.folder / key.name

    def read(self, key: CacheKey) -> dict[str, str] | None:
        """Texts of what was planned for `key`; None where there is no file. Raises RejectedPlan."""
        path = self.path(key)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RejectedPlan(f"it cannot be read: {error.strerror or error}", damaged=True) from None
        fields = _checked_content(content)
        try:
            key.check(fields["key"])
            texts = {name: fields[name] for name in _FIELDS}
        except (KeyError, TypeError, AttributeError):
            raise RejectedPlan("foreign: its fields are not those of a plan", damaged=True) from None
        if not all(isinstance(text, str) for text in texts.values()):
            raise RejectedPlan("foreign: its fields are not those of a plan", damaged=True)
        with suppress(OSError):
            os.utime(path)  # the last use, by which files are removed
        return texts

    def write(self, key: CacheKey, texts: dict[str, str]) -> None:
        """Stores what was planned for `key`. A folder that cannot be written is a warning: the plan is good without."""
        body = {"format": FORMAT, "version": VERSION, "key": key.to_json(), **texts}
        text = json.dumps({**body, "checksum": _checksum(body)})
        if len(text) > self.limit:
            return
        try:
            write_atomically(self.path(key), text)
            self._prune(len(text))
        except OSError as error:
            warnings.warn(
                f"einsum: the plan cannot be cached; set {PLAN_CACHE_VARIABLE}=0 to cache none: folder={self.folder}, "
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
def _cache_in(folder: Path, mebibytes: float) -> PlanCache:
    return PlanCache(folder, mebibytes)


def user_plan_cache() -> PlanCache | None:
    """The user's folder of plans, `plans` beside the calibration files; None where the environment turns it off.

    Raises PlanError where JOINSUM_PLAN_CACHE is no limit.
    """
    mebibytes = plan_cache_mebibytes()
    return _cache_in(cache_folder() / "plans", mebibytes) if mebibytes > 0 else None


def _checked_content(content: bytes) -> dict[str, Any]:
    """A file's fields; raises RejectedPlan for what is no complete file of this format."""
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError):
        raise RejectedPlan("it is cut off or damaged: not JSON", damaged=True) from None
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        raise RejectedPlan("foreign: it is no plan of joinsum's", damaged=True)
    if fields.get("version") != VERSION:
        version = f"file={fields.get('version')}, here={VERSION}"
        raise RejectedPlan(f"stale: another version of the format: {version}", damaged=False)
    body = {name: value for name, value in fields.items() if name != "checksum"}
    if fields.get("checksum") != _checksum(body):
        raise RejectedPlan("it is damaged: its checksum is another", damaged=True)
    return fields


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
    return f"{package_digest(Path(__file__).parents[1])} {core.st_size} {core.st_mtime_ns}"


def package_digest(folder: Path) -> str:
    """A hash of the Python files in a folder and the folders below it, and of their names."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
