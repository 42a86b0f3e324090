"""Rules for linear algebra: factors and solutions of batches of matrices. A matrix is whole on a site; the batch is
divided, and the right-hand sides of systems."""

from __future__ import annotations

import torch

from joinsum.capture.recording.application import Application
from joinsum.capture.recording.vertices import permuted, reshaped
from joinsum.capture.rules.form import Form
from joinsum.capture.rules.row import Entry, Results, Rule, Traits, rows
from joinsum.capture.rules.undivided import undivided

__all__ = ["ROWS"]

_aten = torch.ops.aten


def _matrices(pattern: str, flops: str) -> Form:
    """A form in which only the batch, `*b`, is divided."""
    names = dict.fromkeys(pattern.replace(",", " ").replace("->", " ").split())
    return Form(pattern, " ".join(name for name in names if name != "*b"), flops=flops)


_FACTOR = _matrices("*b m n -> *b m n, *b k, *b", "1 *b m n m")
_EIGENVALUES = _matrices("*b m n -> *b k", "9 *b m n m")
_EIGENVECTORS = _matrices("*b m n -> *b k, *b m n", "9 *b m n m")
_SINGULAR = _matrices("*b m n -> *b u0 u1, *b k, *b v0 v1", "20 *b m n m")
_UNPACKED = _matrices("*b m n, *b k -> *b p0 p1, *b l0 l1, *b u0 u1", "1 *b m n")
_DETERMINANT = _matrices("*b m n -> *b, *b m n, *b k", "1 *b m n m")
_LOG_DETERMINANT = _matrices("*b m n -> *b, *b, *b m n, *b k", "1 *b m n m")

# --- one matrix -------------------------------------------------------------------------------------------------------


def _eigenvalues(application: Application) -> Results:
    """Also without the vectors, which then have no elements."""
    if application.arguments["compute_v"]:
        return _EIGENVECTORS(application)
    given = {"self": application.value("A"), "UPLO": application.arguments["UPLO"]}
    return [*_EIGENVALUES.apply(application, _aten.linalg_eigvalsh.default, given, application.type), None]


def _singular_values(application: Application) -> Results:
    """Also without the vectors, which then have no elements."""
    if application.arguments["compute_uv"]:
        return _SINGULAR(application)
    given = {name: application.arguments[name] for name in ("A", "driver")}
    values = application.results[1]
    assert values is not None
    return [None, *_EIGENVALUES.apply(application, _aten.linalg_svdvals.default, given, values), None]


def _unpacked(application: Application) -> Results:
    """All three matrices, of which the call may leave out some."""
    *batch, m, n = application.value("LU_data").shape
    k = application.value("LU_pivots").shape[-1]
    dtype = application.value("LU_data").dtype
    types = [((*batch, *sizes), dtype) for sizes in ((m, m), (m, k), (k, n))]
    given = {name: application.value(name) for name in ("LU_data", "LU_pivots")}
    found = _UNPACKED.apply(application, _aten.lu_unpack.default, given, *types)
    return [
        value if kind == wanted else None for value, kind, wanted in zip(found, application.results, types, strict=True)
    ]


# --- determinants -----------------------------------------------------------------------------------------------------
#
# Of a contiguous matrix of real numbers torch factors the transposed one, whose columns it reads without a copy, and
# gradients are traced for the factors of the one or the other. Operators on sites get contiguous matrices.


def _determinant(form: Form) -> Rule:
    def rule(application: Application) -> Results:
        traced = application.node.args[0]
        assert isinstance(traced, torch.fx.Node)
        matrix = traced.meta["val"]
        if matrix.is_contiguous() or matrix.is_complex():
            return form(application)
        value = application.value("A")
        rank = len(value.shape)
        return form(application.with_arguments({"A": permuted(value, [*range(rank - 2), rank - 1, rank - 2])}))

    return rule


# --- systems ----------------------------------------------------------------------------------------------------------


def _system(matrix: str, right: str, pattern: str, flops: str) -> tuple[Rule, str]:
    """A rule for systems with a matrix for each batch of right-hand sides, `k l`, whose columns (rows if they stand on
    the left) are divided; and the rule in words."""
    forms = {left: Form(pattern, f"m n {'k' if left else 'l'}", flops=flops) for left in (True, False)}

    def rule(application: Application) -> Results:
        if application.value(matrix).shape[:-2] != application.value(right).shape[:-2]:
            return undivided(application)
        return forms[bool(application.arguments.get("left", True))](application)

    return rule, f"`{pattern}`, undivided: the matrix and the axis of the right-hand sides that it multiplies"


_FACTORED = _system("LU", "B", "*b m n, *b m, *b k l -> *b k l", "2 *b m k l")


def _solved(application: Application) -> Results:
    """Factors, then the solution by them."""
    matrix, right = application.value("A"), application.value("B")
    (shape, dtype), *types = application.types
    factors, pivots, info = _FACTOR.apply(application, _aten.linalg_lu_factor_ex.default, {"A": matrix}, *types)
    columns = shape
    if len(right.shape) == 1 or right.shape == matrix.shape[:-1]:
        right, columns = reshaped(right, (*right.shape, 1)), (*shape, 1)
    given = {"LU": factors, "pivots": pivots, "B": right, "left": application.arguments["left"]}
    solve, _ = _FACTORED
    solution = solve(application.of(_aten.linalg_lu_solve.default, given, (columns, dtype)))[0]
    assert solution is not None
    return [reshaped(solution, shape), factors, pivots, info]


ROWS = rows(
    "linear algebra",
    Entry("linalg_inv_ex", _matrices("*b m n -> *b m n, *b", "2 *b m n m")),
    Entry("linalg_pinv.atol_rtol_tensor", _matrices("*b m n, , -> *b n m", "25 *b m n m")),
    Entry("linalg_matrix_exp", _matrices("*b m n -> *b m n", "20 *b m n m")),
    Entry("linalg_cholesky_ex", _matrices("*b m n -> *b m n, *b", "1 *b m n m")),
    Entry("cholesky_inverse", _matrices("*b m n -> *b m n", "2 *b m n m")),
    Entry("linalg_qr", _matrices("*b m n -> *b q0 q1, *b r0 r1", "4 *b m n m")),
    Entry("linalg_householder_product", _matrices("*b m n, *b k -> *b m n", "4 *b m n k")),
    Entry("linalg_lu", _matrices("*b m n -> *b p0 p1, *b l0 l1, *b u0 u1", "1 *b m n m")),
    Entry("linalg_lu_factor_ex", _FACTOR),
    Entry("lu_unpack", _unpacked, _UNPACKED.described, Traits(without_elements=True)),
    Entry("linalg_eig", _EIGENVECTORS),
    Entry("_linalg_eigh", _eigenvalues, _EIGENVECTORS.described, Traits(without_elements=True)),
    Entry("_linalg_svd", _singular_values, _SINGULAR.described, Traits(without_elements=True)),
    Entry("_linalg_det", _determinant(_DETERMINANT), _DETERMINANT.described),
    Entry("_linalg_slogdet", _determinant(_LOG_DETERMINANT), _LOG_DETERMINANT.described),
    Entry("_linalg_solve_ex", _solved, "`linalg_lu_factor_ex`, then `linalg_lu_solve`"),
    Entry("linalg_lu_solve", *_FACTORED),
    Entry("linalg_solve_triangular", *_system("self", "B", "*b m n, *b k l -> *b k l", "1 *b m k l")),
    Entry("cholesky_solve", *_system("input2", "self", "*b k l, *b m n -> *b k l", "2 *b m k l")),
)
