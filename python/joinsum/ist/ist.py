"""`joinsum.IST`: independent subnet training around the user's own loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from joinsum.base.arguments import integer, show
from joinsum.base.errors import CheckpointError, PlanError
from joinsum.cluster.context import context, init
from joinsum.distributed.checkpoint import load_checkpoint, save_checkpoint
from joinsum.distributed.distributed_tensor import DistributedTensor
from joinsum.distributed.first_values import take_first_rank_values
from joinsum.frontend.distribute import check_not_distributed
from joinsum.ist.attention import forward_passes
from joinsum.ist.averages import Averages
from joinsum.ist.bundles import Bundle, Slice, bundles_of
from joinsum.ist.discovery import check_named_layers, find_layers
from joinsum.ist.exchange import ALONE_BYTES, TOGETHER_BYTES, Exchange
from joinsum.ist.full_model import calibrated, empty_copy, filled, full_model, refill
from joinsum.ist.layers import Cut, HiddenLayer, cut_tensors, explicit_layers
from joinsum.ist.optimizers import check_optimizer, check_state_names, with_parameters
from joinsum.ist.relations import Homes
from joinsum.ist.report import Report
from joinsum.ist.sampling import Assignment, Chunks, assignment, chunk_count
from joinsum.ist.subnets import Subnets
from joinsum.ist.survivors import Record, holders, read_record, record_files, write_record
from joinsum.planner.cost import cost

__all__ = ["IST"]

# What a checkpoint says of the rounds.
_NOTE = "joinsum.IST"


class IST:
    """Trains a model as random subnets, one on each site, that exchange neurons after every few steps.

    In a round each site has a random share of the neurons of every hidden layer, each neuron on one site, and trains
    that subnet alone with the user's own loop. At its end the sites exchange neurons for the next round's subnets: a
    site sends and receives about a share of the weights that it trains, and never the whole model.

    model       stays the same object with the same parameters, which shrink to the subnet's shapes; built in
                `joinsum.init_empty` it may be larger than a site's memory
    optimizer   of torch.optim; each of its steps counts
    every       steps of each site in a round; None where the loop calls `end_round`
    group       the process group or mesh dimension of the sites, if `joinsum.init` has not been called
    layers      "auto", or (producers, norms, consumers) for each hidden layer to cut: modules or their names, one or
                several; norms are all modules between with parameters of the neurons; a fourth element is the number of
                neurons, where each has several features
    seed        of the subnets; equal on all ranks
    state       "carry": the optimizer's moments follow their neurons; "reset": they start anew in every round
    homes       "migrating": weights that rest stay on the site that trained them last, and all travel once a round;
                "fixed": each has a home, to which it returns, so that all travel twice
    buddy       whether every weight has a copy on another site, so that training goes on without a site that is lost
                (`recover`); at most V more bytes a round
    wire        `torch.bfloat16`: weights and moments that move between sites are rounded to it, which halves the
                bytes of float32; what stays on its site is not
    overlap     whether weights between two hidden layers that rest in a round move to the sites that train them next
                while the round trains (docs/ist.md); for processes on CPUs with migrating homes and no copies
    unnormalised   whether to cut layers without a norm between producer and consumer
    scaled      whether what consumers read is multiplied by the number of sites in training; by default in layers whose
                sum joins a residual before it is normed (docs/ist.md)
    attention_heads   experimental: whether "auto" also cuts attention layers, whose neurons are heads or, where these
                share keys and values, groups of heads (docs/ist.md)

    On a process group all ranks construct it, from rank 0's values, and take the same number of steps, each on its own
    batches. On loopback sites the process plays the sites in turn: step i of the optimizer is site i mod n's.
    Parameters that no hidden layer cuts, and running statistics, are averaged at the end of a round.

    Raises PlanError, naming the module: for a layer without a norm, tied weights, neurons that an operator mixes or
    that pass modules which a layer does not name, more sites than neurons, a model in DistributedDataParallel or FSDP,
    and where no layer can be cut; and for an optimizer that is not elementwise, unless its state is reset.

    >>> import joinsum, torch
    >>> _ = joinsum.init(sites=2)
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> with joinsum.IST(model, optimizer, every=2, seed=0) as ist:
    ...     for step in range(8):
    ...         optimizer.zero_grad()
    ...         model(torch.ones(5, 4)).square().mean().backward()
    ...         optimizer.step()
    >>> ist.rounds, model[0].weight.shape
    (2, torch.Size([8, 4]))

    Source: thesis, chapter 2; `docs/ist.md`.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        every: int | None = 10,
        group: object | None = None,
        layers: Literal["auto"] | Sequence[object] = "auto",
        seed: int = 0,
        state: Literal["carry", "reset"] = "carry",
        homes: Homes = "migrating",
        buddy: bool = False,
        wire: torch.dtype | None = None,
        overlap: bool = True,
        unnormalised: bool = False,
        scaled: bool | None = None,
        attention_heads: bool = False,
    ) -> None:
        if group is not None:
            of_mesh = getattr(group, "get_group", None) if getattr(group, "ndim", 0) == 1 else None
            if context().group is not (of_mesh() if of_mesh is not None else group):
                init(group=group)
        self._context = context()
        with self._context.preparing("IST"):
            self._check(model, optimizer, every, state, homes, buddy, wire)
            self._model, self._optimizer = model, optimizer
            self._every, self._seed, self._carry = every, integer("IST", "seed", seed), state == "carry"
            self._homes: Homes = homes
            self._buddy, self._wire = buddy, wire
            self._overlap = overlap
            self.layers, self.uncut = self._layers(layers, unnormalised, scaled, attention_heads)
            cuts = cut_tensors(model, self.layers)
            self._cuts: list[Cut] = cuts if self._context.sites > 1 else []
            self._check_optimized(cuts)
            cut_names = {cut.name for cut in self._cuts}
            cut_parameters = [p for name, p in model.named_parameters() if name in cut_names]
            check_optimizer(optimizer, cut_parameters, self._carry)
            self._chunks = self._chunks_of_layers()
            self._rounds = 0
            self._steps = 0  # of the round that has begun
            self._steps_before = 0  # of the rounds that have ended
            self._active = False
            self._assignments: dict[str, Assignment] = {}
            self._full: tuple[str, nn.Module] | None = None  # and how its data are passed
            self._recoveries = 0
            self._recovering = False
            self._before_recovery: list[Record] = []  # the last one, until an exchange after it has ended
            self._skeleton = empty_copy(model)
            self._subnets = Subnets(model, optimizer, self.layers, self._cuts, self._chunks, self._context.local_sites)
            self._begin()

    # --- what it is ---------------------------------------------------------------------------------------------------

    @property
    def rounds(self) -> int:
        """Rounds that have ended."""
        return self._rounds

    @property
    def steps(self) -> int:
        """Steps that every site has taken, also before a checkpoint that was loaded."""
        return self._steps_before + self._steps

    @property
    def site(self) -> int:
        """The site whose subnet the model has."""
        return self._subnets.active

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The optimizer whose steps make the rounds."""
        return self._optimizer

    def __repr__(self) -> str:
        layers = ", ".join(f"{layer.name}: {layer.neurons}" for layer in self.layers)
        return f"<IST of {layers} on {self._context.sites} sites, {self._rounds} rounds>"

    def neurons(self, layer: str, site: int | None = None) -> list[int]:
        """The neurons of a hidden layer that a site trains in this round, by default the site whose subnet the model
        has; in the order of its parameters."""
        if site is not None and not 0 <= site < self._context.sites:
            raise PlanError(f"IST: no such site: site={site}, sites={self._context.sites}")
        if layer not in self._assignments:
            raise PlanError(f"IST: no such hidden layer: layer={layer!r}, layers={list(self._assignments)}")
        return self._assignments[layer].neurons(self.site if site is None else site)

    def explain(self) -> Report:
        """What the next exchange moves, to the byte, beside local SGD and data parallel training; what a site stores;
        the plan. On a process group all ranks call; nothing moves."""
        self._require_active("explain")
        with torch.no_grad():
            before = self._assignments
            after = self._drawn(self._rounds + 1)
            plan = self._exchange.plan(self._bundles(self._carry), before, after, self._averages(states=False))
            shapes, parameters = self._subnets.shapes, self._model.named_parameters()
            model_bytes = sum(shapes[name].numel() * each.element_size() for name, each in parameters)
            stored = [self._subnets.bytes_of(self.site, name) for name in shapes]
        sites = self._context.sites
        return Report(
            layers=self.layers,
            chunks=self._chunks,
            uncut=self.uncut,
            sites=sites,
            every=self._every,
            local_sgd_bytes=2 * (sites - 1) * model_bytes,
            site_bytes=(
                sum(own for own, _ in stored),
                self._exchange.resting_bytes // len(self._subnets.sites),
                sum(whole for _, whole in stored),
            ),
            ahead_bytes=self._exchange.ahead_bytes,
            cost=None if plan is None or sites == 1 else cost(plan),
            plan=plan if sites > 1 else None,
        )

    # --- rounds -------------------------------------------------------------------------------------------------------

    def end_round(self) -> None:
        """Exchanges neurons for the next round; all ranks call. The optimizer's steps do it every `every` steps."""
        self._require_active("end_round")
        self._subnets.activate(self._subnets.sites[0])
        if self._context.sites > 1:
            with torch.no_grad(), self._context.preparing("run"):
                self._exchange.start_ahead(self._drawn(self._rounds + 1))  # others may have taken a step
                if not self._carry:
                    self._subnets.reset_states()
                self._subnets.complete_states()
                bundles, averages = self._bundles(self._carry), self._averages(states=False)
                after = self._drawn(self._rounds + 1)
                self._install(self._exchange.step(bundles, self._assignments, after, averages))
        self._begin_round(self._rounds + 1)

    def _begin_round(self, number: int) -> None:
        self._steps_before += self._steps
        self._rounds, self._steps = number, 0
        self._assignments = self._drawn(number)
        self._before_recovery = []

    @contextmanager
    def round(self) -> Iterator[None]:
        """A round of as many steps as the block takes; it ends with the block.

        for _ in range(rounds):
            with ist.round():
                for inputs, target in islice(batches, steps):
                    ...
        """
        self._require_active("round")
        every, self._every = self._every, None
        try:
            yield
        finally:
            self._every = every
        self.end_round()

    def __enter__(self) -> IST:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._active:
            self.gather()

    # --- the full model -----------------------------------------------------------------------------------------------

    @contextmanager
    def full(
        self,
        calibrate: Iterable[object] | None = None,
        batches: int | None = None,
        *,
        data: Literal["whole", "sharded"] | None = None,
    ) -> Iterator[nn.Module]:
        """The full model, in evaluation mode and distributed over the sites: each site stores its part of the cut
        tensors. Training goes on as if it had not been asked for. For large batches a plan may bring one of the tensors
        together while it is used, where that takes less time; with `memory_bytes` of the context's cluster, only where
        a site has room for it.

        calibrate   batches, of which the first element of a tuple or list is the input: the running statistics of
                    BatchNorm are computed anew over them with the full model, as `torch.optim.swa_utils.update_bn`
                    does; without it they are the subnets' own
        batches     at most so many
        data        as in `joinsum.distribute`: "sharded" (each rank passes its own batches; by default on process
                    groups), or "whole"

        All ranks of a process group call, and make the same calls of the model. The same module comes each time, with
        the weights of that time: its plans are made once.

            with ist.full(calibrate=loader, batches=20) as model:
                accuracy = evaluate(model)
        """
        self._require_active("full")
        tensors, means = self._whole(states=False)
        how = data if data is not None else "whole" if self._context.single_process else "sharded"
        values, _ = self._values_and_states(tensors | means)
        if self._full is None or self._full[0] != how:
            self._full = (how, full_model(self._skeleton, values, how))
        else:
            refill(self._full[1], values)
        model = self._full[1]
        try:
            if calibrate is not None:
                calibrated(model, calibrate, batches)
            yield model
        except BaseException:
            self._full = None  # its planning may have failed
            raise

    def gather(self) -> nn.Module:
        """Ends the training of subnets: the model gets its whole tensors back on every rank, and the optimizer its
        state; returns the model. BatchNorm's statistics are the subnets': calibrate them with
        `torch.optim.swa_utils.update_bn`. All ranks call."""
        self._require_active("gather")
        self._subnets.activate(self._subnets.sites[0])
        tensors, means = self._whole(states=True)
        self._full = None
        self._subnets.restore(*_plain(*self._values_and_states(tensors | means)))
        self._remove_hooks()
        return self._model

    # --- checkpoints --------------------------------------------------------------------------------------------------

    def save_checkpoint(self, folder: Any, extra: dict[str, Any] | None = None) -> None:
        """Writes the full model and the optimizer's state, neurons in their original order, each site its own part, in
        the format of `joinsum.save_checkpoint`; `joinsum.load_checkpoint` reads it into the plain model too. A round
        that has begun ends first; `rounds`, `steps` and the seed are written too. All ranks call.

        extra   numbers, text, lists, dicts, which `load_checkpoint` returns
        """
        self._require_active("save_checkpoint")
        if self._steps or self._subnets.active != self._subnets.sites[0]:
            self.end_round()
        model, optimizer = self._full_copies(saving=True)
        rounds = {"round": self._rounds, "step": self.steps, "seed": self._seed}
        note = {_NOTE: rounds, "extra": dict(extra or {})}
        save_checkpoint(folder, model, optimizer, note)

    def load_checkpoint(self, folder: Any) -> dict[str, Any]:
        """Reads what `save_checkpoint` wrote, on any number of sites, and begins the round that followed; or what
        `joinsum.save_checkpoint` wrote of the plain model, and begins the first one. Returns `extra`. Raises
        CheckpointError as `joinsum.load_checkpoint` does. All ranks call.
        """
        self._require_active("load_checkpoint")
        model, optimizer = self._full_copies(saving=False)
        note = load_checkpoint(folder, model, optimizer)
        check_state_names(str(folder), optimizer)
        for own, read in zip(self._optimizer.param_groups, optimizer.param_groups, strict=True):
            own.update({key: value for key, value in read.items() if key != "params"})
        rounds = {"round": 0, "step": 0, "seed": self._seed} | note.get(_NOTE, {})  # none where it is of a plain model
        self._rounds, self._seed = int(rounds["round"]), int(rounds["seed"])
        self._steps_before, self._steps = int(rounds["step"]), 0
        values = {name: x.detach() for name, x in (*model.named_parameters(), *model.named_buffers())}
        states = {name: dict(optimizer.state.get(x, {})) for name, x in model.named_parameters()}
        with torch.no_grad():
            self._cut(values, states)
        extra: dict[str, Any] = note["extra"] if _NOTE in note else note
        return extra

    # --- lost sites ---------------------------------------------------------------------------------------------------

    def recover(self) -> None:
        """Goes on without sites that were lost, after `joinsum.init` with a process group of the others: with
        `buddy=True`, with the lost sites' weights as they were when the round began. All ranks that are left call.

            except joinsum.TransportError:
                ...  # a process group of the ranks that are left
                joinsum.init(group=group)
                ist.recover()

        Where it raises TransportError, another site was lost meanwhile: make a group of those that are left now, and
        call again. Raises CheckpointError where weights are lost with their copies.
        """
        self._require_active("recover")
        transport = context().transport
        own_stage = f"{self._rounds} {self._recoveries} {int(self._recovering)}"
        stages = [[int(each) for each in text.split()] for text in transport.gather_texts("IST", own_stage)]
        if self._rounds < max(round_ for round_, _, _ in stages):
            self._install(self._exchange.advance())  # others have begun the round for which all had arrived here
            self._begin_round(self._rounds + 1)
        # Where a recovery has failed on some ranks, all go back to what they had before it.
        failed = [number for _, number, recovering in stages if recovering]
        number = max(failed) if failed else 1 + max(number for _, number, _ in stages)
        if self._recoveries != number:
            with context().preparing("IST"):
                self._before_recovery, self._recoveries = self._records(), number
        own = self._before_recovery
        texts = transport.gather_texts("IST", " ".join(str(each.site) for each in own))
        new_sites = {int(site): place for place, text in enumerate(texts) for site in text.split()}
        self._recovering = True
        self._rebuild(own, new_sites)
        self._recovering = False

    def save_survivor(self, folder: Any) -> None:
        """Writes what this process's sites have, to go on without others that were lost; of ranks that end after a
        TransportError. `load_survivors` of the next job reads the files."""
        self._require_active("save_survivor")
        for record in self._before_recovery if self._recovering else self._records():
            write_record(Path(folder), record)

    def load_survivors(self, folder: Any) -> None:
        """Goes on with what `save_survivor` wrote on sites that were left, on any number of sites. All ranks call and
        see the same files. Raises CheckpointError where weights are lost with their copies, which is also so where one
        site had begun the next round and another had not, and for files of different trainings."""
        self._require_active("load_survivors")
        with self._context.preparing("IST"):
            records = self._survivors(Path(folder))
        first = records[0]
        self._agree(f"load_survivors: round={first.round}, seed={first.seed}, sites={[each.site for each in records]}")
        new_sites = {record.site: place % self._context.sites for place, record in enumerate(records)}
        local = set(self._context.local_sites)
        own_records = [record for record in records if new_sites[record.site] in local] or records[:1]
        self._rounds, self._steps_before, self._seed = first.round, first.steps, first.seed
        for own, read in zip(self._optimizer.param_groups, first.groups, strict=True):
            own.update(read)
        self._rebuild(own_records, new_sites)

    def _survivors(self, folder: Path) -> list[Record]:
        """The records of a folder that are of one training and of its last round."""
        found = [read_record(path) for path in record_files(folder).values()]
        # Files of an earlier loss may be there too: those of the last round count, and of the fewest sites.
        last = max((record.round, -record.sites) for record in found)
        records = [record for record in found if (record.round, -record.sites) == last]
        first = records[0]
        if any((each.seed, each.chunks) != (first.seed, first.chunks) for each in records):
            raise CheckpointError(f"{folder}: files of different trainings: sites={[each.site for each in records]}")
        fewest = min(first.chunks.values())
        if self._context.sites > fewest:
            what = f"sites={self._context.sites}, chunks of a layer={fewest}"
            raise CheckpointError(f"{folder}: fewer chunks than sites; start on fewer ranks: {what}")
        return records

    def _records(self) -> list[Record]:
        """What the sites of this process have."""
        with torch.no_grad():
            self._subnets.activate(self._subnets.sites[0])
            self._subnets.complete_states()
            bundles = self._bundles(self._carry)
            return [self._record(site, bundles) for site in self._subnets.sites]

    def _record(self, site: int, travelling: Sequence[Bundle]) -> Record:
        cut = {each.name for each in self._cuts}
        values, states = self._subnets.of_site(site)
        values = {name: value.clone() for name, value in values.items() if name not in cut}
        values |= {each.tensor: value.clone() for each, value in self._last.items()}
        numbers = {
            name: {
                key: value
                for key, value in state.items()
                if name not in cut or not isinstance(value, torch.Tensor) or value.numel() == 1
            }
            for name, state in states.items()
        }
        if not self._carry:
            numbers |= {name: {} for name in cut}
        bundles = self._exchange.records(site, travelling, self._assignments)
        counts = {name: chunks.count for name, chunks in self._chunks.items()}
        groups = self._optimizer.param_groups
        own = site, self._context.sites, self._rounds, self._steps_before, self._seed
        return Record(*own, counts, bundles, values, numbers, groups)

    def _rebuild(self, records: Sequence[Record], new_sites: Mapping[int, int]) -> None:
        """Begins the records' round on the sites that there are now."""
        first = records[0]
        self._context, self._full = context(), None
        sites = self._scale.factor = self._context.sites
        self._chunks = {layer.name: Chunks(layer.neurons, first.chunks[layer.name], sites) for layer in self.layers}
        self._subnets.move_to(self._context.local_sites, self._chunks)
        assembling = Exchange(self._subnets, self._chunks, self._homes, False)
        whole: dict[Slice, torch.Tensor] = {}
        with torch.no_grad(), self._context.preparing("run"):
            for place, each in enumerate(first.bundles):
                mine = {record.site: record.bundles[place] for record in records}
                whole |= assembling.assembled(mine, holders(each, new_sites), new_sites)
            values, states = dict(first.values), {name: dict(state) for name, state in first.states.items()}
            _put(whole, values, states)
            if sites == 1:
                self._cuts = []
                values, states = _plain(values, states)
            self._subnets.set_cuts(self._cuts)
            self._steps = 0
            self._cut(values, states)
            for site in self._subnets.sites:  # the moments of tensors that no layer cuts are each site's own
                own = next((record for record in records if new_sites[record.site] == site), first)
                for name in self._subnets.uncut_names():
                    for key, value in own.states.get(name, {}).items():
                        own_value = value.clone() if isinstance(value, torch.Tensor) else value
                        self._subnets.state(site, name)[key] = own_value

    # --- inside -------------------------------------------------------------------------------------------------------

    def _check(
        self,
        model: object,
        optimizer: object,
        every: object,
        state: object,
        homes: object,
        buddy: object,
        wire: object,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise PlanError(f"IST: a model is a torch.nn.Module: got={show(model)}")
        if isinstance(model, nn.parallel.DistributedDataParallel):
            raise PlanError(
                "IST: the model is in DistributedDataParallel, which adds other neurons' gradients; give its .module"
            )
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise PlanError(f"IST: an optimizer is a torch.optim.Optimizer: got={show(optimizer)}")
        if every is not None and integer("IST", "every", every) < 1:
            raise PlanError(f"IST: a round has at least one step: every={every}")
        if state not in ("carry", "reset"):
            raise PlanError(f'IST: state is "carry" or "reset": state={state!r}')
        if homes not in ("migrating", "fixed"):
            raise PlanError(f'IST: homes are "migrating" or "fixed": homes={homes!r}')
        if buddy and homes == "fixed":
            raise PlanError('IST: copies are of migrating weights: buddy=True, homes="fixed"')
        if wire not in (None, torch.bfloat16):
            raise PlanError(f"IST: wire is torch.bfloat16 or None: wire={wire!r}")
        if wire is not None and homes == "fixed":
            raise PlanError(f'IST: what moves is rounded with migrating homes: wire={wire}, homes="fixed"')
        own = {id(parameter) for parameter in model.parameters()}
        strange = [list(p.shape) for group in optimizer.param_groups for p in group["params"] if id(p) not in own]
        if strange:
            raise PlanError(
                "IST: the optimizer has parameters that are not the model's, which no exchange would average; give "
                f"them to the model, or to another optimizer: shapes={strange}"
            )
        check_not_distributed("IST", model)
        placed = [name for name, p in model.named_parameters() if isinstance(p, DistributedTensor)]
        if placed:
            raise PlanError(
                "IST: the sites have parts of a parameter, as train_step or distribute has placed it; call "
                f"joinsum.gather(model) first: parameter={placed[0]}"
            )
        empty = [name for name, p in model.named_parameters() if isinstance(p, nn.parameter.UninitializedParameter)]
        if empty:
            raise PlanError(
                f"IST: a lazy module has no shape before its first call; call the model once: parameter={empty[0]}"
            )
        if any(isinstance(hook, _SubnetHook) for hook in model._state_dict_pre_hooks.values()):
            raise PlanError("IST: the model has subnets already; end them with gather() of the other joinsum.IST")

    def _check_optimized(self, cuts: Sequence[Cut]) -> None:
        """Raises PlanError for a parameter that is cut and that the optimizer does not have."""
        optimized = {id(p) for group in self._optimizer.param_groups for p in group["params"]}
        parameters = dict(self._model.named_parameters())
        for name in (cut.name for cut in cuts if cut.name in parameters):
            if parameters[name].requires_grad and id(parameters[name]) not in optimized:
                raise PlanError(
                    "IST: a parameter that is cut is another optimizer's, whose state would not follow its neurons: "
                    f"parameter={name}"
                )

    def _layers(
        self, layers: object, unnormalised: bool, scaled: bool | None, attention_heads: bool
    ) -> tuple[tuple[HiddenLayer, ...], dict[str, str]]:
        if isinstance(layers, str):
            if layers != "auto":
                raise PlanError(f'IST: layers is "auto" or a list of (producers, norms, consumers): layers={layers!r}')
            heads_on = self._context.device if attention_heads else None
            found = find_layers(self._model, unnormalised, scaled, heads_on)
            return found.layers, found.uncut
        if not isinstance(layers, Sequence) or not layers:
            raise PlanError(f'IST: layers is "auto" or a list of (producers, norms, consumers): layers={layers!r}')
        explicit = explicit_layers(self._model, layers, unnormalised, scaled, self._context.device)
        check_named_layers(self._model, explicit)
        return tuple(explicit), {}

    def _chunks_of_layers(self) -> dict[str, Chunks]:
        sites = self._context.sites
        twice = {layer for cut in self._cuts if len(cut.axes) == 2 for layer in cut.axes}
        chunks = {}
        for layer in self.layers:
            if layer.neurons < sites:
                what = f"layer={layer.name}, neurons={layer.neurons}, sites={sites}"
                raise PlanError(f"IST: fewer neurons than sites: {what}")
            count = chunk_count(layer.neurons, sites, pairs=layer.name in twice)
            chunks[layer.name] = Chunks(layer.neurons, count, sites)
        return chunks

    def _begin(self) -> None:
        values, states = self._subnets.whole()
        self._bundles_of(values, self._states_to_cut(states))  # refuses states that cannot follow neurons
        self._agree(self._arguments())
        tensors = dict((*self._model.named_parameters(), *self._model.named_buffers()))
        # Those without memory are computed one by one, when they are cut.
        take_first_rank_values("IST", {name: x for name, x in tensors.items() if not x.is_meta})
        with torch.no_grad():
            self._cut(*self._subnets.whole())  # after the first rank's values have been taken
        self._agree("subnets have begun")
        self._hooks: list[Any] = [
            self._optimizer.register_step_post_hook(self._after_step),
            self._optimizer.register_state_dict_pre_hook(_SubnetHook()),
            self._optimizer.register_load_state_dict_pre_hook(_SubnetHook()),
            *(
                module.register_state_dict_pre_hook(_SubnetHook())  # type: ignore[no-untyped-call]
                for module in {self._model, *(self._model.get_submodule(each) for each in self._cut_modules())}
            ),
        ]
        self._scale = _Scale(self._context.sites)
        for layer in self.layers:
            if layer.scaled:
                self._hooks += [
                    self._model.get_submodule(member.module).register_forward_pre_hook(self._scale, with_kwargs=True)
                    for member in layer.consumers
                ]
        self._hooks += forward_passes(self._model, [layer.name for layer in self.layers])
        self._active = True

    def _cut(self, values: dict[str, torch.Tensor], states: dict[str, dict[str, Any]]) -> None:
        """Begins a round with whole tensors: plain ones, or distributed as `Exchange.whole_tensors` gives them."""
        self._assignments = self._drawn(self._rounds)
        states = self._states_to_cut(states)
        bundles = self._bundles_of(values, states)
        whole = {
            each: values[each.tensor] if each.state is None else states[each.tensor][each.state]
            for bundle in bundles
            for each in bundle.slices
        }
        self._subnets.cut(values, states)
        self._exchange: Exchange = Exchange(
            self._subnets, self._chunks, self._homes, self._buddy, self._wire, self._overlap
        )
        self._exchange.begin(bundles, whole, self._assignments)
        self._last = self._shared_values()

    def _states_to_cut(self, states: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """The states without those that are reset."""
        return states if self._carry else states | {cut.name: {} for cut in self._cuts}

    def _values_and_states(
        self, found: dict[Slice, torch.Tensor]
    ) -> tuple[dict[str, torch.Tensor], dict[str, dict[str, Any]]]:
        """All tensors and states of the full model, by name: those that were found, and the first site's."""
        values = {name: self._subnets.value(self.site, name).clone() for name in self._subnets.shapes}
        states = {name: dict(self._subnets.state(self.site, name)) for name in self._subnets.shapes}
        if not self._carry:
            states |= {cut.name: {} for cut in self._cuts}
        _put(found, values, states)
        return values, states

    def _full_copies(self, saving: bool) -> tuple[nn.Module, torch.optim.Optimizer]:
        """The full model, and an optimizer of its parameters with the options of the user's. With `saving` it has the
        states of the user's, and the sites take the means that these have; without, it has none."""
        tensors, means = self._whole(states=saving)
        if saving:
            with torch.no_grad():
                self._install(means)
        values, states = self._values_and_states(tensors | means)
        model = filled(self._skeleton, values)
        parameters, names = dict(model.named_parameters()), self._subnets.names
        groups = [
            {**group, "params": [parameters[names[id(p)]] for p in group["params"]]}
            for group in self._optimizer.param_groups
        ]
        found: dict[torch.Tensor, dict[str, Any]] = {}
        if saving:
            found |= {p: states[name] for name, p in parameters.items() if states.get(name)}
        return model, with_parameters(self._optimizer, groups, found)

    def _cut_modules(self) -> set[str]:
        """The modules that have cut tensors."""
        return {cut.name.rpartition(".")[0] for cut in self._cuts}

    def _agree(self, text: str) -> None:
        """Raises TransportError where ranks have another text, or one has failed."""
        if not self._context.single_process:
            self._context.transport.agree("IST", text)

    def _arguments(self) -> str:
        """What all ranks have alike."""
        options = (
            f"every={self._every}, seed={self._seed}, carry={self._carry}, homes={self._homes}, buddy={self._buddy}, "
            f"wire={self._wire}, overlap={self._overlap}, optimizer={type(self._optimizer).__name__}"
        )
        layers = [
            f"layer {layer.name}: neurons={layer.neurons}, scaled={layer.scaled}, modules="
            f"{[member.module for member in layer.members]}"
            for layer in self.layers
        ]
        tensors = [f"{name}: {list(tensor.shape)} {tensor.dtype}" for name, tensor in self._model.named_parameters()]
        return "\n".join([options, *layers, *tensors])

    def _drawn(self, round_number: int) -> dict[str, Assignment]:
        return {
            layer.name: assignment(self._chunks[layer.name], self._seed, round_number, layer.name)
            for layer in self.layers
        }

    def _bundles(self, carry: bool) -> list[Bundle]:
        values, states = self._subnets.of_site(self.site)
        return self._bundles_of(values, states if carry else {})

    def _bundles_of(self, values: Mapping[str, torch.Tensor], states: Mapping[str, Mapping[str, Any]]) -> list[Bundle]:
        """Bundles of these tensors and states; those that are large have few slices."""
        found = bundles_of(self._cuts, self._subnets.shapes, self._subnets.travelling(values, states))
        split = []
        for bundle in found:
            size = bundle.local_bytes(self._chunks, 0) // len(bundle.slices)
            split += bundle.split(1 if size > ALONE_BYTES else max(TOGETHER_BYTES // max(size, 1), 1))
        return split

    def _whole(self, states: bool) -> tuple[dict[Slice, torch.Tensor], dict[Slice, torch.Tensor]]:
        """The cut tensors of the full model, distributed, and the means of the others; of the optimizer's too with
        `states`."""
        with torch.no_grad(), self._context.preparing("run"):
            if states:
                self._subnets.complete_states()
            averages = self._averages(states)
            bundles = self._bundles(states and self._carry)
            if self._every is None:  # in an explicit round others may have taken a step
                self._exchange.start_ahead(self._drawn(self._rounds + 1))
            tensors, means = self._exchange.whole_tensors(bundles, self._assignments, averages)
            return dict(tensors), means

    def _shared_values(self) -> dict[Slice, torch.Tensor]:
        return {Slice(name): self._subnets.value(self.site, name).clone() for name in self._subnets.uncut_names()}

    def _averages(self, states: bool) -> Averages[Slice]:
        """Of what every site trains whole; with `states` also of the optimizer's states for it."""
        base: dict[Slice, torch.Tensor] = {}
        if self._context.sites > 1:
            base |= {Slice(name): self._last[Slice(name)] for name in self._subnets.shared_names()}
            for each in self._subnets.shared_states() if states else ():
                base[each] = torch.zeros_like(self._subnets.array(self.site, each))
        values = [{each: self._subnets.array(site, each) for each in base} for site in self._subnets.sites]
        return Averages(base, values)

    def _install(self, means: dict[Slice, torch.Tensor]) -> None:
        """Gives every site the means."""
        for each, mean in means.items():
            if each in self._last:
                self._last[each].copy_(mean)
            for site in self._subnets.sites:
                self._subnets.array(site, each).copy_(mean)

    def _after_step(self, *_: object) -> None:
        self._subnets.next_turn()
        if self._subnets.active != self._subnets.sites[0]:
            return
        self._steps += 1
        if self._every is not None and self._steps >= self._every:
            self.end_round()
        elif self._steps == 1:
            with torch.no_grad(), self._context.preparing("run"):
                self._exchange.start_ahead(self._drawn(self._rounds + 1))
        else:
            self._exchange.check_ahead()

    def _remove_hooks(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._active = False

    def _require_active(self, what: str) -> None:
        if not self._active:
            raise PlanError(f"IST: {what}: the training of subnets has ended; make another joinsum.IST")


class _SubnetHook:
    """Refuses to save or copy a model that has a subnet's tensors."""

    def __call__(self, *_: object) -> None:
        raise PlanError(
            "IST: the model has a subnet's tensors; save the full one with ist.save_checkpoint(folder), or with "
            "ist.full() as model: ... model.state_dict()"
        )

    def __reduce_ex__(self, _: object) -> Any:
        raise PlanError(
            "IST: the model has a subnet's tensors, and the neurons that they are of change with each round; copy or "
            "average the full one: with ist.full() as model"
        )


@dataclass
class _Scale:
    """Multiplies a module's only input, which may be passed by its name."""

    factor: int

    def __call__(
        self, _: nn.Module, inputs: tuple[torch.Tensor, ...], named: dict[str, torch.Tensor]
    ) -> tuple[tuple[torch.Tensor, ...], dict[str, torch.Tensor]]:
        return tuple(x * self.factor for x in inputs), {name: x * self.factor for name, x in named.items()}


def _put(
    found: Mapping[Slice, torch.Tensor], values: dict[str, torch.Tensor], states: dict[str, dict[str, Any]]
) -> None:
    """Puts what was found among the tensors and states by name."""
    for each, tensor in found.items():
        if each.state is None:
            values[each.tensor] = tensor
        else:
            states.setdefault(each.tensor, {})[each.state] = tensor


def _plain(
    values: Mapping[str, torch.Tensor], states: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, torch.Tensor], dict[str, dict[str, Any]]]:
    """The same with unsharded tensors; all ranks call."""

    def full(value: Any) -> Any:
        return value.full_tensor() if isinstance(value, DistributedTensor) else value

    whole = {name: full(value) for name, value in values.items()}
    return whole, {name: {key: full(value) for key, value in state.items()} for name, state in states.items()}
