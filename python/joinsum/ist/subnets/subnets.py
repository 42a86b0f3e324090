"""The subnets of this process's sites: the model's tensors and the optimizer's state.

On a process group there is one site, whose tensors stay in the model. On loopback sites one process takes turns: the
model has the tensors of the site whose turn it is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from joinsum.base.errors import PlanError
from joinsum.cluster.context import context
from joinsum.distributed.distributed_tensor import replace_tensor
from joinsum.frontend.empty_models import detached, initial_value
from joinsum.ist.layers.hidden_layers import Cut, HiddenLayer
from joinsum.ist.layers.modules import set_counts
from joinsum.ist.subnets.bundles import Slice
from joinsum.ist.subnets.optimizers import first_state, small, sparse_refusal
from joinsum.ist.subnets.sampling import Chunks

__all__ = ["Subnets"]


class Subnets:
    """Tensors and states by site and name.

    cuts       the tensors of which a site has a part; every site has its own copy of all others
    excluded   buffers that no exchange averages, since the forward pass has given them other shapes or dtypes somewhere
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        layers: Sequence[HiddenLayer],
        cuts: Sequence[Cut],
        chunks: Mapping[str, Chunks],
        sites: Sequence[int],
    ) -> None:
        self.optimizer = optimizer
        self._parameters: dict[str, torch.Tensor] = dict(model.named_parameters())
        self._buffers = {
            name: (model.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2])
            for name, _ in model.named_buffers()
        }
        self._modules = [
            (model.get_submodule(member.module), member, chunks[layer.name])
            for layer in layers
            for member in layer.members
        ]
        self._layers = [layer.name for layer in layers for _ in layer.members]
        self._cut = {cut.name: cut for cut in cuts}
        self._chunks = chunks
        self.excluded: Collection[str] = ()
        self.sites = list(sites)
        self.active = self.sites[0]
        self.shapes = {name: tensor.shape for name, tensor in self._live.items()}
        self._dtypes = {name: tensor.dtype for name, tensor in self._live.items()}
        self.names = {id(tensor): name for name, tensor in self._parameters.items()}
        self._values: dict[int, dict[str, torch.Tensor]] = {}
        self._states: dict[int, dict[str, dict[str, Any]]] = {}

    @property
    def _live(self) -> dict[str, torch.Tensor]:
        """The model's tensors. A forward pass may give a module another tensor for a buffer."""
        buffers = {name: getattr(module, attribute) for name, (module, attribute) in self._buffers.items()}
        return self._parameters | buffers

    def _tensor(self, name: str) -> torch.Tensor:
        if name in self._parameters:
            return self._parameters[name]
        module, attribute = self._buffers[name]
        found: torch.Tensor = getattr(module, attribute)
        return found

    # --- cutting and restoring ----------------------------------------------------------------------------------------

    def whole(self) -> tuple[dict[str, torch.Tensor], dict[str, dict[str, Any]]]:
        """The tensors of the model as it was made, and the optimizer's states, by name."""
        values = {name: detached(tensor) for name, tensor in self._live.items()}
        return values, {name: dict(self.optimizer.state.get(tensor, {})) for name, tensor in self._live.items()}

    def cut(self, values: Mapping[str, torch.Tensor], states: Mapping[str, Mapping[str, Any]]) -> None:
        """Gives each site tensors and states of its shapes. Where they are cut, these are zeros, and of the arguments
        only the shapes count; all others are copies."""
        shapes = {site: {name: self._local_shape(name, site) for name in self._cut} for site in self.sites}
        for site, local in shapes.items():
            self._values[site] = {
                name: _zeros(value, local[name]) if name in local else _own(value) for name, value in values.items()
            }
            self._states[site] = {
                name: {key: self._local_state(value, name, local.get(name)) for key, value in state.items()}
                for name, state in states.items()
            }
        for tensor in self._live.values():
            self.optimizer.state.pop(tensor, None)
            tensor.grad = None
        self.active = self.sites[0]
        self._load(self.active)

    def _local_state(self, value: object, name: str, local: Sequence[int] | None) -> object:
        if not isinstance(value, torch.Tensor):
            return value
        return _zeros(value, local) if local is not None and value.shape == self.shapes[name] else value.clone()

    def restore(self, values: Mapping[str, torch.Tensor], states: Mapping[str, Mapping[str, Any]]) -> None:
        """Puts whole tensors and states into the model and the optimizer."""
        for name, tensor in self._live.items():
            self._put(name, values[name])
            self.optimizer.state.pop(tensor, None)
            if states.get(name):
                self.optimizer.state[tensor] = dict(states[name])
            tensor.grad = None
        for module, member, chunks in self._modules:
            set_counts(module, member, chunks.neurons)

    def _put(self, name: str, value: torch.Tensor) -> None:
        """Gives a tensor of the model another one's memory; a buffer that no longer is a plain tensor is replaced."""
        tensor = self._tensor(name)
        if name in self._buffers and (tensor.grad_fn is not None or tensor.dtype != value.dtype):
            module, attribute = self._buffers[name]
            setattr(module, attribute, value)
        else:
            _assign(tensor, value)

    def _local_shape(self, name: str, site: int) -> list[int]:
        shape = list(self.shapes[name])
        cut = self._cut[name]
        for layer, (axis, block) in cut.axes.items():
            shape[axis] = cut.outer.get(layer, 1) * self._chunks[layer].neurons_of_sites[site] * block
        return shape

    def move_to(self, sites: Sequence[int], chunks: Mapping[str, Chunks]) -> None:
        """Takes other sites and shares, before `cut` begins anew."""
        self.sites, self._chunks = list(sites), chunks
        self.active = self.sites[0]
        self._modules = [
            (module, member, chunks[layer])
            for (module, member, _), layer in zip(self._modules, self._layers, strict=True)
        ]

    @property
    def cuts(self) -> list[Cut]:
        """The tensors of which a site has a part."""
        return list(self._cut.values())

    def cut_nothing(self) -> None:
        """Has one site have all tensors whole from now on."""
        self._cut = {}

    # --- tensors ------------------------------------------------------------------------------------------------------

    def value(self, site: int, name: str) -> torch.Tensor:
        """A tensor of a site; writing into it writes the site's."""
        return self._tensor(name).detach() if site == self.active else self._values[site][name]

    def state(self, site: int, name: str) -> dict[str, Any]:
        """The optimizer's state for a parameter of a site."""
        if site != self.active:
            return self._states[site].get(name, {})
        found: dict[str, Any] = self.optimizer.state.get(self._tensor(name), {})
        return found

    def bytes_of(self, site: int, name: str) -> tuple[int, int]:
        """Bytes of a site's tensor and the optimizer's state for it, and those of the whole tensor and its state."""
        value = self.value(site, name)
        tensors = [value, *(each for each in self.state(site, name).values() if isinstance(each, torch.Tensor))]
        times = self.shapes[name].numel() / max(value.numel(), 1)
        whole = [round(each.nbytes * times) if each.dim() else each.nbytes for each in tensors]
        return sum(each.nbytes for each in tensors), sum(whole)

    def array(self, site: int, of: Slice) -> torch.Tensor:
        """The tensor that a slice names; zeros for a state that a site does not have yet."""
        if of.state is None:
            return self.value(site, of.tensor)
        found: torch.Tensor | None = self.state(site, of.tensor).get(of.state)
        return torch.zeros_like(self.value(site, of.tensor)) if found is None else found

    def uncut_names(self) -> list[str]:
        """The tensors of floating point or complex numbers that every site has whole."""
        return [name for name, dtype in self._dtypes.items() if name not in self._cut and _is_averaged(dtype)]

    def shared_names(self) -> list[str]:
        """Those that training changes now, without those of `excluded`."""
        trained = {n for n, x in self._live.items() if x.requires_grad or n in self._buffers}
        return [name for name in self.uncut_names() if name in trained and name not in self.excluded]

    def changed_buffers(self) -> set[str]:
        """Buffers to which the forward pass has given another shape or dtype on a site of this process."""

        def has_changed(site: int, name: str) -> bool:
            value = self.value(site, name)
            return value.shape != self.shapes[name] or value.dtype != self._dtypes[name]

        own = (name for name in self._buffers if name not in self._cut)
        return {name for name in own if any(has_changed(site, name) for site in self.sites)}

    def shared_states(self) -> list[Slice]:
        """The optimizer's states of floating point or complex numbers for parameters that every site has whole."""
        return [
            Slice(name, key)
            for name in self.shared_names()
            for key, value in self.state(self.active, name).items()
            if isinstance(value, torch.Tensor) and _is_averaged(value.dtype) and key != "step"
        ]

    def of_site(self, site: int) -> tuple[dict[str, torch.Tensor], dict[str, dict[str, Any]]]:
        """All tensors and states of a site, by name."""
        self._check_dtypes()
        return {name: self.value(site, name) for name in self.shapes}, {
            name: self.state(site, name) for name in self.shapes
        }

    def _check_dtypes(self) -> None:
        for name, tensor in self._live.items():
            is_own = name in self._buffers and name not in self._cut  # a forward pass may give it another one
            if tensor.dtype != self._dtypes[name] and not is_own:
                raise PlanError(
                    "IST: a tensor has another dtype than when the training of subnets began, as after model.double(); "
                    "convert the model before joinsum.IST(...), or after gather(): "
                    f"tensor={name}, dtype={tensor.dtype}, former={self._dtypes[name]}"
                )

    def travelling(
        self, values: Mapping[str, torch.Tensor], states: Mapping[str, Mapping[str, Any]]
    ) -> list[tuple[Slice, torch.dtype]]:
        """What follows the neurons, of these tensors and states: the cut tensors, and states of their shapes. Raises
        PlanError for a state that is neither of its parameter's shape nor a single number."""
        found = [(Slice(name), values[name].dtype) for name in self._cut]
        for name in self._cut:
            shape = values[name].shape
            for key, value in states.get(name, {}).items():
                if not isinstance(value, torch.Tensor) or (value.numel() == 1 and value.shape != shape):
                    continue
                if value.shape != shape:
                    raise PlanError(
                        "IST: the optimizer's state is not elementwise, so it cannot follow the neurons: optimizer="
                        f"{type(self.optimizer).__name__}, state={key}, shape={list(value.shape)}, parameter={name}, "
                        f'parameter\'s shape={list(shape)}; pass state="reset"'
                    )
                if value.is_sparse:
                    raise PlanError(sparse_refusal(self.optimizer, name, key))
                found.append((Slice(name, key), value.dtype))
        return found

    def names_with_states(self) -> set[str]:
        """The parameters for which a site of this process has a state."""
        return {name for name in self._parameters if any(self.state(site, name) for site in self.sites)}

    def complete_states(self, names: Collection[str]) -> None:
        """Gives sites without a state for one of these parameters, as without a step or a gradient yet, the one that
        the optimizer starts with."""
        for name in (name for name in self._parameters if name in names):
            for site in self.sites:
                if self.state(site, name):
                    continue
                if site == self.active:
                    self.optimizer.state[self._parameters[name]] = self.new_state(site, name)
                else:
                    self._states[site][name] = self.new_state(site, name)

    def new_state(self, site: int, name: str) -> dict[str, Any]:
        """What the optimizer starts the state of a site's parameter with."""
        return first_state(self.optimizer, self._group(self._parameters[name]), self.value(site, name))

    def first_element(self, of: Slice) -> torch.Tensor:
        """What the optimizer starts each element of a state with. Raises PlanError where that is not one number."""
        live = self._tensor(of.tensor)
        value = first_state(self.optimizer, self._group(live), small(live)).get(str(of.state))
        if not isinstance(value, torch.Tensor) or value.dim() != live.dim() or (value != value.flatten()[0]).any():
            raise PlanError(
                "IST: the optimizer starts a state with no number that would be that of weights which have rested: "
                f"optimizer={type(self.optimizer).__name__}, state={of.state}, parameter={of.tensor}; pass "
                'state="reset"'
            )
        return value.flatten()[0]

    def _group(self, live: torch.Tensor) -> Mapping[str, Any]:
        """The optimizer's options for a parameter."""
        groups: Sequence[Mapping[str, Any]] = self.optimizer.param_groups
        return next(group for group in groups if any(each is live for each in group["params"]))

    def reset_states(self) -> None:
        """Forgets the optimizer's state on all sites."""
        for site in self.sites:
            for name in self._parameters:
                if site == self.active:
                    self.optimizer.state.pop(self._tensor(name), None)
                else:
                    self._states[site].pop(name, None)

    # --- turns --------------------------------------------------------------------------------------------------------

    def next_turn(self) -> None:
        """Puts the next site's tensors into the model."""
        self.activate(self.sites[(self.sites.index(self.active) + 1) % len(self.sites)])

    def activate(self, site: int) -> None:
        """Puts a site's tensors into the model; gradients of another site's are dropped."""
        if site == self.active:
            return
        self._store()
        self.active = site
        self._load(site)

    def _store(self) -> None:
        self._check_dtypes()
        own = self._values[self.active], self._states[self.active]
        for name, tensor in self._live.items():
            own[0][name] = tensor.detach()
            own[1][name] = self.optimizer.state.pop(tensor, {})
            tensor.grad = None

    def _load(self, site: int) -> None:
        for name, tensor in self._live.items():
            self._put(name, self._values[site].pop(name))
            state = self._states[site].pop(name, {})
            if state:
                self.optimizer.state[tensor] = state
        for module, member, chunks in self._modules:
            set_counts(module, member, chunks.neurons_of_sites[site])


def _is_averaged(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def _own(value: torch.Tensor) -> torch.Tensor:
    """A copy; of a tensor without memory its initial values."""
    return initial_value("IST", value) if value.is_meta else value.clone()


def _zeros(like: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    return torch.zeros(list(shape), dtype=like.dtype, device=context().device)


def _assign(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """Gives a tensor another one's memory, in any shape. Torch reads the shape of a parameter's gradient when its node
    in autograd is made, which lives as long as a graph of it does; assigning another dtype drops the node."""
    if tensor.is_meta:
        replace_tensor(tensor, value)
        return
    if isinstance(tensor, nn.Parameter) and tensor.shape != value.shape and tensor.is_floating_point():
        other = torch.float64 if tensor.dtype is not torch.float64 else torch.float32
        tensor.data = torch.empty(0, dtype=other, device=tensor.device)
    tensor.data = value
