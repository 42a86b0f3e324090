"""Runs scenes on every rank: `torchrun play.py FOLDER MODULE...`; rank r writes FOLDER/r.jsonl, one line per scene.

MODULE.SCENE stands for one scene of a module.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import joinsum
import stage

if __name__ == "__main__":
    folder, *modules = sys.argv[1:]
    joinsum.init(cluster=joinsum.Cluster())
    notes = Path(folder) / f"{stage.rank()}.jsonl"
    outcomes = []
    for name in modules:
        module, _, scene = name.partition(".")
        scenes = importlib.import_module(module).SCENES
        outcomes.append(stage.play({scene: scenes[scene]} if scene else scenes, notes))
    sys.exit(0 if all(outcomes) else 1)
