"""The arguments of `joinsum.IST`: what is refused, which layers are cut, and in how many chunks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch
from torch import nn

from joinsum.base.arguments import integer, show
from joinsum.base.errors import PlanError
from joinsum.cluster.context import context
from joinsum.distributed.distributed_tensor import DistributedTensor
from joinsum.ist.exchange.options import Options
from joinsum.ist.hooks import has_subnets
from joinsum.ist.layers.discovery import Found, check_named_layers, find_layers
from joinsum.ist.layers.distributed_models import refuse_distributed
from joinsum.ist.layers.hidden_layers import Cut, HiddenLayer, Unnormalised, explicit_layers
from joinsum.ist.rounds import Rounds
from joinsum.ist.subnets.optimizers import sparse_refusal, sparse_state
from joinsum.ist.subnets.sampling import Chunks, chunk_count

__all__ = ["check_arguments", "check_parameters", "chunks_of", "layers_to_cut", "stated"]


def check_arguments(model: object, optimizer: object, every: object, options: Options) -> None:
    """Raises PlanError for arguments that no training can begin with, whichever layers are cut."""
    if not isinstance(model, nn.Module):
        raise PlanError(f"IST: a model is a torch.nn.Module: got={show(model)}")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise PlanError(f"IST: an optimizer is a torch.optim.Optimizer: got={show(optimizer)}")
    if every is not None and integer("IST", "every", every) < 1:
        raise PlanError(f"IST: a round has at least one step: every={every}")
    options.check()
    own = {id(parameter) for parameter in model.parameters()}
    strange = [list(p.shape) for group in optimizer.param_groups for p in group["params"] if id(p) not in own]
    if strange:
        raise PlanError(
            "IST: the optimizer has parameters that are not the model's, which no exchange would average; give "
            f"them to the model, or to another optimizer: shapes={strange}"
        )
    refuse_distributed(model)
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
    if has_subnets(model):
        raise PlanError("IST: the model has subnets already; end them with gather() of the other joinsum.IST")


def layers_to_cut(
    model: nn.Module, layers: object, unnormalised: Unnormalised, scaled: bool | None, attention_heads: bool
) -> Found:
    """The hidden layers that the arguments of `joinsum.IST` ask for. Raises PlanError, naming the module."""
    device = context().device
    if unnormalised not in (True, False, "skip"):
        raise PlanError(f'IST: unnormalised is True, False or "skip": unnormalised={show(unnormalised)}')
    if scaled not in (True, False, None):
        raise PlanError(f"IST: scaled is True, False or None: scaled={show(scaled)}")
    if isinstance(layers, str) and layers == "auto":
        return find_layers(model, unnormalised, scaled, device if attention_heads else None)
    if isinstance(layers, str) or not isinstance(layers, Sequence) or not layers:
        raise PlanError(f'IST: layers is "auto" or a list of (producers, norms, consumers): layers={layers!r}')
    explicit = explicit_layers(model, layers, unnormalised, scaled, device)
    check_named_layers(model, explicit)
    return Found(tuple(explicit), {})


def check_parameters(model: nn.Module, optimizer: torch.optim.Optimizer, cuts: Sequence[Cut], carry: bool) -> None:
    """Raises PlanError for parameters that the optimizer lacks where they are cut or sites take turns, for complex
    ones that are cut, and for those whose state would be sparse."""
    optimized = {id(p) for group in optimizer.param_groups for p in group["params"]}
    parameters = dict(model.named_parameters())
    for name in (cut.name for cut in cuts if cut.name in parameters):
        if parameters[name].requires_grad and id(parameters[name]) not in optimized:
            raise PlanError(
                "IST: the optimizer does not have a parameter that is cut, whose state another one would not move with "
                f"its neurons; add it, or freeze it by requires_grad_(False): parameter={name}"
            )
    tensors = dict((*model.named_parameters(), *model.named_buffers()))
    for name in (cut.name for cut in cuts if tensors[cut.name].is_complex()):
        raise PlanError(
            f"IST: a complex tensor cannot be cut; name the layers to cut: tensor={name}, dtype={tensors[name].dtype}"
        )
    if len(context().local_sites) > 1:
        _check_turns(parameters, optimized)
    if context().sites > 1:
        _check_sparse_states(model, optimizer, {cut.name for cut in cuts} if not carry else set())


def _check_turns(parameters: Mapping[str, nn.Parameter], optimized: Collection[int]) -> None:
    """Raises PlanError for a parameter that another optimizer may train."""
    for name, parameter in parameters.items():
        if parameter.requires_grad and id(parameter) not in optimized:
            raise PlanError(
                "IST: on loopback the sites take turns with each step of one optimizer, and another one would step "
                "other sites' parameters; use one optimizer with parameter groups, train under torchrun, or freeze "
                f"the parameter by requires_grad_(False): parameter={name}"
            )


def _check_sparse_states(model: nn.Module, optimizer: torch.optim.Optimizer, reset: Collection[str]) -> None:
    """Raises PlanError for embeddings with sparse gradients whose state would be sparse, unless it is reset."""
    for owner, module in model.named_modules():
        if not isinstance(module, (nn.Embedding, nn.EmbeddingBag)) or not module.sparse:
            continue
        name = f"{owner}.weight" if owner else "weight"
        state = None if name in reset else sparse_state(optimizer, module.weight)
        if state is not None:
            raise PlanError(sparse_refusal(optimizer, name, state))


def chunks_of(layers: Sequence[HiddenLayer], cuts: Sequence[Cut]) -> dict[str, Chunks]:
    """The chunks in which each layer's neurons are dealt out to the sites. Raises PlanError for fewer neurons than
    sites."""
    sites = context().sites
    twice = {layer for cut in cuts if len(cut.axes) == 2 for layer in cut.axes}
    chunks = {}
    for layer in layers:
        if layer.neurons < sites:
            what = f"layer={layer.name}, neurons={layer.neurons}, sites={sites}"
            raise PlanError(f"IST: fewer neurons than sites: {what}")
        count = chunk_count(layer.neurons, sites, pairs=layer.name in twice)
        chunks[layer.name] = Chunks(layer.neurons, count, sites)
    return chunks


def stated(model: nn.Module, layers: Sequence[HiddenLayer], rounds: Rounds) -> str:
    """What all ranks have alike, as text."""
    options = rounds.options
    first = (
        f"every={rounds.every}, seed={rounds.seed}, carry={options.carry}, homes={options.homes}, "
        f"buddy={options.buddy}, wire={options.wire}, overlap={options.overlap}, "
        f"optimizer={type(rounds.subnets.optimizer).__name__}"
    )
    cut = [
        f"layer {layer.name}: neurons={layer.neurons}, scaled={layer.scaled}, modules="
        f"{[member.module for member in layer.members]}"
        for layer in layers
    ]
    tensors = [f"{name}: {list(tensor.shape)} {tensor.dtype}" for name, tensor in model.named_parameters()]
    return "\n".join([first, *cut, *tensors])
