"""Rules for complex numbers and Fourier transforms."""

from __future__ import annotations

from joinsum.capture.operators.elementwise import EACH_ELEMENT
from joinsum.capture.recording.application import Application
from joinsum.capture.recording.vertices import mapped
from joinsum.capture.rules.along import Along
from joinsum.capture.rules.form import Form
from joinsum.capture.rules.pointwise import Pointwise
from joinsum.capture.rules.row import Entry, Results, rows

__all__ = ["ROWS"]


def _conjugated(application: Application) -> Results:
    return [mapped(application.value("self"), "conjugate")]


ROWS = [
    *rows(
        "complex numbers",
        Entry("_conj _conj_physical", _conjugated, "an einsum with the map conjugate"),
        Entry("complex polar angle", Pointwise(8), EACH_ELEMENT),
        Entry("view_as_real", Form("*s -> *s r", "r")),
        Entry("view_as_complex", Form("*s r -> *s", "r")),
    ),
    *rows(
        "Fourier transforms",
        Entry("_fft_r2c _fft_c2r _fft_c2c", Along(flops=40), "along `dim`, which is undivided"),
    ),
]
