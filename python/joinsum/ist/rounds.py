"""The rounds of a training: which neurons each site trains, the exchanges between rounds, and how a round begins."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from typing import Any

import torch

from joinsum.algebra.plan import IaPlan
from joinsum.cluster.context import context
from joinsum.distributed.distributed_tensor import DistributedTensor
from joinsum.ist.exchange.ahead import Ahead
from joinsum.ist.exchange.exchange import Exchange
from joinsum.ist.exchange.grouping import with_few_slices
from joinsum.ist.exchange.options import Options
from joinsum.ist.exchange.relations import Assignments
from joinsum.ist.exchange.site_plans import SitePlans, remedy_named
from joinsum.ist.exchange.survivors import Record, holders
from joinsum.ist.exchange.whole_tensors import WholeTensors
from joinsum.ist.subnets.bundles import Bundle, Slice, bundles_of
from joinsum.ist.subnets.sampling import Assignment, Chunks, assignment
from joinsum.ist.subnets.shared_tensors import SharedTensors
from joinsum.ist.subnets.subnets import Subnets

__all__ = ["Rounds", "unsharded"]

Values = dict[str, torch.Tensor]
States = dict[str, dict[str, Any]]


class Rounds:
    """The round that has begun, and all of the model between the sites.

    chunks         of each hidden layer, by its name
    every          steps of each site in a round; None where the loop ends it
    number         rounds that have ended
    steps          that every site has taken in this round; steps_before in those that have ended
    assignments    of this round
    exchange       of this round
    """

    def __init__(
        self, subnets: Subnets, chunks: Mapping[str, Chunks], options: Options, every: int | None, seed: int
    ) -> None:
        self.context = context()
        self.subnets, self.chunks, self.options = subnets, chunks, options
        self.every, self.seed = every, seed
        self.number, self.steps, self.steps_before = 0, 0, 0
        self.assignments: Assignments = {}
        self.exchange: Exchange
        self._ahead: Ahead | None = None
        self._shared: SharedTensors

    def drawn(self, number: int) -> dict[str, Assignment]:
        """Which chunk is on which site in a round, by hidden layer."""
        return {layer: assignment(chunks, self.seed, number, layer) for layer, chunks in self.chunks.items()}

    def agree(self, text: str) -> None:
        """Raises TransportError where ranks have another text, or one has failed."""
        if not self.context.single_process:
            self.context.transport.agree("IST", text)

    # --- the beginning ------------------------------------------------------------------------------------------------

    def begin(self, values: Values, states: States) -> None:
        """Begins this round with whole tensors: plain ones, or distributed as `Exchange.whole_tensors` gives them."""
        self.assignments = self.drawn(self.number)
        states = self._states_to_cut(states)
        bundles = self._bundles_of(values, states)
        whole = {
            each: values[each.tensor] if each.state is None else states[each.tensor][each.state]
            for bundle in bundles
            for each in bundle.slices
        }
        self.subnets.cut(values, states)
        self.exchange = Exchange(self.subnets, self.chunks, self.options, self._ahead_of_context())
        self.exchange.begin(bundles, whole, self.assignments)
        self._shared = SharedTensors(self.subnets)

    def _ahead_of_context(self) -> Ahead | None:
        """What moves arrays while a round trains; nothing moves any more."""
        if not self.options.overlaps:
            return None
        if self._ahead is None or self._ahead.context is not context():
            self._ahead = Ahead()
        else:
            self._ahead.drop()
        return self._ahead

    def close(self) -> None:
        """Ends what moves arrays while a round trains, when the whole model has been fetched. Collective."""
        if self._ahead is not None:
            self._ahead.close()

    def check_states(self, values: Values, states: States) -> None:
        """Raises PlanError for states of an optimizer that cannot follow neurons."""
        self._bundles_of(values, self._states_to_cut(states))

    def _states_to_cut(self, states: States) -> States:
        """The states, if they are carried into the next round; none where they are reset."""
        return states if self._carries else {name: {} for name in states}

    @property
    def _carries(self) -> bool:
        """Whether the optimizer's state outlives a round; one site's does, whose rounds end with no exchange."""
        return self.options.carry or self.context.sites == 1

    def _bundles(self, states: bool) -> list[Bundle]:
        """Bundles of what follows the neurons; of the optimizer's states too with `states`, unless they are reset."""
        values, found = self.subnets.of_site(self.subnets.active)
        return self._bundles_of(values, found if states and self._carries else {})

    def _bundles_of(self, values: Mapping[str, torch.Tensor], states: Mapping[str, Mapping[str, Any]]) -> list[Bundle]:
        """Bundles of these tensors and states."""
        travelling = self.subnets.travelling(values, states)
        return with_few_slices(bundles_of(self.subnets.cuts, self.subnets.shapes, travelling), self.chunks)

    # --- the end ------------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Exchanges neurons, and begins the next round. Collective."""
        self.subnets.activate(self.subnets.sites[0])
        if self.context.sites > 1:
            with torch.no_grad(), self.context.preparing("run"):
                after = self.drawn(self.number + 1)
                self.exchange.start_ahead(after)  # others may have taken a step
                if not self.options.carry:
                    self.subnets.reset_states()
                self.subnets.complete_states(self._agree_on_states())
                bundles, averages = self._bundles(states=True), self._shared.averages(self.context.sites, states=False)
                self.install(self.exchange.step(bundles, self.assignments, after, averages))
        self._begin_next()

    def advance(self) -> None:
        """Begins the next round, for which all has arrived, though the exchange has failed on other sites."""
        self.install(self.exchange.advance())
        self._begin_next()

    def _begin_next(self) -> None:
        self.steps_before += self.steps
        self.number, self.steps = self.number + 1, 0
        self.assignments = self.drawn(self.number)

    def install(self, means: Mapping[Slice, torch.Tensor]) -> None:
        """Gives every site the means of tensors that no layer cuts."""
        self._shared.install(means)

    def start_ahead(self) -> None:
        """Begins to move what rests to where the next round trains it. All sites do so, sooner or later."""
        with torch.no_grad(), self.context.preparing("run"):
            self.exchange.start_ahead(self.drawn(self.number + 1))

    def next_plan(self) -> IaPlan | None:
        """The plan of the next exchange; None where nothing travels."""
        with torch.no_grad(), self.context.preparing("run"):
            having, active = self._agree_on_states(), self.subnets.active
            values, states = self.subnets.of_site(active)
            states |= {name: self.subnets.new_state(active, name) for name in having if not states[name]}
            bundles = self._bundles_of(values, self._states_to_cut(states))
            averages = self._shared.averages(self.context.sites, states=False)
            return self.exchange.plan(bundles, self.assignments, self.drawn(self.number + 1), averages)

    def _agree_on_states(self) -> set[str]:
        """The parameters for which some site has a state of the optimizer: one that had no gradient on a site has none
        there. Notes which buffers have other shapes on some site. Collective."""
        having, changed = self.subnets.names_with_states(), self.subnets.changed_buffers()
        if not self.context.single_process:
            transport, own = self.context.transport, [sorted(having), sorted(changed)]
            with remedy_named():
                transport.agree("run", "the sites' optimizer states")  # where one has failed, says so
                if len({*transport.gather_texts("IST", sha256(json.dumps(own).encode()).hexdigest())}) > 1:
                    for states, buffers in map(json.loads, transport.gather_texts("IST", json.dumps(own))):
                        having, changed = having | {*states}, changed | {*buffers}
        self.subnets.excluded = changed
        return having

    # --- the full model -----------------------------------------------------------------------------------------------

    def whole(self, states: bool) -> tuple[dict[Slice, torch.Tensor], dict[Slice, torch.Tensor]]:
        """The cut tensors of the full model, distributed, and the means of the others; of the optimizer's too with
        `states`. Releases the store's memory pool. Collective."""
        states = states and self._carries
        with torch.no_grad(), self.context.preparing("run"):
            if self.every is None:  # in an explicit round others may have taken a step
                self.exchange.start_ahead(self.drawn(self.number + 1))
            having = self._agree_on_states()
            if states:
                self.subnets.complete_states(having)
            averages = self._shared.averages(self.context.sites, states)
            bundles = self._bundles(states)
            tensors, means = self.exchange.whole_tensors(bundles, self.assignments, averages)
            self.context.store.release_pool()
            return dict(tensors), means

    def values_and_states(self, found: Mapping[Slice, torch.Tensor]) -> tuple[Values, States]:
        """All tensors and states of the full model, by name: those that were found, and the active site's."""
        subnets = self.subnets
        values = {name: subnets.value(subnets.active, name).clone() for name in subnets.shapes}
        states = self._states_to_cut({name: dict(subnets.state(subnets.active, name)) for name in subnets.shapes})
        _put(found, values, states)
        return values, states

    # --- after a loss -------------------------------------------------------------------------------------------------

    def records(self, having: Collection[str] = ()) -> list[Record]:
        """What the sites of this process have.

        having   parameters for which other sites have a state of the optimizer
        """
        active = self.subnets.active
        with torch.no_grad():
            self.subnets.activate(self.subnets.sites[0])
            self.subnets.complete_states(self.subnets.names_with_states() | {*having})
            bundles = self._bundles(states=True)
            records = [self._record(site, bundles) for site in self.subnets.sites]
            self.subnets.activate(active)
        return records

    def _record(self, site: int, travelling: Sequence[Bundle]) -> Record:
        cut = {each.name for each in self.subnets.cuts}
        values, states = self.subnets.of_site(site)
        values = {name: value.clone() for name, value in values.items() if name not in cut}
        values |= {each.tensor: value.clone() for each, value in self._shared.last.items()}
        numbers = {
            name: {
                key: value
                for key, value in state.items()
                if name not in cut or not isinstance(value, torch.Tensor) or value.numel() == 1
            }
            for name, state in states.items()
        }
        if not self._carries:
            numbers = {name: {} for name in numbers}
        bundles = self.exchange.records(site, travelling, self.assignments)
        counts = {name: chunks.count for name, chunks in self.chunks.items()}
        own = site, self.context.sites, self.number, self.steps_before, self.seed
        return Record(*own, counts, bundles, values, numbers, self.subnets.optimizer.param_groups)

    def rebuild(self, records: Sequence[Record], new_sites: Mapping[int, int]) -> None:
        """Begins the records' round, which is this one, on the sites that there are now. Collective.

        records     those of this process, by their former sites; one at least
        new_sites   of the former sites that are left
        """
        first = records[0]
        self.context = context()
        sites = self.context.sites
        self.chunks = {
            layer: Chunks(chunks.neurons, first.chunks[layer], sites) for layer, chunks in self.chunks.items()
        }
        self.subnets.move_to(self.context.local_sites, self.chunks)
        wholes = WholeTensors(SitePlans(), self.chunks, self.subnets.shapes)
        whole: dict[Slice, torch.Tensor] = {}
        with torch.no_grad(), self.context.preparing("run"):
            for place, each in enumerate(first.bundles):
                mine = {record.site: record.bundles[place] for record in records}
                whole |= wholes.assembled(mine, holders(each, new_sites), new_sites)
            values, states = dict(first.values), {name: dict(state) for name, state in first.states.items()}
            _put(whole, values, states)
            if sites == 1:
                self.subnets.cut_nothing()
                values, states = unsharded(values, states)
            self.steps = 0
            self.begin(values, states)
            for site in self.subnets.sites:  # the moments of tensors that no layer cuts are each site's own
                own = next((record for record in records if new_sites[record.site] == site), first)
                for name in self.subnets.uncut_names():
                    for key, value in own.states.get(name, {}).items():
                        own_value = value.clone() if isinstance(value, torch.Tensor) else value
                        self.subnets.state(site, name)[key] = own_value


def _put(found: Mapping[Slice, torch.Tensor], values: Values, states: States) -> None:
    """Puts what was found among the tensors and states by name."""
    for each, tensor in found.items():
        if each.state is None:
            values[each.tensor] = tensor
        else:
            states.setdefault(each.tensor, {})[each.state] = tensor


def unsharded(
    values: Mapping[str, torch.Tensor], states: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, torch.Tensor], dict[str, dict[str, Any]]]:
    """The same without distributed tensors; all ranks call."""

    def full(value: Any) -> Any:
        return value.full_tensor() if isinstance(value, DistributedTensor) else value

    whole = {name: full(value) for name, value in values.items()}
    return whole, {name: {key: full(value) for key, value in state.items()} for name, state in states.items()}
