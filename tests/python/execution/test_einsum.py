"""joinsum.einsum against torch.einsum.

The equations are those of the public tests of opt_einsum (tests/test_contract.py, MIT licence, Daniel G. A. Smith and
others) and of NumPy (numpy/_core/tests/test_einsum.py, BSD licence, the NumPy developers); extents, contents and checks
are ours.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator

import joinsum
import pytest
import torch
from joinsum import KernelError, PlanError
from joinsum.execution.operands import checksum
from training import EVERYTHING

SITES = [1, 2, 3, 4, 6, 8] if EVERYTHING else [1, 3, 4]

OPT_EINSUM = """
a,->a  ab,->ab  ,ab,->ab  ,,->
a,ab,abc->abc  a,b,ab->ab
ea,fb,gc,hd,abcd->efgh  ea,fb,abcd,gc,hd->efgh  abcd,ea,fb,gc,hd->efgh
acdf,jbje,gihb,hfac,gfac,gifabc,hfac  cd,bdhe,aidb,hgca,gc,hgibcd,hgac  abhe,hidj,jgba,hiab,gab
bde,cdh,agdb,hica,ibd,hgicd,hiac  chd,bde,agbc,hiad,hgc,hgi,hiad  chd,bde,agbc,hiad,bdi,cgh,agdb
bdhe,acad,hiab,agac,hibd
ab,ab,c->  ab,ab,c->c  ab,ab,cd,cd->  ab,ab,cd,cd->ac  ab,ab,cd,cd->cd  ab,ab,cd,cd,ef,ef->
ab,cd,ef->abcdef  ab,cd,ef->acdf  ab,cd,de->abcde  ab,cd,de->be  ab,bcd,cd->abcd  ab,bcd,cd->abd
eb,cb,fb->cef  dd,fb,be,cdb->cef  bca,cdb,dbf,afc->  dcc,fce,ea,dbf->ab  fdf,cdd,ccd,afe->ae  abcd,ad
ed,fcd,ff,bcf->be  baa,dcf,af,cde->be  bd,db,eac->ace  fff,fae,bef,def->abd  efc,dbc,acf,fd->abe
ab,ab  ab,ba  abc,abc  abc,bac  abc,cba
ab,bc  ab,cb  ba,bc  ba,cb  abcd,cd  abcd,ab  abcd,cdef  abcd,cdef->feba  abcd,efdc
aab,bc->ac  ab,bcc->ac  aab,bcc->ac  baa,bcc->ac  aab,ccb->ac
aab,fa,df,ecc->bde  ecb,fef,bad,ed->ac  bcf,bbb,fbf,fc->  bb,ff,be->e  bcb,bb,fc,fff->  fbb,dfd,fc,fc->
afd,ba,cc,dc->bf  adb,bc,fa,cfc->d  bbd,bda,fc,db->acf  dba,ead,cad->bce  aef,fbc,dca->bde
"""

NUMPY = """
a->a  a->  ab->ba  aa->a  aa->  aa  abc->cab  aab->ba  aaa->a  ...a->...  a...->...  a->...a  ...aa->...a  aa...->a...
a...a->a...  ab...->ba...  ...ab->...ba  ab...c->cb...a
a,a  a,b  ab,b  ba,b  ab,b->  abc,b->ac  abc,dec->abde  abc,cd->abd  abcd,abe->de  a,ab,abc
...,...  a...,...  ...a,...a->...  ab...,b...->ab...  ab...,...b->ab...  ab...,b->ab...  a...,b...->a...
abcd,bcde->ae  abc,bac->c  abcd,bcd->a  a,a,a->a  ab,bc,cd  ab...,bc...->ac...  ...ab,...bc  b,bc,ac...->...a
ABCDEF,abcd->ab  cab,bc->b  ijk,jil->kl  ijk,jil->lk  abjk,kl,jl
"""

EQUATIONS = [*OPT_EINSUM.split(), *NUMPY.split()]


@pytest.fixture(params=SITES)
def sites(request: pytest.FixtureRequest) -> Iterator[int]:
    joinsum.init(sites=request.param)
    yield request.param
    joinsum.init()


def operands_of(
    equation: str, even: bool, dtype: torch.dtype = torch.float64, seed: int = 0, ellipsis: tuple[int, ...] = (2, 3)
) -> list[torch.Tensor]:
    """An operand for each subscript; a letter's extent is one of a few."""
    generator = torch.Generator().manual_seed(seed)
    extents = {
        letter: (2, 4)[i % 2] if even else (2, 3, 5, 1, 4)[i % 5] for i, letter in enumerate(string.ascii_letters)
    }
    out = []
    for subscript in equation.split("->")[0].split(","):
        head, dots, tail = subscript.partition("...")
        shape = [extents[c] for c in head] + (list(ellipsis) if dots else []) + [extents[c] for c in tail]
        if dtype.is_floating_point or dtype.is_complex:
            out.append(torch.randn(shape, generator=generator, dtype=dtype))
        else:
            out.append(torch.randint(-4, 5, shape, generator=generator, dtype=dtype))
    return out


