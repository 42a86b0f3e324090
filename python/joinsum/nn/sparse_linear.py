"""A linear layer whose weight is sparse: most connections are missing, and the others are trained."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from joinsum.base.arguments import integer, is_number, show
from joinsum.base.errors import PlanError
from joinsum.capture.decompositions.sparse_products import sparse_mm
from joinsum.sparse import SparseTensor

__all__ = ["SparseLinear"]


class SparseLinear(nn.Module):
    """y = x Wᵀ + b, as `torch.nn.Linear`, of a weight [out_features, in_features] that stores some elements; the others
    are zero and stay so. Work and memory are those of the stored elements.

    density   the part of the weight's elements that is stored, 0 < density <= 1, at places that torch's generator draws
    pattern   the places instead: of what a sparse tensor stores, or where a dense one is not zero
    bias, device, dtype   as those of `torch.nn.Linear`

    Its parameters are `values` [n], ordered by rows, and `bias`; the buffers `rows` and `columns` [n] are their places.
    Values are drawn as Linear draws weights, each row by the number of its elements. In models for `joinsum.distribute`
    and `joinsum.train_step` a plan may divide stored elements, samples, and both axes of the weight.

    Raises PlanError where neither or both of density and pattern are given, and where the pattern has another shape.

    >>> import joinsum, torch
    >>> layer = joinsum.nn.SparseLinear(1000, 200, density=0.01)
    >>> layer
    SparseLinear(in_features=1000, out_features=200, entries=2000, bias=True)
    >>> layer(torch.ones(4, 1000)).shape
    torch.Size([4, 200])
    >>> layer.weight
    <SparseTensor f32[200,1000] dense(0) sorted_list(1), 2000 entries, fill 0, 25608 bytes>
    """

    rows: Tensor
    columns: Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        density: float | None = None,
        pattern: SparseTensor | Tensor | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_features = integer("SparseLinear", "in_features", in_features)
        self.out_features = integer("SparseLinear", "out_features", out_features)
        if self.in_features < 1 or self.out_features < 1:
            raise PlanError(f"SparseLinear: no features: in={show(in_features)}, out={show(out_features)}")
        if (density is None) == (pattern is None):
            raise PlanError("SparseLinear: give either density or pattern")
        shape = (self.out_features, self.in_features)
        places = _drawn(density, *shape) if density is not None else _places_of(pattern, shape)
        self.register_buffer("rows", places[0].to(device))
        self.register_buffer("columns", places[1].to(device))
        self.values = nn.Parameter(torch.empty(len(places[0]), device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(self.out_features, device=device, dtype=dtype)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws values and bias anew, uniformly within one over the root of the number of inputs of an output."""
        if self.values.is_meta:
            return
        inputs = torch.bincount(self.rows, minlength=self.out_features).clamp(min=1).to(self.values.dtype)
        with torch.no_grad():
            self.values.uniform_(-1, 1).mul_(inputs.rsqrt()[self.rows])
            if self.bias is not None:
                self.bias.uniform_(-1, 1).mul_(inputs.rsqrt())

    @classmethod
    def from_linear(cls, linear: nn.Linear, density: float | None = None) -> SparseLinear:
        """The layer of a dense one's weights, without those that are zero; with `density`, of its largest ones.

        >>> import joinsum, torch
        >>> dense = torch.nn.Linear(3, 2)
        >>> sparse = joinsum.nn.SparseLinear.from_linear(dense)
        >>> torch.allclose(sparse(torch.eye(3)), dense(torch.eye(3)))
        True
        """
        weight = _whole(linear.weight.detach())
        pattern = weight != 0
        if density is not None:
            largest = weight.abs().flatten().topk(_count(density, weight.numel())).indices
            pattern = torch.zeros(weight.numel(), dtype=torch.bool, device=weight.device)
            pattern[largest] = True
            pattern = pattern.view(weight.shape)
        layer = cls(
            linear.in_features,
            linear.out_features,
            linear.bias is not None,
            pattern=pattern,
            device=weight.device,
            dtype=weight.dtype,
        )
        with torch.no_grad():
            layer.values.copy_(weight[layer.rows, layer.columns])
            if layer.bias is not None:
                layer.bias.copy_(_whole(linear.bias.detach()))
        return layer

    @property
    def weight(self) -> SparseTensor:
        """The weight as it is now, a copy in compressed rows; where it is distributed, all ranks call."""
        places = [_whole(self.rows).cpu(), _whole(self.columns).cpu()]
        values = _whole(self.values.detach()).cpu()
        shape = (self.out_features, self.in_features)
        return SparseTensor.from_coordinates(places, values, shape=shape, levels="csr")

    def forward(self, input: Tensor) -> Tensor:
        """`input` [*, in_features] gives [*, out_features]; raises PlanError for sparse inputs."""
        if not isinstance(input, Tensor) or input.layout is not torch.strided:
            raise PlanError(
                f"SparseLinear: no products of a sparse input and a sparse weight: shape={list(input.shape)}; give "
                "input.to_dense(), or take torch.nn.Linear, which multiplies sparse inputs"
            )
        if input.dim() == 0 or input.shape[-1] != self.in_features:
            raise PlanError(
                f"SparseLinear: an input's last axis has in_features elements: "
                f"shape={list(input.shape)}, in_features={self.in_features}"
            )
        flat: Tensor = input.reshape(-1, self.in_features)
        values: Tensor = self.values
        if torch.is_autocast_enabled(input.device.type):
            dtype = torch.get_autocast_dtype(input.device.type)
            flat, values = flat.to(dtype), values.to(dtype)
        product = sparse_mm(self.rows, self.columns, values, flat.T, self.out_features).T
        result = product.reshape(*input.shape[:-1], self.out_features)
        return result if self.bias is None else result + self.bias.to(result.dtype)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, entries={len(self.values)}, "
            f"bias={self.bias is not None}"
        )


