"""Models that are built without memory for their large tensors, whose values are computed one tensor at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from joinsum import _C
from joinsum.base.errors import PlanError
from joinsum.capture.recording.application import is_random
from joinsum.cluster.context import context
from joinsum.distributed.distributed_tensor import DistributedTensor, replace_tensor
from joinsum.distributed.first_values import first_rank_value

__all__ = ["detached", "init_empty", "initial_value", "place_parameter"]

# Smaller tensors, as biases and tables of positions, have memory.
_LARGE = 1 << 14

_RECORDS = "_joinsum_records"


@contextmanager
def init_empty() -> Iterator[None]:
    """Builds models whose large parameters have no memory: they are on the device "meta", and how they are initialised
    is recorded. `joinsum.distribute` and `joinsum.train_step` compute one parameter at a time, and each rank stores its
    own blocks; so no rank holds the model. The values are those of the plain model after the same
    `torch.manual_seed`. Buffers have memory at once.

    >>> import joinsum, torch
    >>> _ = joinsum.init(sites=2)
    >>> with joinsum.init_empty():
    ...     model = torch.nn.Linear(512, 512)
    >>> model.weight.is_meta
    True
    >>> model = joinsum.distribute(model, torch.ones(4, 512))
    >>> model.weight.is_meta
    False

    Source: deferred initialisation as in torchdistx, https://pytorch.org/torchdistx.
    """
    records = _Records()
    register_parameter, register_buffer = torch.nn.Module.register_parameter, torch.nn.Module.register_buffer

    def parameter(module: torch.nn.Module, name: str, x: torch.nn.Parameter | None) -> None:
        register_parameter(module, name, None if x is None else noted(x))

    def noted(x: torch.nn.Parameter) -> torch.nn.Parameter:
        if records.has(x):
            setattr(x, _RECORDS, records)
        return x

    def buffer(module: torch.nn.Module, name: str, x: torch.Tensor | None, *args: Any, **keywords: Any) -> None:
        register_buffer(module, name, records.value(x) if x is not None and records.has(x) else x, *args, **keywords)

    copied: Callable[..., torch.nn.Parameter] = torch.nn.Parameter.__deepcopy__
    with (
        mock.patch.object(torch.nn.Module, "register_parameter", parameter),
        mock.patch.object(torch.nn.Parameter, "__deepcopy__", lambda x, memo: noted(copied(x, memo))),
        mock.patch.object(torch.nn.Module, "register_buffer", buffer),
        _Recording(records),
        _OnProcessor(records),
    ):
        yield


def initial_value(who: str, tensor: torch.Tensor) -> torch.Tensor:
    """The values of a tensor that was built in `init_empty` and has no memory: the first rank's, on every rank.

    Raises PlanError for one that is on the device "meta" without a record of its initialisation. All ranks call.
    """
    records = getattr(tensor, _RECORDS, None)
    if records is None:
        raise PlanError(
            f'{who}: a tensor on the device "meta" has no values: shape={list(tensor.shape)}; build the model in '
            "joinsum.init_empty(), which records how it is initialised"
        )
    return first_rank_value(who, records.value(tensor).to(context().device))


def detached(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor outside of autograd, as another object; one without memory still knows its initialisation."""
    alias = tensor.detach()
    if tensor.is_meta and hasattr(tensor, _RECORDS):
        setattr(alias, _RECORDS, getattr(tensor, _RECORDS))
    return alias


def place_parameter(tensor: torch.Tensor, type_: _C.PhysicalType | None) -> None:
    """Stores a parameter or buffer on the sites; by default whole on each. One on the device "meta" gets the values of
    its initialisation if it was built in `init_empty`, and otherwise none until it is written, as by a checkpoint."""
    records = getattr(tensor, _RECORDS, None)
    value, known = tensor, True
    if tensor.is_meta and records is not None:
        value = initial_value("init_empty", tensor)
    elif tensor.is_meta:
        value, known = torch.zeros((), dtype=tensor.dtype, device=context().device).expand(tensor.shape), False
    stored = DistributedTensor.of(value) if type_ is None else DistributedTensor.stored_as(value, type_)
    replace_tensor(tensor, stored)
    if not known:
        tensor.lacking_values = [None]  # type: ignore[attr-defined]


@dataclass(frozen=True)
class _Empty:
    """A tensor without memory as it was when an operator took it or made it: later it may get another storage."""

    storage: torch.UntypedStorage
    offset: int
    shape: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype

    @staticmethod
    def of(x: torch.Tensor) -> _Empty:
        return _Empty(x.untyped_storage(), int(x.storage_offset()), x.shape, x.stride(), x.dtype)

    @property
    def key(self) -> int:
        return int(self.storage._cdata)

    def within(self, storage: torch.UntypedStorage) -> torch.Tensor:
        """The tensor in a storage with memory."""
        return torch.empty(0, dtype=self.dtype).set_(storage, self.offset, self.shape, self.stride)


@dataclass(frozen=True)
class _Operator:
    """An operator that made or wrote tensors without memory, which are `_Empty` here.

    made      the tensors that it returned
    written   the storages of what it made or wrote
    random    the state of torch's generator before a random operator
    """

    func: Any
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    made: Sequence[_Empty]
    written: frozenset[int]
    random: torch.Tensor | None

    @property
    def read(self) -> set[int]:
        """The storages of its operands."""
        return {x.key for x in pytree.tree_leaves((self.args, self.kwargs)) if isinstance(x, _Empty)}