def near(x: torch.Tensor, y: torch.Tensor, scale: torch.Tensor, tolerance: float = 1e-10) -> bool:
    """Whether x and y are equal up to `tolerance` of the same einsum on absolute values."""
    return x.shape == y.shape and x.dtype == y.dtype and bool(((x - y).abs() <= tolerance * scale).all())


def values_and_gradients(
    function: Callable[..., torch.Tensor], operands: list[torch.Tensor], seed: int = 1
) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    leaves = [x.detach().requires_grad_() for x in operands]
    value = function(*leaves)
    generator = torch.Generator().manual_seed(seed)
    arriving = torch.rand(value.shape, generator=generator, dtype=torch.float64).to(value.dtype)
    return value.detach(), torch.autograd.grad(value, leaves, arriving)


@pytest.mark.parametrize("even", [True, False], ids=["even", "uneven"])
def test_every_equation_has_torchs_value_and_gradients(sites: int, even: bool) -> None:
    # Plans for grids of two axes take longer: every change makes a third of them.
    for equation in EQUATIONS if EVERYTHING or sites < 4 else EQUATIONS[even::3]:
        operands = operands_of(equation, even)
        value, gradients = values_and_gradients(lambda *xs, e=equation: joinsum.einsum(e, *xs), operands)
        wanted, slopes = values_and_gradients(lambda *xs, e=equation: torch.einsum(e, *xs), operands)
        scale, scales = values_and_gradients(lambda *xs, e=equation: torch.einsum(e, *xs), [x.abs() for x in operands])
        assert near(value, wanted, scale), equation
        for each, slope, of in zip(gradients, slopes, scales, strict=True):
            assert near(each, slope, of), equation


# --- joins and aggregations -------------------------------------------------------------------------------------------

JOINS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "mul": torch.mul,
    "add": torch.add,
    "sub": torch.sub,
    "div": torch.div,
    "max": torch.maximum,
    "min": torch.minimum,
    "squared_difference": lambda x, y: (x - y) ** 2,
    "abs_difference": lambda x, y: (x - y).abs(),
    "sub | square": lambda x, y: (x - y) ** 2,
}
AGGREGATIONS: dict[str, Callable[[torch.Tensor, tuple[int, ...]], torch.Tensor]] = {
    "sum": lambda x, dims: x.sum(dims),
    "prod": lambda x, dims: _prod(x, dims),
    "max": torch.amax,
    "min": torch.amin,
    "logsumexp": torch.logsumexp,
}


