"""Runs Hugging Face families forward and backward on the sites beside plain torch, and trains them as they come by each
way into joinsum: `make sweep`, or `make sweep ARGS='llama t5'` for some of them. Writes docs/families.md when all have
run; earlier results of the others are in build/sweep. Fails where a family is wrong or ends in another error than
CaptureError, or too few are equal.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import multiprocessing
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from multiprocessing.connection import wait
from multiprocessing.context import ForkProcess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))

import torch  # noqa: E402
import transformers  # noqa: E402
from families import FAMILIES  # noqa: E402
from family_sweep import ATTENTIONS, WAYS, Measured, Trained, measure, train  # noqa: E402

RESULTS = ROOT / "build" / "sweep"
PAGE = ROOT / "docs" / "families.md"
SITES = 4
OTHER_SITES = {"llama": (2, 3, 8), "bert": (2, 3, 8), "t5": (2, 3, 8)}
LEAST_EQUAL = 36


# Training runs on two sites: how many sites there are matters to plans, which the first table shows.
TRAINED_ON = 2

# A family, and the sites of a measurement, or the way and the attention of a training.
Run = tuple[str, int] | tuple[str, str, str]


def runs() -> list[Run]:
    """Every family on the usual sites, some on others too; and every family by each way with each attention."""
    measured: list[Run] = [(name, SITES) for name in FAMILIES]
    measured += [(name, s) for name, sites in OTHER_SITES.items() for s in sites]
    return measured + [(name, way, attention) for name in FAMILIES for way in WAYS for attention in ATTENTIONS]


def _file(run: Run) -> Path:
    return RESULTS / f"{'.'.join(map(str, run))}.json"


def run_alone(run: Run) -> None:
    """One run in this process; leaves its result in a file."""
    torch.set_num_threads(1)
    _write(run, measure(FAMILIES[run[0]], run[1]) if len(run) == 2 else train(FAMILIES[run[0]], *run[1:], TRAINED_ON))


def _write(run: Run, result: Measured | Trained) -> None:
    _file(run).write_text(json.dumps(dataclasses.asdict(result)))


def run_apart(asked: Sequence[Run], jobs: int) -> list[Measured | Trained]:
    """The runs, `jobs` at a time, each in a process of its own: one that dies is a failure of its family, and seconds
    do not depend on those before it."""
    forks = multiprocessing.get_context("fork")
    waiting, results = list(asked), []
    live: dict[int, tuple[ForkProcess, Run]] = {}
    while waiting or live:
        while waiting and len(live) < jobs:
            run = waiting.pop(0)
            _file(run).unlink(missing_ok=True)
            process = forks.Process(target=run_alone, args=(run,))
            process.start()
            live[process.sentinel] = (process, run)
        for sentinel in wait(list(live)):
            assert isinstance(sentinel, int)
            process, run = live.pop(sentinel)
            process.join()
            results.append(_ended(run, process.exitcode))
    return results


def _ended(run: Run, code: int | None) -> Measured | Trained:
    """What the process of a run left."""
    if not _file(run).exists():
        why = f"its process ended with {code}"
        _write(run, Measured(*run, "failed", why) if len(run) == 2 else Trained(*run, "failed", why))
    result = _read(run)
    assert result is not None
    print(*(row(result) if isinstance(result, Measured) else [*run, cell(result)]), sep="  ", flush=True)
    return result


def _read(run: Run) -> Measured | Trained | None:
    if not _file(run).exists():
        return None
    fields = json.loads(_file(run).read_text())
    return Measured(**fields) if len(run) == 2 else Trained(**fields)


def cell(trained: Trained) -> str:
    """A training's cell in the table."""
    if trained.result == "equal":
        return f"equal, {trained.seconds:.1f} s"
    return "" if trained.result == "none" else f"{trained.result}: {' '.join(trained.why.split())}".replace("|", "\\|")


def row(measured: Measured) -> list[str]:
    """The cells of a family in the table."""
    said = measured.result if measured.result == "equal" else f"{measured.result}: {measured.why}"
    cells = [measured.family, str(measured.sites), " ".join(said.split()).replace("|", "\\|")]
    if measured.result in ("refused", "failed"):
        return [*cells, *[""] * 7]
    seconds = [f"{x:.2f}" for x in (measured.capture, measured.plan, measured.run)]
    return [*cells, f"{measured.error:.1e}", str(measured.einsums), str(measured.calls), str(measured.moved), *seconds]


