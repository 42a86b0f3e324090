"""Images: pools, patches, and pixels that move between channels and places. Batch and channels may be divided."""

from __future__ import annotations

from collections.abc import Sequence

from joinsum.capture.application import Application
from joinsum.capture.operators.form import Form
from joinsum.capture.operators.row import Made, Row, rows
from joinsum.capture.operators.views import permuted
from joinsum.capture.recorder import Recorder, Value

__all__ = ["ROWS"]

# Axes of places before and after a pool, by the number of them.
_PLACES = {2: ("h w", "y x"), 3: ("d h w", "z y x")}


def _pool(places: int, text: str) -> Form:
    """A form in which `in` stands for the places of the input and `out` for those of the result; all are whole."""
    before, after = _PLACES[places]
    said = text.replace("in", f"*b {before}").replace("out", f"*b {after}")
    return Form(said, f"{before} {after}", flops=f"1 *b {before}")


# --- patches ----------------------------------------------------------------------------------------------------------

_PATCHES = {
    4: Form("b c h w -> b (c k) l", "h w k l", flops="1 b c k l"),
    3: Form("c h w -> (c k) l", "h w k l", flops="1 c k l"),
}
_FROM_PATCHES = {
    3: Form("b (c k) l -> b c h w", "h w k l", flops="1 b c k l"),
    2: Form("(c k) l -> c h w", "h w k l", flops="1 c k l"),
}


def _patches(recorder: Recorder, application: Application) -> Made:
    forms = _PATCHES if application.operator._opname == "im2col" else _FROM_PATCHES
    return forms[len(application.value("self").axes)](recorder, application)


def _unfold(recorder: Recorder, application: Application) -> Made:
    """Windows of an axis, which is whole, as a new last axis."""
    value = application.value("self")
    names = [f"a{axis}" for axis in range(len(value.axes))]
    if not names:
        return [recorder.reshaped(value, (1,))]
    dim = application.dim("dimension", len(names))
    after = [*names[:dim], "window", *names[dim + 1 :], "size"]
    return Form(f"{' '.join(names)} -> {' '.join(after)}", f"{names[dim]} window size")(recorder, application)


def _unfold_backward(recorder: Recorder, application: Application) -> Made:
    names = [f"a{axis}" for axis in range(len(application.shape))]
    if not names:
        return [recorder.reshaped(application.value("grad_in"), ())]
    dim = application.dim("dim", len(names))
    before = [*names[:dim], "window", *names[dim + 1 :], "size"]
    sizes = {"input_sizes": " ".join(names)}
    form = Form(f"{' '.join(before)} -> {' '.join(names)}", f"{names[dim]} window size", sizes=sizes)
    return form(recorder, application)


# --- pixels that move -------------------------------------------------------------------------------------------------


def _moved(recorder: Recorder, value: Value, split: Sequence[int], order: Sequence[int], shape: Sequence[int]) -> Made:
    """A reshape to `split`, a permutation, and a reshape to `shape`: labels only."""
    return [recorder.reshaped(permuted(recorder.reshaped(value, split), order), shape)]


def _pixel_shuffle(recorder: Recorder, application: Application) -> Made:
    """[*b, c r r, h, w] -> [*b, c, h r, w r]"""
    value, r = application.value("self"), application.number("upscale_factor")
    *batch, channels, h, w = value.shape
    b = len(batch)
    order = [*range(b), b, b + 3, b + 1, b + 4, b + 2]
    return _moved(recorder, value, [*batch, channels // (r * r), r, r, h, w], order, application.shape)


def _pixel_unshuffle(recorder: Recorder, application: Application) -> Made:
    """[*b, c, h r, w r] -> [*b, c r r, h, w]"""
    value, r = application.value("self"), application.number("downscale_factor")
    *batch, channels, h, w = value.shape
    b = len(batch)
    order = [*range(b), b, b + 2, b + 4, b + 1, b + 3]
    return _moved(recorder, value, [*batch, channels, h // r, r, w // r, r], order, application.shape)


def _channel_shuffle(recorder: Recorder, application: Application) -> Made:
    """[n, g c, *s] -> [n, c g, *s]"""
    value, groups = application.value("self"), application.number("groups")
    n, channels, *places = value.shape
    order = [0, 2, 1, *range(3, 3 + len(places))]
    return _moved(recorder, value, [n, groups, channels // groups, *places], order, application.shape)


# --- sampling ---------------------------------------------------------------------------------------------------------

_SAMPLED: dict[str, Form] = {
    "grid_sampler_2d": Form("n c h w, n y x p -> n c y x", "h w y x p", flops="8 n c y x"),
    "grid_sampler_3d": Form("n c d h w, n z y x p -> n c z y x", "d h w z y x p", flops="16 n c z y x"),
    "grid_sampler_2d_backward": Form("n c y x, n c h w, n y x p -> n c h w, n y x p", "c h w y x p"),
    "grid_sampler_3d_backward": Form("n c z y x, n c d h w, n z y x p -> n c d h w, n z y x p", "c d h w z y x p"),
}

# --- rows ------------------------------------------------------------------------------------------------------------

_POOLS: list[tuple[str, Form]] = [
    ("max_pool2d_with_indices adaptive_max_pool2d", _pool(2, "in -> out, out")),
    ("max_pool3d_with_indices adaptive_max_pool3d", _pool(3, "in -> out, out")),
    ("max_pool2d_with_indices_backward adaptive_max_pool2d_backward", _pool(2, "out, in, out -> in")),
    ("max_pool3d_with_indices_backward adaptive_max_pool3d_backward", _pool(3, "out, in, out -> in")),
    ("avg_pool2d _adaptive_avg_pool2d", _pool(2, "in -> out")),
    ("avg_pool3d _adaptive_avg_pool3d", _pool(3, "in -> out")),
    ("avg_pool2d_backward _adaptive_avg_pool2d_backward", _pool(2, "out, in -> in")),
    ("avg_pool3d_backward _adaptive_avg_pool3d_backward", _pool(3, "out, in -> in")),
]

ROWS: list[Row] = [
    *(row for names, form in _POOLS for row in rows("pooling", names, form, form.described)),
    *rows("images", "im2col", _patches, _PATCHES[4].described),
    *rows("images", "col2im", _patches, _FROM_PATCHES[3].described),
    *rows("images", "unfold", _unfold, "windows of an axis, which is whole"),
    *rows("images", "unfold_backward", _unfold_backward, "the axis of windows is whole"),
    *rows("images", "pixel_shuffle", _pixel_shuffle, "labels only"),
    *rows("images", "pixel_unshuffle", _pixel_unshuffle, "labels only"),
    *rows("images", "channel_shuffle", _channel_shuffle, "labels only"),
    *(row for name, form in _SAMPLED.items() for row in rows("images", name, form, form.described)),
]
