"""`joinsum.IST`: independent subnet training around the user's own loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from joinsum.base.arguments import integer
from joinsum.base.errors import PlanError
from joinsum.cluster.context import Context, context, context_of
from joinsum.distributed.first_values import take_first_rank_values
from joinsum.ist.checkpoints import read_checkpoint, read_weights, write_checkpoint, write_weights
from joinsum.ist.construction import check_arguments, check_parameters, chunks_of, layers_to_cut, stated
from joinsum.ist.exchange.options import Options
from joinsum.ist.exchange.relations import Homes
from joinsum.ist.exchange.site_plans import remedy_named
from joinsum.ist.full_model import calibrated, check_calibration, empty_copy, full_model, has_shapes_of, refill
from joinsum.ist.hooks import Hooks
from joinsum.ist.layers.hidden_layers import Unnormalised, cut_tensors
from joinsum.ist.recovery import Recovery
from joinsum.ist.report import Report
from joinsum.ist.rounds import Rounds, unsharded
from joinsum.ist.subnets.averages import with_real_parts
from joinsum.ist.subnets.optimizers import check_optimizer
from joinsum.ist.subnets.subnets import Subnets
from joinsum.planner.cost import cost

__all__ = ["IST"]


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
    state       "carry": the optimizer's state follows the neurons; "reset": all of it starts anew in every round
    homes       "migrating": weights that rest stay on the site that trained them last, and all travel once a round;
                "fixed": each has a home, to which it returns, so that all travel twice
    buddy       whether every weight has a copy on another site, so that training goes on without a site that is lost
                (`recover`); at most V more bytes a round
    wire        `torch.bfloat16`: weights and moments that move between sites are rounded to it, which halves the
                bytes of float32; what stays on its site is not
    overlap     whether weights between two hidden layers that rest in a round move to the sites that train them next
                while the round trains (docs/ist.md); for processes on CPUs with migrating homes and no copies
    unnormalised   whether to cut layers without a norm between producer and consumer: False refuses the model, "skip"
                leaves those that "auto" finds whole
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
        unnormalised: Unnormalised = False,
        scaled: bool | None = None,
        attention_heads: bool = False,
    ) -> None:
        with context_of(group).preparing("IST"):
            model = _inside_compiled(model)
            options = Options(state, homes, buddy, wire, overlap)
            check_arguments(model, optimizer, every, options)
            seed = integer("IST", "seed", seed)
            found = layers_to_cut(model, layers, unnormalised, scaled, attention_heads)
            self.layers, self.uncut = found.layers, found.uncut
            all_cuts = cut_tensors(model, self.layers)
            cuts = all_cuts if context().sites > 1 else []
            check_parameters(model, optimizer, all_cuts, options.carry)
            cut_names = {cut.name for cut in cuts}
            cut_parameters = [p for name, p in model.named_parameters() if name in cut_names]
            check_optimizer(optimizer, cut_parameters, options.carry)
            chunks = chunks_of(self.layers, cuts)
            self._model = model
            self._empty, self._no_copy = _empty_or_reason(model)
            self._full: tuple[str, nn.Module] | None = None  # and how its data are passed
            self._subnets = Subnets(model, optimizer, self.layers, cuts, chunks, context().local_sites)
            self._rounds = Rounds(self._subnets, chunks, options, every, seed)
            self._recovery = Recovery(self._rounds)
            self._hooks = Hooks()
            self._active = False
            self._begin()

    def _begin(self) -> None:
        rounds, tensors = self._rounds, dict((*self._model.named_parameters(), *self._model.named_buffers()))
        rounds.check_states(*self._subnets.whole())
        rounds.agree(stated(self._model, self.layers, rounds))
        # Those without memory are computed one by one, when they are cut.
        take_first_rank_values("IST", {name: with_real_parts(x) for name, x in tensors.items() if not x.is_meta})
        with torch.no_grad():
            rounds.begin(*self._subnets.whole())  # after the first rank's values have been taken
        rounds.agree("subnets have begun")
        self._hooks.after_steps(self.optimizer, self._after_step)
        owners = {cut.name.rpartition(".")[0] for cut in self._subnets.cuts}
        self._hooks.refuse_state_dicts(self.optimizer, {self._model, *map(self._model.get_submodule, owners)})
        self._hooks.change_forward(self._model, self.layers, rounds.context.sites)
        self._active = True

    # --- what it is ---------------------------------------------------------------------------------------------------

    @property
    def rounds(self) -> int:
        """Rounds that have ended."""
        return self._rounds.number

    @property
    def steps(self) -> int:
        """Steps that every site has taken, also before a checkpoint that was loaded."""
        return self._rounds.steps_before + self._rounds.steps

    @property
    def site(self) -> int:
        """The site whose subnet the model has."""
        return self._subnets.active

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The optimizer whose steps make the rounds."""
        return self._subnets.optimizer

    def __repr__(self) -> str:
        layers = ", ".join(f"{layer.name}: {layer.neurons}" for layer in self.layers)
        return f"<IST of {layers} on {self._context.sites} sites, {self.rounds} rounds>"

    def neurons(self, layer: str, site: int | None = None) -> list[int]:
        """The neurons of a hidden layer that a site trains in this round, by default the site whose subnet the model
        has; in the order of its parameters."""
        if site is not None and not 0 <= site < self._context.sites:
            raise PlanError(f"IST: no such site: site={site}, sites={self._context.sites}")
        assignments = self._rounds.assignments
        if layer not in assignments:
            raise PlanError(f"IST: no such hidden layer: layer={layer!r}, layers={list(assignments)}")
        return assignments[layer].neurons(self.site if site is None else site)

    def explain(self) -> Report:
        """What the next exchange moves, to the byte, beside local SGD and data parallel training; what a site stores;
        the plan. On a process group all ranks call; nothing moves."""
        self._require_active("explain")
        plan, exchange = self._rounds.next_plan(), self._rounds.exchange
        shapes, parameters = self._subnets.shapes, self._model.named_parameters()
        model_bytes = sum(shapes[name].numel() * each.element_size() for name, each in parameters)
        stored = [self._subnets.bytes_of(self.site, name) for name in shapes]
        sites = self._context.sites
        return Report(
            layers=self.layers,
            chunks=self._rounds.chunks,
            uncut=self.uncut,
            sites=sites,
            every=self._rounds.every,
            local_sgd_bytes=2 * (sites - 1) * model_bytes,
            site_bytes=(
                sum(own for own, _ in stored),
                exchange.resting_bytes // len(self._subnets.sites),
                sum(whole for _, whole in stored),
            ),
            ahead_bytes=exchange.ahead_bytes,
            cost=None if plan is None or sites == 1 else cost(plan),
            plan=plan if sites > 1 else None,
        )

    # --- rounds -------------------------------------------------------------------------------------------------------

    def end_round(self) -> None:
        """Exchanges neurons for the next round; all ranks call. The optimizer's steps do it every `every` steps."""
        self._require_active("end_round")
        self._rounds.end()
        self._recovery.end_round()

    @contextmanager
    def round(self) -> Iterator[None]:
        """A round of as many steps as the block takes; it ends with the block.

        for _ in range(rounds):
            with ist.round():
                for inputs, target in islice(batches, steps):
                    ...
        """
        self._require_active("round")
        every, self._rounds.every = self._rounds.every, None
        try:
            yield
        finally:
            self._rounds.every = every
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

        calibrate   batches, of which the first element of a tuple or list is the input, and the elements of a mapping
                    are passed by name: the running statistics of BatchNorm are computed anew over them with the full
                    model, as `torch.optim.swa_utils.update_bn` does; without it they are the subnets' own
        batches     at most so many
        data        as in `joinsum.distribute`: "sharded" (each rank passes its own batches; by default on process
                    groups), or "whole"

        All ranks of a process group call, and make the same calls of the model. The same module comes each time, with
        the weights of that time: its plans are made once.

            with ist.full(calibrate=loader, batches=20) as model:
                accuracy = evaluate(model)
        """
        self._require_active("full")
        with self._context.preparing("IST"):
            check_calibration(calibrate, batches)
        skeleton = self._skeleton()
        tensors, means = self._rounds.whole(states=False)
        how = data if data is not None else "whole" if self._context.single_process else "sharded"
        values, _ = self._rounds.values_and_states(tensors | means)
        if self._full is None or self._full[0] != how or not has_shapes_of(self._full[1], values):
            self._full = (how, full_model(skeleton, values, how))
        else:
            refill(self._full[1], values)
        model = self._full[1]
        try:
            with remedy_named("the full model is not evaluated"):
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
        tensors, means = self._rounds.whole(states=True)
        self._full = None
        self._subnets.restore(*unsharded(*self._rounds.values_and_states(tensors | means)))
        self._rounds.close()
        self._hooks.remove()
        self._active = False
        return self._model

    # --- checkpoints --------------------------------------------------------------------------------------------------

    def save_checkpoint(self, folder: Any, extra: dict[str, Any] | None = None) -> None:
        """Writes the full model and the optimizer's state, neurons in their original order, each site its own part, in
        the format of `joinsum.save_checkpoint`; `joinsum.load_checkpoint` reads it into the plain model too. A round
        that has begun ends first; `rounds`, `steps` and the seed are written too. All ranks call.

        extra   numbers, text, lists, dicts, which `load_checkpoint` returns
        """
        self._require_active("save_checkpoint")
        skeleton = self._skeleton()
        self._end_begun_round()
        with remedy_named("no checkpoint is written"):
            write_checkpoint(folder, self._rounds, skeleton, extra or {})

    def load_checkpoint(self, folder: Any) -> dict[str, Any]:
        """Reads what `save_checkpoint` wrote, on any number of sites, and begins the round that followed; or what
        `joinsum.save_checkpoint` wrote of the plain model, and begins the first one. Returns `extra`. Raises
        CheckpointError as `joinsum.load_checkpoint` does. All ranks call.
        """
        self._require_active("load_checkpoint")
        return read_checkpoint(folder, self._rounds, self._skeleton())

    def save_safetensors(self, path: Any) -> None:
        """Writes the full model's weights as one file in the format of `joinsum.save_safetensors`, which reads it into
        the plain model; `rounds`, `steps` and the seed are in its metadata. A round that has begun ends first. Rank 0
        gathers the weights; the optimizer's state is not written. All ranks call."""
        self._require_active("save_safetensors")
        skeleton = self._skeleton()
        self._end_begun_round()
        with remedy_named("no weights are written"):
            write_weights(path, self._rounds, skeleton)

    def load_safetensors(self, path: Any) -> None:
        """Reads what `save_safetensors` wrote, on any number of sites, and begins the round that followed with a new
        state of the optimizer; or what `joinsum.save_safetensors` wrote of the plain model, and begins the first one.
        Raises CheckpointError as `joinsum.load_safetensors` does. All ranks call."""
        self._require_active("load_safetensors")
        read_weights(path, self._rounds, self._skeleton())

    def _end_begun_round(self) -> None:
        if self._rounds.steps or self._subnets.active != self._subnets.sites[0]:
            self.end_round()

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
        self._recovery.recover()
        self._sites_have_changed()

    def save_survivor(self, folder: Any) -> None:
        """Writes what this process's sites have, to go on without others that were lost; of ranks that end after a
        TransportError. `load_survivors` of the next job reads the files."""
        self._require_active("save_survivor")
        self._recovery.save(Path(folder))

    def load_survivors(self, folder: Any) -> None:
        """Goes on with what `save_survivor` wrote on sites that were left, on any number of sites. All ranks call and
        see the same files. Raises CheckpointError where weights are lost with their copies, which is also so where one
        site had begun the next round and another had not, and for files of different trainings."""
        self._require_active("load_survivors")
        self._recovery.load(Path(folder))
        self._sites_have_changed()

    def _sites_have_changed(self) -> None:
        self._full = None
        self._hooks.scale_by(self._context.sites)

    # --- inside -------------------------------------------------------------------------------------------------------

    @property
    def _context(self) -> Context:
        return self._rounds.context

    def _skeleton(self) -> nn.Module:
        """The full model without memory. Raises PlanError where it cannot be copied."""
        with self._context.preparing("IST"):
            if self._empty is None:
                raise PlanError(self._no_copy)
            return self._empty

    def _after_step(self, *_: object) -> None:
        rounds, subnets = self._rounds, self._subnets
        subnets.next_turn()
        if subnets.active != subnets.sites[0]:
            return
        rounds.steps += 1
        if rounds.every is not None and rounds.steps >= rounds.every:
            self.end_round()
        elif rounds.steps == 1:
            rounds.start_ahead()
        else:
            rounds.exchange.check_ahead()

    def _require_active(self, what: str) -> None:
        if not self._active:
            raise PlanError(f"IST: {what}: the training of subnets has ended; make another joinsum.IST")


def _inside_compiled(model: nn.Module) -> nn.Module:
    """The module that `torch.compile` has wrapped, whose tensors have plain names; any other one as it is."""
    inside = getattr(model, "_orig_mod", None)
    return inside if isinstance(inside, nn.Module) else model


def _empty_or_reason(model: nn.Module) -> tuple[nn.Module | None, str]:
    """The model without memory; or None and why it cannot be copied, which matters only where its copy is needed."""
    try:
        return empty_copy(model), ""
    except PlanError as error:
        return None, str(error)