class _Records:
    """What made and wrote tensors without memory, in order."""

    def __init__(self) -> None:
        self.operators: list[_Operator] = []
        self._storages: set[int] = set()

    def has(self, x: torch.Tensor) -> bool:
        """Whether a tensor's values are recorded here."""
        return _storage(x) in self._storages

    def add(self, operator: _Operator) -> None:
        """Adds an operator."""
        self.operators.append(operator)
        self._storages |= operator.written

    def value(self, x: torch.Tensor) -> torch.Tensor:
        """A tensor's values, computed anew; torch's generator is as before afterwards."""
        needed, chosen = {_storage(x)}, []
        for operator in reversed(self.operators):
            if not needed.isdisjoint(operator.written):
                chosen.append(operator)
                needed |= operator.read
        storages: dict[int, torch.UntypedStorage] = {}

        def real(each: Any) -> Any:
            return each.within(storages[each.key]) if isinstance(each, _Empty) else each

        before = torch.get_rng_state()
        try:
            with torch.no_grad(), _disable_current_modes():
                for operator in reversed(chosen):
                    if operator.random is not None:
                        torch.set_rng_state(operator.random)
                    made = operator.func(
                        *pytree.tree_map(real, operator.args), **pytree.tree_map(real, operator.kwargs)
                    )
                    for without, with_memory in zip(operator.made, _tensors(made), strict=True):
                        storages.setdefault(without.key, with_memory.untyped_storage())
        finally:
            torch.set_rng_state(before)
        with _disable_current_modes():
            return _Empty.of(x).within(storages[_storage(x)])


class _Recording(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Gives large new tensors no memory, and records what is done to them."""

    def __init__(self, records: _Records) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._records = records

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        operands = _tensors((args, kwargs))
        empty = [x for x in operands if self._records.has(x)]
        if not empty:
            return self._created(func, args, kwargs) if not operands else func(*args, **kwargs)
        written = [
            given
            for argument, given in zip(func._schema.arguments, args, strict=False)
            if argument.is_write and isinstance(given, torch.Tensor)
        ]
        if func is torch.ops.aten._local_scalar_dense.default or any(not self._records.has(x) for x in written):
            args, kwargs = pytree.tree_map(self._with_memory, (tuple(args), kwargs))
            return func(*args, **kwargs)
        random = self._drawn(func, args, kwargs)
        meta_args, meta_kwargs = pytree.tree_map(_without_memory, (tuple(args), kwargs))
        result = func(*meta_args, **meta_kwargs)
        self._note(func, args, kwargs, result, written, random)
        return result

    def _created(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """A new tensor: without memory if it is large."""
        names = {argument.name for argument in func._schema.arguments}
        if "device" not in names or torch.device(kwargs.get("device") or "cpu").type != "cpu":
            return func(*args, **kwargs)
        state = torch.get_rng_state() if is_random(func) else None
        result = func(*args, **{**kwargs, "device": torch.device("meta")})
        if not isinstance(result, torch.Tensor) or result.numel() < _LARGE:
            return func(*args, **kwargs)
        if state is not None:
            func(*args, **kwargs)  # the generator goes on as in the plain model
        self._note(func, args, kwargs, result, [], state)
        return result

    def _drawn(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Tensor | None:
        """The generator's state before a random operator, which is run for tensors of the same shapes."""
        if not is_random(func):
            return None
        state = torch.get_rng_state()

        def temporary(x: Any) -> Any:
            has = isinstance(x, torch.Tensor) and self._records.has(x)
            return torch.zeros(x.shape, dtype=x.dtype) if has else x

        with torch.no_grad():
            func(*pytree.tree_map(temporary, tuple(args)), **pytree.tree_map(temporary, dict(kwargs)))
        return state

    def _with_memory(self, x: Any) -> Any:
        return self._records.value(x) if isinstance(x, torch.Tensor) and self._records.has(x) else x

    def _note(
        self,
        func: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        result: Any,
        written: Sequence[torch.Tensor],
        random: torch.Tensor | None,
    ) -> None:
        if not func._schema.is_mutable and _is_view(func):
            return  # known by its storage

        def empty(x: Any) -> Any:
            if not isinstance(x, torch.Tensor):
                return x
            return _Empty.of(x) if self._records.has(x) else x.clone()  # which may be written later

        given = pytree.tree_map(empty, (tuple(args), dict(kwargs)))
        made = [_Empty.of(x) for x in _tensors(result)]
        storages = frozenset([*(x.key for x in made), *map(_storage, written)])
        self._records.add(_Operator(func, given[0], given[1], made, storages, random))


class _OnProcessor(TorchFunctionMode):
    """Says that tensors without memory are on the processor, as initialising functions skip those on "meta"."""

    def __init__(self, records: _Records) -> None:
        super().__init__()
        self._records = records

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in _PLACES and self._records.has(args[0]):
            return _PLACES[func]
        return func(*args, **(kwargs or {}))


_PLACES = {torch.Tensor.is_meta.__get__: False, torch.Tensor.device.__get__: torch.device("cpu")}  # type: ignore[attr-defined]


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [x for x in pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


def _storage(x: torch.Tensor) -> int:
    return int(x.untyped_storage()._cdata)


def _without_memory(x: Any) -> Any:
    if isinstance(x, torch.device):
        return torch.device("meta")
    return x.to("meta") if isinstance(x, torch.Tensor) and not x.is_meta else x


def _is_view(func: Any) -> bool:
    return any(each.alias_info is not None for each in func._schema.returns)
