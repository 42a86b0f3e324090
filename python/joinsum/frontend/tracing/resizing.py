"""Images that are resized in Dynamo graphs: one operator each, where torch would trace a gather or several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate

__all__ = ["resize_by_kernels"]

# The modes of `joinsum::resize`, by the number of axes of pixels.
_MODES = {
    1: ("nearest", "nearest-exact", "linear"),
    2: ("nearest", "nearest-exact", "bilinear", "bicubic"),
    3: ("nearest", "nearest-exact", "trilinear"),
}


def resize_by_kernels(gm: torch.fx.GraphModule) -> None:
    """Makes a Dynamo graph resize by `joinsum::resize`, which runs torch's kernels."""
    for module in gm.modules():  # also those that are checkpointed
        if not isinstance(module, torch.fx.GraphModule):
            continue
        found = module.graph.find_nodes(op="call_function", target=interpolate)
        for node in found:
            node.target = _resized
        if found:
            module.recompile()


def _resized(*args: Any, **kwargs: Any) -> Tensor:
    """`torch.nn.functional.interpolate` by `joinsum::resize`, but for what only torch computes, or refuses."""
    given = _arguments(*args, **kwargs)
    return interpolate(*args, **kwargs) if given is None else torch.ops.joinsum.resize(*given)


def _arguments(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> tuple[Tensor, Sequence[int], str, bool, Sequence[float] | None] | None:
    """The arguments of `joinsum::resize`; None where it does not compute this."""
    axes = input.dim() - 2
    aligns = align_corners is not None and mode.startswith("nearest")  # which torch refuses
    if mode not in _MODES.get(axes, ()) or aligns or antialias or (size is None) == (scale_factor is None):
        return None
    # Autocast chooses another dtype.
    computed = input.is_floating_point() or input.dtype is torch.uint8
    if not computed or torch.is_autocast_enabled(input.device.type):
        return None
    given = scale_factor if size is None else size
    each = list(given) if isinstance(given, (tuple, list)) else [given] * axes
    kinds = (int, float) if size is None else (int, torch.SymInt)
    if (
        len(each) != axes
        or not all(isinstance(x, kinds) for x in each)
        or (size is not None and recompute_scale_factor)
    ):
        return None
    if size is not None:
        return input, each, mode, bool(align_corners), None
    extents = [n * int(s) if s == int(s) else _rounded_down(n * s) for n, s in zip(input.shape[2:], each, strict=True)]
    return input, extents, mode, bool(align_corners), None if recompute_scale_factor else [float(s) for s in each]


def _rounded_down(extent: Any) -> int:
    result: int = torch.sym_int(extent)  # type: ignore[no-untyped-call]
    return result