def _prod(x: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    for dim in sorted(dims, reverse=True):
        x = x.prod(dim)
    return x


@pytest.mark.parametrize("agg", AGGREGATIONS)
@pytest.mark.parametrize("join", JOINS)
def test_every_join_and_aggregation_has_the_value_and_gradients_of_its_definition(
    sites: int, join: str, agg: str
) -> None:
    x, y = torch.rand(5, 3, dtype=torch.float64) + 0.5, torch.rand(3, 4, dtype=torch.float64) + 0.5

    def wanted(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return AGGREGATIONS[agg](JOINS[join](x[:, :, None], y[None]), (1,))

    value, gradients = values_and_gradients(lambda x, y: joinsum.einsum("ij,jk->ik", x, y, join=join, agg=agg), [x, y])
    expected, slopes = values_and_gradients(wanted, [x, y])
    torch.testing.assert_close(value, expected, rtol=1e-10, atol=1e-10)
    for each, slope in zip(gradients, slopes, strict=True):
        torch.testing.assert_close(each, slope, rtol=1e-9, atol=1e-9)


def test_any_and_all_are_of_truth_values(sites: int) -> None:
    x, y = torch.randint(0, 2, (5, 4)), torch.randint(0, 2, (4, 3))
    pairs = (x[:, :, None] * y[None]) != 0
    assert torch.equal(joinsum.einsum("ij,jk->ik", x, y, agg="any"), pairs.any(1))
    assert torch.equal(joinsum.einsum("ij,jk->ik", x, y, agg="all"), pairs.all(1))
    assert torch.equal(joinsum.einsum("ij->i", x, agg="any"), (x != 0).any(1))
    assert torch.equal(joinsum.einsum("ij,jk->ik", x.bool(), y.bool(), agg="any"), pairs.any(1))


def test_one_operand_takes_a_map(sites: int) -> None:
    x = torch.rand(5, 4, dtype=torch.float64)
    torch.testing.assert_close(joinsum.einsum("ij->j", x, join="exp"), x.exp().sum(0))
    torch.testing.assert_close(joinsum.einsum("ij->ji", x, join="square"), (x * x).T)


def test_three_operands_are_taken_from_the_left(sites: int) -> None:
    x, y, z = torch.rand(5), torch.rand(5, 4), torch.rand(4)
    wanted = (x[:, None] - y - z).amax(0)
    torch.testing.assert_close(joinsum.einsum("i,ij,j->j", x, y, z, join="sub", agg="max"), wanted)


# --- dtypes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("equation", ["ij,jk->ik", "ij->i", "ij,jk", "i,j->ij", "ij->", "ij,ij->i"])
@pytest.mark.parametrize(
    "dtype", [torch.int32, torch.int64, torch.uint8, torch.float32, torch.complex64, torch.complex128]
)
def test_each_dtype_gives_torchs_result(sites: int, equation: str, dtype: torch.dtype) -> None:
    operands = (
        operands_of(equation, False, dtype)
        if dtype is not torch.uint8
        else [x.abs().to(dtype) for x in operands_of(equation, False, torch.int64)]
    )
    wanted = torch.einsum(equation, *operands)
    got = joinsum.einsum(equation, *operands)
    assert got.dtype == wanted.dtype
    if dtype.is_floating_point or dtype.is_complex:
        scale = torch.einsum(equation, *(x.abs() for x in operands))
        assert near(got, wanted, scale + 1e-30, 1e-5 if dtype in (torch.float32, torch.complex64) else 1e-10)
    else:
        assert torch.equal(got, wanted)


@pytest.mark.parametrize(
    "equation", ["ij,ij->ij", "i,j->ij", "ij,i,j->ji", "ij,jk->ik", "i,i->", "ii,i->i", "b...,b->b..."]
)
@pytest.mark.parametrize("extent", [0, 1, 3])
def test_truth_values_are_multiplied_where_torch_multiplies_them(sites: int, equation: str, extent: int) -> None:
    extents = {"i": 3, "j": extent, "k": 2, "b": 2}
    if equation == "i,i->":
        extents["i"] = extent
    operands = [
        torch.rand([extents[label] for label in labels.replace("...", "jk")]) < 0.6
        for labels in equation.split("->")[0].split(",")
    ]
    if equation in ("ij,jk->ik", "i,i->") and extent > 1:  # a sum of them
        with pytest.raises((KernelError, RuntimeError), match=r"not defined on this dtype|not implemented for 'Bool'"):
            joinsum.einsum(equation, *operands)
        return
    got = joinsum.einsum(equation, *operands)
    assert got.dtype is torch.bool
    assert torch.equal(got, torch.einsum(equation, *operands))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_floats_of_half_width_are_summed_in_single_precision(sites: int, dtype: torch.dtype) -> None:
    x = torch.full((3, 4096), 1.0, dtype=dtype)
    y = torch.full((4096, 2), 0.125, dtype=dtype)
    assert torch.equal(joinsum.einsum("ij,jk->ik", x, y), torch.full((3, 2), 512.0, dtype=dtype))
    assert torch.equal(joinsum.einsum("ij->i", x), torch.full((3,), 4096.0, dtype=dtype))


def test_complex_gradients_are_torchs(sites: int) -> None:
    operands = operands_of("ij,jk->ik", False, torch.complex128)
    got = values_and_gradients(lambda x, y: joinsum.einsum("ij,jk->ik", x, y), operands)[1]
    wanted = values_and_gradients(lambda x, y: torch.einsum("ij,jk->ik", x, y), operands)[1]
    for x, y in zip(got, wanted, strict=True):
        torch.testing.assert_close(x, y)


def test_conjugate_and_transposed_views_are_read_as_what_they_show(sites: int) -> None:
    x = torch.randn(4, 3, dtype=torch.complex128)
    torch.testing.assert_close(joinsum.einsum("ij,jk->ik", x.mH, x), x.mH @ x)


# --- autograd ---------------------------------------------------------------------------------------------------------


def test_second_derivatives_are_torchs(sites: int) -> None:
    x = torch.rand(3, 2, dtype=torch.float64, requires_grad=True)
    y = torch.rand(2, 3, dtype=torch.float64, requires_grad=True)
    for join, agg in [("mul", "sum"), ("div", "sum"), ("mul", "logsumexp"), ("squared_difference", "sum")]:

        def function(x: torch.Tensor, y: torch.Tensor, join: str = join, agg: str = agg) -> torch.Tensor:
            return joinsum.einsum("ij,jk->ik", x, y, join=join, agg=agg)

        assert torch.autograd.gradcheck(function, (x, y))
        assert torch.autograd.gradgradcheck(function, (x, y))


def test_only_operands_that_require_a_gradient_get_one(sites: int) -> None:
    x = torch.rand(3, 2, requires_grad=True)
    y = torch.rand(2, 3)
    value = joinsum.einsum("ij,jk->ik", x, y)
    assert value.requires_grad
    value.sum().backward()
    torch.testing.assert_close(x.grad, y.sum(1).expand(3, 2))
    assert y.grad is None
    with torch.no_grad():
        assert not joinsum.einsum("ij,jk->ik", x, y).requires_grad
    assert not joinsum.einsum("ij->ji", y).requires_grad


def test_one_tensor_may_be_several_operands(sites: int) -> None:
    x = torch.rand(4, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: joinsum.einsum("ij,jk,ki->", x, x, x), (x,))


def test_the_result_shares_no_memory_with_an_operand(sites: int) -> None:
    x = torch.rand(4, 4)
    before = x.clone()
    if sites > 1:
        joinsum.einsum("ij->ij", x).zero_()
    assert torch.equal(x, before)


# --- forms and errors -------------------------------------------------------------------------------------------------


def test_the_form_with_lists_is_torchs(sites: int) -> None:
    x, y = torch.rand(2, 3, 4), torch.rand(4, 5)
    for arguments in [
        (x, [0, 1, 2], y, [2, 30], [30, 0, 1]),
        (x, [..., 2], y, [2, 3], [..., 3]),
        (x, [0, 1, 2], y, [2, 3]),
    ]:
        torch.testing.assert_close(joinsum.einsum(*arguments), torch.einsum(*arguments))
    torch.testing.assert_close(joinsum.einsum("abc,cd", [x, y]), torch.einsum("abc,cd", [x, y]))


def test_an_axis_of_one_element_fits_any(sites: int) -> None:
    x, y = torch.rand(2, 1, requires_grad=True), torch.rand(3, 4)
    torch.testing.assert_close(joinsum.einsum("ij,jk->ik", x, y), torch.einsum("ij,jk->ik", x, y))
    joinsum.einsum("ij,jk->ik", x, y).sum().backward()
    torch.testing.assert_close(x.grad, y.sum().expand(2, 1))


def test_axes_without_elements(sites: int) -> None:
    x, y = torch.rand(3, 0), torch.rand(0, 4)
    assert torch.equal(joinsum.einsum("ij,jk->ik", x, y), torch.zeros(3, 4))
    assert joinsum.einsum("ij,kj->ik", x, torch.rand(0, 0)).shape == (3, 0)
    assert torch.equal(joinsum.einsum("ij->i", x, agg="max"), torch.full((3,), float("-inf")))


@pytest.mark.parametrize("count", [1, 4])
def test_errors_mark_the_place(count: int) -> None:
    joinsum.init(sites=count)
    x, y = torch.rand(2, 3), torch.rand(4, 5)
    with pytest.raises(PlanError, match=r"label=j, operand 0=3, operand 1=4\n  ij,jk->ik\n     \^"):
        joinsum.einsum("ij,jk->ik", x, y)
    with pytest.raises(PlanError, match=r"label=z\n  ij->iz\n       \^"):
        joinsum.einsum("ij->iz", x)
    with pytest.raises(PlanError, match=r"not a letter: character=é\n  éj->j\n  \^"):
        joinsum.einsum("éj->j", x)
    with pytest.raises(PlanError, match=r"only blanks stand between letters: code=9\n  i j->j\n   \^"):
        joinsum.einsum("i\tj->j", x)
    with pytest.raises(PlanError, match="subscripts for another number of operands"):
        joinsum.einsum("ij,jk->ik", x)
    with pytest.raises(PlanError, match="no such aggregation: agg='mean', there are sum, prod, max"):
        joinsum.einsum("ij->i", x, agg="mean")
    with pytest.raises(KernelError, match="unknown name: name=plus"):
        joinsum.einsum("ij,ij->i", x, x, join="plus")
    with pytest.raises(PlanError, match="operand 1: not a tensor"):
        joinsum.einsum("ij,jk->ik", x, [1.0])
    with pytest.raises(PlanError, match="0 to 51"):
        joinsum.einsum(x, [0, 52])
    joinsum.init()


def test_checksums_tell_tensors_apart() -> None:
    x = torch.randn(64, 33, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    flipped = x.clone()
    flipped[3, 5] *= -1
    others = [-x, flipped, x.flip(0), x.roll(1, 1), x.float(), x[1:], x.nextafter(x + 1)]
    assert len({checksum(each) for each in (x, *others)}) == 1 + len(others)
    narrow = x.to(torch.bfloat16).flatten()  # its bytes are no whole number of words, from no word's begin
    assert checksum(narrow[1:]) == checksum(narrow[1:].clone()) != checksum(-narrow[1:])
    assert checksum(x.T) == checksum(x.T.contiguous())
    assert checksum(torch.ones(3, dtype=torch.bool)) != checksum(torch.ones(2, dtype=torch.bool))