def _whole(tensor: Tensor) -> Tensor:
    """All elements of a tensor that may be distributed."""
    whole: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return whole


def _count(density: object, elements: int) -> int:
    if not is_number(density) or not 0 < density <= 1:
        raise PlanError(f"SparseLinear: a density is above 0 and at most 1: density={show(density)}")
    return max(1, round(float(density) * elements))


def _drawn(density: object, rows: int, columns: int) -> tuple[Tensor, Tensor]:
    """Different places, row-major."""
    count = _count(density, rows * columns)
    if 2 * count > rows * columns:
        places = torch.randperm(rows * columns)[:count]
    else:
        places = torch.empty(0, dtype=torch.int64)
        while len(places) < count:
            places = torch.unique(torch.cat([places, torch.randint(rows * columns, (count,))]))
        places = places[torch.randperm(len(places))[:count]]
    places = places.sort().values
    return places // columns, places % columns


def _places_of(pattern: object, shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Where a sparse tensor stores elements, or a dense one is not zero, row-major."""
    if isinstance(pattern, Tensor) and pattern.layout is torch.strided:
        found = tuple(pattern.shape)
        places = pattern.detach().nonzero().T if pattern.dim() == 2 else None
    elif isinstance(pattern, (SparseTensor, Tensor)):
        sparse = pattern if isinstance(pattern, SparseTensor) else SparseTensor.from_torch(pattern.detach())
        found = tuple(sparse.shape)
        places = torch.stack(list(sparse.with_levels("csr").coordinates())) if len(found) == 2 else None
    else:
        raise PlanError(f"SparseLinear: a pattern is a tensor, sparse or dense: got={type(pattern).__name__}")
    if places is None or found != shape:
        raise PlanError(f"SparseLinear: pattern has another shape than the weight: pattern={found}, weight={shape}")
    return places[0].clone(), places[1].clone()