def page(results: Iterable[Measured | Trained]) -> Iterator[str]:
    """docs/families.md."""
    every = list(results)
    found = [each for each in every if isinstance(each, Measured)]
    trained = {(each.family, each.way, each.attention): each for each in every if isinstance(each, Trained)}
    usual = [each for each in found if each.sites == SITES]
    equal = sum(each.result == "equal" for each in usual)
    yield "# Families of models"
    yield ""
    yield f"For Hugging Face users: which of {len(usual)} families joinsum captures and computes as torch does."
    yield "Generated by `make sweep`."
    yield ""
    yield "The models are built from their configs with two layers of width 32; nothing is downloaded. They run in"
    yield 'train mode without dropout under `torch.compile(model, backend="joinsum")`, three times forward and'
    yield "backward, on loopback sites in one process. Plans are for an invented cluster of slow sites and fast"
    yield "links, so that they divide such small models, too. Large models, trained weights and several processes"
    yield "are not part of this table. *Equal* means: in every step the loss, every parameter's gradient and every"
    yield "buffer differ from plain torch by at most 1e-5 of the tensor's largest element, or of 1 % of the largest"
    yield "gradient or buffer of all if that is more. No operator is replicated by request."
    yield ""
    yield f"On {SITES} sites {equal} of {len(usual)} are equal. Seconds are CPU time of one thread on {_processor()}:"
    yield "*capture* by torch.compile and joinsum, *plan* for the plans of both passes, *step* for the third forward"
    yield f"and backward pass of all sites. torch {torch.__version__}, transformers"
    yield f"{transformers.__version__}."
    yield ""
    yield "| family | sites | result | error | einsums | calls | bytes moved | capture s | plan s | step s |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for each in found:
        yield f"| {' | '.join(row(each))} |"
    yield from _training(trained)
    remarks = [family for family in FAMILIES.values() if family.remark]
    yield from [
        "",
        "Before they are compiled for the first table:",
        "",
        *(f"- {family.name}: {family.remark}." for family in remarks),
    ]


def _training(trained: Mapping[tuple[str, str, str], Trained]) -> Iterator[str]:
    """The table of trainings."""
    equal = sum(each.result == "equal" for each in trained.values())
    asked = sum(each.result != "none" for each in trained.values())
    yield ""
    yield "## Training, as they come"
    yield ""
    yield "The same models as their classes make them from a config, with caches and named results, labels in the"
    yield f"batch and nothing called before: three steps of SGD on {TRAINED_ON} loopback sites by each way into joinsum"
    yield "and with both attentions of transformers that it has. *Equal* means: losses and parameters differ from"
    yield "plain torch's by at most 1e-5 of the tensor's largest element, or of 1 % of the largest parameter if that is"
    yield "more. Seconds are wall time of all three steps, capture and plans included, with one thread and other runs"
    yield f"beside. {equal} of {asked} are equal."
    yield ""
    yield f"| family | {' | '.join(f'{way}, {attention}' for way in WAYS for attention in ATTENTIONS)} |"
    yield f"|{'---|' * (1 + len(WAYS) * len(ATTENTIONS))}"
    for name in FAMILIES:
        cells = [cell(trained[name, way, attention]) for way in WAYS for attention in ATTENTIONS]
        yield f"| {name} | {' | '.join(cells)} |"


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def main() -> int:
    """Runs what is asked; 0 where all is as it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*", choices=[[], *FAMILIES], help="all, unless some are named")
    parser.add_argument("--jobs", type=int, default=2, help="families at a time")
    given = parser.parse_args()
    RESULTS.mkdir(parents=True, exist_ok=True)
    ran = run_apart([run for run in runs() if not given.families or run[0] in given.families], given.jobs)
    bad = [each for each in ran if each.result in ("wrong", "failed")]
    known = [each for each in (_read(run) for run in runs()) if each is not None]
    if len(known) < len(runs()):
        return 1 if bad else 0
    PAGE.write_text("\n".join(page(known)) + "\n")
    equal = sum(isinstance(each, Measured) and each.result == "equal" and each.sites == SITES for each in known)
    print(f"{equal} of {len(FAMILIES)} families are equal on {SITES} sites; {PAGE.relative_to(ROOT)} is written")
    return 1 if bad or equal < LEAST_EQUAL else 0


if __name__ == "__main__":
    sys.exit(main())
