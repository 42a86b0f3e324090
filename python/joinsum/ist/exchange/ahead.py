"""Plans that run beside the training, in a thread, on a process group of their own."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from joinsum.algebra.plan import IaPlan
from joinsum.algebra.stored_relation import StoredRelation
from joinsum.cluster.context import Context, companion, context
from joinsum.cluster.trace import Trace
from joinsum.planner.cost import cost

__all__ = ["Ahead"]

Relations = dict[str, StoredRelation]


class Ahead:
    """At most one plan that moves arrays while the ranks train, the sites of one context."""

    def __init__(self) -> None:
        self.context = context()
        self._beside: Context | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="joinsum.IST")
        self._running: Future[tuple[Relations, Trace]] | None = None
        self.trace = Trace()
        self.bytes = 0

    @property
    def possible(self) -> bool:
        """Whether arrays can move beside the training: those of CPUs, between processes. On a GPU they would wait for
        the stream of the training."""
        return not self.context.single_process and self.context.device.type == "cpu"

    def prepare(self) -> None:
        """Makes the process group, where one is possible; collective."""
        if self.possible and self._beside is None:
            self._beside = companion(self.context)

    def start(self, plan: IaPlan, inputs: Mapping[str, StoredRelation]) -> None:
        """Runs a plan in the thread, once `prepare` was called. Its inputs must not change before `settle`."""
        beside = self._beside
        assert beside is not None
        placed = {name: beside.share(inputs[name].blocks(), type_) for name, type_ in plan.inputs.items()}

        def moved() -> tuple[Relations, Trace]:
            outputs = beside.execute(plan.core, placed, {})
            placed.clear()
            return {name: StoredRelation(core, beside) for name, core in outputs.items()}, beside.last_trace

        self.bytes = cost(plan).wire_bytes
        self._running = self._thread.submit(moved)

    def check(self) -> None:
        """Raises the error of a plan that has failed."""
        if self._running is not None and self._running.done():
            self._running.result()

    def drop(self) -> None:
        """Waits for the plan, whose outputs nobody needs. Collective."""
        self.settle()
        self.end_of_round()

    def close(self) -> None:
        """Ends the thread, after `settle` or `drop`; another training may take the process group."""
        self._thread.shutdown()
        beside, self._beside = self._beside, None
        if beside is not None:
            self.context.idle_companions.append(beside)

    def settle(self) -> Relations:
        """Waits for the plan; its outputs, in the current context. Nothing where none runs."""
        running, self._running = self._running, None
        if running is None:
            return {}
        try:
            found, self.trace = running.result()
        except BaseException:
            self._beside = None  # whose ranks may wait for each other
            raise
        return {name: StoredRelation.of_blocks(stored.blocks(), stored.type) for name, stored in found.items()}

    def end_of_round(self) -> Trace:
        """What the plan of the round did; the next round has none yet."""
        trace, self.trace, self.bytes = self.trace, Trace(), 0
        return trace
