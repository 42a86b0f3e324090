"""The extreme classifier is a client of joinsum's public names."""

from __future__ import annotations

import subprocess
import sys

# Runs in a process of its own: no room is an attribute of `joinsum` there, and no module of joinsum.extreme may import
# one. joinsum itself imports its rooms as it needs them.
PROGRAM = """
import builtins, pkgutil, sys
import joinsum

rooms = {each.name for each in pkgutil.iter_modules(joinsum.__path__)} - {"extreme"}
for room in rooms - set(joinsum.__all__):
    if hasattr(joinsum, room):
        delattr(joinsum, room)
imported = builtins.__import__

def import_public(name, globals=None, locals=None, fromlist=(), level=0):
    importer = (globals or {}).get("__name__", "")
    if importer.startswith("joinsum.extreme"):
        first, _, rest = name.partition(".")
        if level or (first == "joinsum" and rest and rest.split(".")[0] != "extreme"):
            raise ImportError(f"private: {importer} imports {name}")
        if name == "joinsum":
            private = set(fromlist or ()) - set(joinsum.__all__) - {"extreme"}
            if private:
                raise ImportError(f"private: {importer} imports {sorted(private)}")
    return imported(name, globals, locals, fromlist, level)

builtins.__import__ = import_public
"""

TRAINING = """
import importlib
import torch

package = importlib.import_module("joinsum.extreme")
for each in pkgutil.iter_modules(package.__path__):
    importlib.import_module(f"joinsum.extreme.{each.name}")
from joinsum.extreme.classifier import Classifier, Sizes

joinsum.init(sites=2)
classifier = Classifier(Sizes(4, 6, 5, 3), plan="data")
print(classifier.step(torch.ones(4, 6), torch.ones(4, 3)) > 0)
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


def test_the_classifier_trains_where_only_public_names_can_be_imported() -> None:
    result = run(PROGRAM + TRAINING)
    assert (result.returncode, result.stdout) == (0, "True\n"), result.stderr


def test_importing_a_room_there_fails() -> None:
    importing = 'exec("from joinsum.base import errors", {"__name__": "joinsum.extreme.example"})'
    result = run(PROGRAM + importing)
    assert result.returncode == 1
    assert "private: joinsum.extreme.example imports joinsum.base" in result.stderr
