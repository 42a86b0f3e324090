"""Images: convolutions, pools, patches, and pixels that move. Batch and channels may be divided, pixels may not."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from joinsum.capture.recording.application import Application
from joinsum.capture.recording.values import Value, axis_names
from joinsum.capture.recording.vertices import einsum, permuted, reshaped
from joinsum.capture.rules.form import Form, form_of
from joinsum.capture.rules.row import Entry, Results, rows

__all__ = ["ROWS"]

# --- convolutions -----------------------------------------------------------------------------------------------------

_COUNTS = {"groups": "g"}
_INPUT, _RESULT = "n (g c) *s", "n (g o) *t"
# By whether the convolution is transposed: its weight, and the flops of it and of each gradient.
_WEIGHT = {False: "(g o) c *k", True: "(g c) o *k"}
_FLOPS = {False: "2 n g o c *k *t", True: "2 n g o c *k *s"}
_FORMS = {
    transposed: Form(f"{_INPUT}, {weight} -> {_RESULT}", "*s *k *t", "c=add", {}, _COUNTS, _FLOPS[transposed])
    for transposed, weight in _WEIGHT.items()
}


def _gradient(of: str, transposed: bool, reduce: str) -> Form:
    """The form of joinsum::convolution_gradient of a tensor with these axes."""
    pattern = f"{_RESULT}, {_INPUT}, {_WEIGHT[transposed]} -> {of}"
    return Form(pattern, "*s *k *t", reduce, {"sizes": of}, _COUNTS, _FLOPS[transposed])


# Gradients of the input, and of the weight, by whether the convolution is transposed.
_TO_INPUT = {transposed: _gradient(_INPUT, transposed, "o=add") for transposed in _WEIGHT}
_TO_WEIGHT = {transposed: _gradient(weight, transposed, "n=add") for transposed, weight in _WEIGHT.items()}


def _convolution(application: Application) -> Results:
    """The bias is added once, also where the channels that are summed are divided."""
    form = _FORMS[bool(application.arguments["transposed"])]
    bias = application.optional("bias")
    (product,) = form(application.with_arguments({"bias": None}))
    assert product is not None
    if bias is None:
        return [product]
    names = axis_names(len(product.axes))
    return [einsum([(product, names), (bias, names[1:2])], names, "add")]


def _convolution_backward(application: Application) -> Results:
    """Each gradient by itself: the input's is summed over output channels, the weight's over the batch."""
    mask, grad = application.numbers("output_mask"), application.value("grad_output")
    transposed = bool(application.arguments["transposed"])
    gradients: list[Value | None] = [None, None, None]
    for place, (name, forms) in enumerate((("input", _TO_INPUT), ("weight", _TO_WEIGHT))):
        if mask[place]:
            shape, operator = application.value(name).shape, torch.ops.joinsum.convolution_gradient.default
            arguments = application.arguments | {"grad": grad, name: None, "sizes": list(shape)}
            (gradients[place],) = forms[transposed].apply(application, operator, arguments, (shape, grad.dtype))
    if mask[2]:
        names = axis_names(len(grad.axes))
        gradients[2] = einsum([(grad, names)], names[1:2], "id")
    return gradients


# --- pools ------------------------------------------------------------------------------------------------------------

# Axes of pixels before and after a pool, by the number of them.
_PIXELS = {2: ("h w", "y x"), 3: ("d h w", "z y x")}


def _pool(rank: int, text: str) -> Form:
    """A form in which `in` and `out` stand for the pixels of the input and of the result; none are divided."""
    before, after = _PIXELS[rank]
    pattern = text.replace("in", f"*b {before}").replace("out", f"*b {after}")
    return Form(pattern, f"{before} {after}", flops=f"1 *b {before}")


_LARGEST = _pool(2, "in -> out, out")


def _max_pool(application: Application) -> Results:
    return _LARGEST.apply(application, torch.ops.joinsum.max_pool2d.default, application.arguments, *application.types)


_POOLS: list[tuple[str, Form]] = [
    ("adaptive_max_pool2d", _LARGEST),
    ("max_pool3d_with_indices adaptive_max_pool3d", _pool(3, "in -> out, out")),
    ("max_pool2d_with_indices_backward adaptive_max_pool2d_backward", _pool(2, "out, in, out -> in")),
    ("max_pool3d_with_indices_backward adaptive_max_pool3d_backward", _pool(3, "out, in, out -> in")),
    ("avg_pool2d _adaptive_avg_pool2d", _pool(2, "in -> out")),
    ("avg_pool3d _adaptive_avg_pool3d", _pool(3, "in -> out")),
    ("avg_pool2d_backward _adaptive_avg_pool2d_backward", _pool(2, "out, in -> in")),
    ("avg_pool3d_backward _adaptive_avg_pool3d_backward", _pool(3, "out, in -> in")),
]

# --- patches ----------------------------------------------------------------------------------------------------------

_PATCHES = {
    4: Form("b c h w -> b (c k) l", "h w k l", flops="1 b c k l"),
    3: Form("c h w -> (c k) l", "h w k l", flops="1 c k l"),
}
_FROM_PATCHES = {
    3: Form("b (c k) l -> b c h w", "h w k l", flops="1 b c k l"),
    2: Form("(c k) l -> c h w", "h w k l", flops="1 c k l"),
}


def _patches(application: Application) -> Results:
    forms = _PATCHES if application.operator._opname == "im2col" else _FROM_PATCHES
    return forms[len(application.value("self").axes)](application)


def _unfold(application: Application) -> Results:
    """Windows of an undivided axis as a new last axis."""
    value = application.value("self")
    names = axis_names(len(value.axes))
    if not names:
        return [reshaped(value, (1,))]
    dim = application.dim("dimension", len(names))
    after = [*names[:dim], "window", *names[dim + 1 :], "size"]
    return form_of([names], [after], [names[dim], "window", "size"])(application)


def _unfold_backward(application: Application) -> Results:
    names = axis_names(len(application.shape))
    if not names:
        return [reshaped(application.value("grad_in"), ())]
    dim = application.dim("dim", len(names))
    before = [*names[:dim], "window", *names[dim + 1 :], "size"]
    return form_of([before], [names], [names[dim], "window", "size"], "input_sizes")(application)


# --- pixels that move -------------------------------------------------------------------------------------------------


def _moved(value: Value, split: Sequence[int], order: Sequence[int], shape: Sequence[int]) -> Results:
    """A reshape to `split`, a permutation, and a reshape to `shape`: labels only."""
    return [reshaped(permuted(reshaped(value, split), order), shape)]


def _pixel_shuffle(application: Application) -> Results:
    """[*b, c r r, h, w] -> [*b, c, h r, w r]"""
    value, r = application.value("self"), application.number("upscale_factor")
    *batch, channels, h, w = value.shape
    b = len(batch)
    order = [*range(b), b, b + 3, b + 1, b + 4, b + 2]
    return _moved(value, [*batch, channels // (r * r), r, r, h, w], order, application.shape)


def _pixel_unshuffle(application: Application) -> Results:
    """[*b, c, h r, w r] -> [*b, c r r, h, w]"""
    value, r = application.value("self"), application.number("downscale_factor")
    *batch, channels, h, w = value.shape
    b = len(batch)
    order = [*range(b), b, b + 2, b + 4, b + 1, b + 3]
    return _moved(value, [*batch, channels, h // r, r, w // r, r], order, application.shape)


def _channel_shuffle(application: Application) -> Results:
    """[n, g c, *s] -> [n, c g, *s]"""
    value, groups = application.value("self"), application.number("groups")
    n, channels, *pixels = value.shape
    order = [0, 2, 1, *range(3, 3 + len(pixels))]
    return _moved(value, [n, groups, channels // groups, *pixels], order, application.shape)


# --- sampling ---------------------------------------------------------------------------------------------------------

_SAMPLED: dict[str, Form] = {
    "grid_sampler_2d": Form("n c h w, n y x p -> n c y x", "h w y x p", flops="8 n c y x"),
    "grid_sampler_3d": Form("n c d h w, n z y x p -> n c z y x", "d h w z y x p", flops="16 n c z y x"),
    "grid_sampler_2d_backward": Form("n c y x, n c h w, n y x p -> n c h w, n y x p", "c h w y x p"),
    "grid_sampler_3d_backward": Form("n c z y x, n c d h w, n z y x p -> n c d h w, n z y x p", "c d h w z y x p"),
}

_POOLED_AT_RANDOM: dict[str, Form] = {
    "fractional_max_pool2d": Form("n c h w, n c r -> n c y x, n c y x", "h w y x r"),
    "fractional_max_pool2d_backward": Form("n c y x, n c h w, n c y x -> n c h w", "h w y x"),
    "fractional_max_pool3d": Form("n c d h w, n c r -> n c z y x, n c z y x", "d h w z y x r"),
    "fractional_max_pool3d_backward": Form("n c z y x, n c d h w, n c z y x -> n c d h w", "d h w z y x"),
}

_RESIZED_BY_AXES = {
    len(before.split()): (
        Form(f"n c {before} -> n c {after}", f"{before} {after}", flops=f"8 n c {after}"),
        Form(
            f"n c {after} -> n c {before}",
            f"{before} {after}",
            sizes={"sizes": f"n c {before}"},
            flops=f"8 n c {after}",
        ),
    )
    for before, after in (("w", "x"), ("h w", "y x"), ("d h w", "z y x"))
}


def _resize_by_kernels(application: Application) -> Results:
    forward, backward = _RESIZED_BY_AXES[len(application.shape) - 2]
    return (forward if "sizes" not in application.arguments else backward)(application)


_RESIZED = "_upsample_bilinear2d_aa _upsample_bicubic2d_aa"
_RESIZE = Form("n c h w -> n c y x", "h w y x", flops="16 n c y x")
_RESIZE_BACKWARD = Form("n c y x -> n c h w", "h w y x", sizes={"input_size": "n c h w"}, flops="16 n c y x")

ROWS = [
    *rows(
        "convolutions",
        Entry("convolution", _convolution, f"`{_FORMS[False].pattern}`, reduced over c by add; then the bias"),
        Entry("convolution_backward", _convolution_backward, "a call for each gradient, reduced over what is summed"),
    ),
    *rows("pooling", Entry("max_pool2d_with_indices", _max_pool, _LARGEST.described)),
    *rows("pooling", *(Entry(names, form) for names, form in [*_POOLS, *_POOLED_AT_RANDOM.items()])),
    *rows(
        "images",
        Entry("im2col", _patches, _PATCHES[4].described),
        Entry("col2im", _patches, _FROM_PATCHES[3].described),
        Entry("unfold", _unfold, "windows of an axis, which is undivided"),
        Entry("unfold_backward", _unfold_backward, "the axis of windows is undivided"),
        Entry("pixel_shuffle", _pixel_shuffle, "labels only"),
        Entry("pixel_unshuffle", _pixel_unshuffle, "labels only"),
        Entry("channel_shuffle", _channel_shuffle, "labels only"),
        *(Entry(name, form) for name, form in _SAMPLED.items()),
        Entry("joinsum::resize joinsum::resize_backward", _resize_by_kernels, "batch and channels may be divided"),
        Entry(_RESIZED, _RESIZE),
        Entry(" ".join(f"{name}_backward" for name in _RESIZED.split()), _RESIZE_BACKWARD),
    ),
]
