"""Bad input at every public call: one error of the right class, in the form `call: what is wrong: name=value`, and the
process works on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import joinsum
import pytest
import torch

TRA = "tra\ninput X: f32[4]<2>\ninput Y: f32[4]<2>\noutput Z = join[0; 0; add](X, Y)"


@pytest.fixture(autouse=True)
def process_stays_usable() -> Iterator[None]:
    joinsum.init(sites=2)
    yield
    x = joinsum.relation(torch.arange(6.0), parts=3)
    assert x.aggregate(keep=[]).to_tensor().tolist() == [6, 9]
    joinsum.init()


def vector(**options: Any) -> joinsum.Relation:
    return joinsum.relation(torch.ones(4), parts=2, **options)


def matrix() -> joinsum.Relation:
    return joinsum.relation(torch.ones(4, 4), parts=(2, 2))


def plan() -> Any:
    return joinsum.parse(TRA)


def run(**inputs: Any) -> Any:
    return joinsum.run(plan(), inputs)


def pair(x: Any, y: Any) -> Any:
    return joinsum.relation({(0,): x, (1,): y})


ones = torch.ones(4)

CASES: list[tuple[Callable[[], Any], str]] = [
    # init
    (lambda: joinsum.init(sites=0), "init: at least one site: sites=0"),
    (lambda: joinsum.init(sites=2.0), "init: sites is an integer: sites=2.0"),
    (lambda: joinsum.init(sites=True), "init: sites is an integer: sites=True"),
    (lambda: joinsum.init(group="gloo"), "init: a group is a ProcessGroup or a DeviceMesh: group='gloo'"),
    (lambda: joinsum.init(cluster="fast"), "init: a cluster is a joinsum.Cluster: cluster='fast'"),
    (lambda: joinsum.init(timeout=0), "init: a timeout is a positive number of seconds: timeout=0"),
    (lambda: joinsum.init(timeout="long"), "init: a timeout is a positive number of seconds: timeout='long'"),
    # Cluster
    (lambda: joinsum.Cluster(flops_per_second=0), "cluster: a rate is a positive number"),
    (lambda: joinsum.Cluster(bytes_per_second=float("nan")), "bytes_per_second=nan"),
    (lambda: joinsum.Cluster(latency_seconds=-1), "latency_seconds=-1"),
    (lambda: joinsum.Cluster(latency_seconds="1"), "latency_seconds='1'"),
    (lambda: joinsum.Cluster(memory_bytes=1.5), "cluster: memory is a number of bytes or None: memory_bytes=1.5"),
    (lambda: joinsum.Cluster(name=3), "cluster: a name is text: name=3"),
    # relation
    (lambda: joinsum.relation([[1, 2], [3, 4]]), "relation: not a tensor; give a torch.Tensor"),
    (lambda: joinsum.relation(3.0), "relation: give a tensor, a dict or list of (key, tensor)"),
    (lambda: joinsum.relation(ones, parts=(2, 2)), "relation: parts name each axis once: parts=[2, 2], shape=[4]"),
    (lambda: joinsum.relation(ones, parts=0), "relation: an axis has at least one part: parts=[0]"),
    (lambda: joinsum.relation(ones, parts=-1), "relation: an axis has at least one part: parts=[-1]"),
    (lambda: joinsum.relation(ones, parts=2.5), "relation: parts is a list of integers: parts=2.5"),
    (lambda: joinsum.relation(ones, parts="2"), "relation: parts is a list of integers: parts='2'"),
    (lambda: joinsum.relation(ones, links=[0]), "relation: the axes of a tensor are linked already"),
    (lambda: joinsum.relation(ones, name="two words"), "input: a name has letters, digits, _ and ."),
    (lambda: joinsum.relation(ones, name=3), "relation: a name is text: name=3"),
    (lambda: joinsum.relation(ones, place=3), "relation: a placement is text, a list or 'replicated': place=3"),
    (lambda: joinsum.relation(vector()), "relation: it is one already"),
    (lambda: joinsum.relation(ones.clone().requires_grad_()), "give x.detach(): requires_grad=True"),
    (lambda: joinsum.relation(ones.to_mkldnn()), "relation: not a dense tensor; give its to_dense()"),
    (lambda: joinsum.relation(ones[None].to_sparse(1)), "relation: a sparse tensor has no dense axes here"),
    (lambda: joinsum.relation(ones.to(torch.float8_e5m2)), "relation: unsupported dtype: dtype=torch.float8_e5m2"),
    (lambda: joinsum.relation(ones.to("meta")), "relation: a tensor without data: device=meta"),
    (lambda: joinsum.relation({}), "relation: no tuples"),
    (lambda: joinsum.relation([]), "relation: no tuples"),
    (lambda: joinsum.relation([ones]), "relation: tuples are (key, tensor) pairs: entry=tensor of shape [4]"),
    (lambda: joinsum.relation({(0,): 1.0}), "relation: not a tensor"),
    (lambda: joinsum.relation({(-1,): ones}), "relation: negative key: key=[-1]"),
    (lambda: joinsum.relation({(2**62,): ones}), "relation: key out of range"),
    (lambda: joinsum.relation({(0.5,): ones}), "relation: key is an integer: key=0.5"),
    (lambda: joinsum.relation({"a": ones}), "relation: key is a list of integers: key='a'"),
    (
        lambda: joinsum.relation({(0,): ones, (0, 1): ones}),
        "relation: keys differ in length: key=[0, 1], first key=[0]",
    ),
    (lambda: pair(ones, ones[None]), "relation: arrays differ in rank: key=[1], shape=[1, 4], first shape=[4]"),
    (lambda: pair(ones, ones.double()), "relation: arrays differ in dtype or device: key=[1]"),
    (lambda: joinsum.relation([(0, ones), (0, ones[:2])]), "relation: extents of an axis must depend on one key"),
    (lambda: joinsum.relation({0: ones}, parts=2), "relation: parts cut a tensor; tuples have theirs: parts=2"),
    (lambda: joinsum.relation({0: ones}, links=[0, 1]), "relation: links name a key dimension or None for each array"),
    (lambda: joinsum.relation({0: ones}, links=[1]), "relation: link to a key dimension that is not there: link=1"),
    (lambda: joinsum.relation({0: ones}, links="0"), "relation: links name a key dimension or None"),
    (
        lambda: joinsum.relation({(0, 0): ones, (0, 1): ones[:2]}, links=[0]),
        "relation: extents along an axis are no function of the key dimension it is linked to: axis=0, key dimension=0",
    ),
    (lambda: joinsum.relation(vector().stored(), place="(*)"), "relation: a stored relation has its place"),
    # places are known when a plan is lowered
    (lambda: joinsum.relation(ones, parts=2, place="(0, 0)").tuples(), "a placement has one state per grid axis"),
    (lambda: joinsum.relation(ones, parts=2, place="(7)").tuples(), "split by a key dimension that is not there"),
    (lambda: joinsum.relation(ones, parts=2, place="everywhere").tuples(), "parse"),
    (lambda: joinsum.relation(ones, parts=2, place="(0) and more").tuples(), "text goes on after the placement"),
    (lambda: joinsum.relation(ones, parts=2, place=[0.5]).tuples(), "place is an integer: place=0.5"),
    (lambda: joinsum.relation(ones, parts=2, place="(+add)").tuples(), "placed by replicated and split axes only"),
    # operators
    (lambda: vector().join(ones, on=([0], [0])), "join: the other operand is a joinsum.Relation: got=Tensor"),
    (lambda: vector().join(vector(), on=[0]), "join: on names the key dimensions of both sides"),
    (lambda: vector().join(vector(), on=([0], [])), "join: key lists differ in length: left=[0], right=[]"),
    (lambda: vector().join(vector(), on=([1], [0])), "join: "),
    (lambda: vector().join(vector(), on=([-1], [0])), "join: "),
    (lambda: vector().join(vector(), on=(["a"], [0])), "join: on is an integer: on='a'"),
    (lambda: vector().join(vector(), on=([0], [0]), kernel="relu"), "join: kernel has the wrong number of operands"),
    (lambda: vector().join(vector(), on=([0], [0]), kernel="matmul"), "join: "),
    (lambda: vector().join(vector(), on=([0], [0]), kernel=torch.add), "join: a kernel is named by text"),
    (lambda: vector().join(matrix(), on=([0], [0]), kernel="matmul"), "join: "),
    (
        lambda: matrix().join(joinsum.relation(torch.ones(4, 4), parts=(4, 1)), on=([0], [0]), kernel="add"),
        "join: joined axes are cut at different points",
    ),
    (lambda: vector().aggregate(keep=[1]), "aggregate: "),
    (lambda: vector().aggregate(keep=[0, 0]), "aggregate: "),
    (lambda: vector().aggregate(keep=None), "aggregate: keep is a list of integers: keep=None"),
    (lambda: vector().aggregate(keep=[], kernel="relu"), "aggregate: kernel has the wrong number of operands"),
    (
        lambda: joinsum.relation(torch.ones(5), parts=2).aggregate(keep=[]),
        "aggregate: arrays of one group differ in shape",
    ),
    (lambda: vector().rekey(3), "rekey: give a function of the key's components"),
    (lambda: vector().rekey(lambda i: i - 1), "key map: negative component"),
    (lambda: vector().rekey("(k3)"), "rekey: key map reads a component that the key lacks"),
    (lambda: vector().rekey(lambda i: i // 0), "division by zero"),
    (lambda: vector().filter(lambda i: i), "filter: a predicate is a comparison"),
    (lambda: vector().filter("k0"), "filter: a predicate is a comparison"),
    (lambda: vector().transform("add"), "transform: kernel has the wrong number of operands"),
    (lambda: vector().transform("scale[x"), "parse"),
    (lambda: vector().transform(3), "transform: a kernel is named by text"),
    (lambda: vector().tile(axis=1, size=2), "tile: axis out of range: axis=1, rank=1"),
    (lambda: vector().tile(axis=0, size=0), "tile: tiles need a positive size: size=0"),
    (lambda: vector().tile(axis=0.0, size=1), "tile: axis is an integer: axis=0.0"),
    (lambda: vector().concat(key_dim=1, axis=0), "concat: key dimension out of range"),
    (lambda: vector().concat(key_dim=0, axis=3), "concat: axis out of range: axis=3, rank=1"),
    # results
    (lambda: vector().rekey(lambda i: i * 2).to_tensor(), "to_tensor: relation has a hole: key=<1>"),
    (lambda: vector().rekey(lambda i: 0).to_tensor(), "to_tensor: key occurs twice: key=<0>"),
    (lambda: vector().to_tensor(links=[3]), "to_tensor: link to a key dimension that is not there: link=3"),
    (lambda: vector().plan("two words"), "output: a name has letters, digits, _ and ."),
    (lambda: vector().stored().move("(1)"), "split by a key dimension that is not there"),
    (lambda: vector().stored().move(3), "move: a placement is text"),
    (lambda: vector().cost(cluster=3), "cost: a cluster is a joinsum.Cluster: cluster=3"),
    # plans
    (lambda: joinsum.plan(), "plan: no output"),
    (lambda: joinsum.plan(Z=ones), "plan: an output is a joinsum.Relation: output=Z, got=Tensor"),
    (lambda: joinsum.plan(Z=vector(), ties={"Y": "r0"}), "plan: a tie of an unknown output: output='Y'"),
    (lambda: joinsum.plan(Z=vector(), ties={"Z": "X"}), "plan: output tied to an input that is not there"),
    (lambda: joinsum.plan(Z=vector().aggregate([]), ties={"Z": "r0"}), "plan: a tied output has its input's type"),
    (
        lambda: vector(name="X").join(vector(name="X"), on=([0], [0])).plan(),
        "plan: two inputs of one name: name=X",
    ),
    (lambda: joinsum.lower("tra"), "lower: not a logical plan: got=str"),
    (lambda: joinsum.lower(plan(), place={"W": "(0)"}), "lower: a placement for an unknown input: input='W'"),
    (lambda: joinsum.lower(plan(), place={"X": "(4)"}), "split by a key dimension that is not there"),
    (lambda: joinsum.parse(3), "parse: a plan is text: got=int"),
    (lambda: joinsum.parse(""), "parse: a plan begins with `tra`, or with `ia on` and a grid: first word=''"),
    (lambda: joinsum.parse("tra\ninput X: f99[4]<2>\noutput Y = X"), "line=2"),
    (lambda: joinsum.parse("tra\ninput X: f32[4]<2>\noutput Y = warp[0](X)"), "line=3"),
    (lambda: joinsum.parse("tra\n", tables={"t": [0.5]}), "lookup: entry is an integer: entry=0.5"),
    (lambda: joinsum.parse("ia on 0x2\ninput X: f32[]<> ()\noutput Y = X"), "line=1"),
    (lambda: joinsum.cost("tra"), "cost: a plan is what joinsum.plan, lower or parse gives: got=str"),
    # runs
    (lambda: joinsum.run("tra", {}), "run: a plan is what joinsum.plan, lower or parse gives: got=str"),
    (lambda: joinsum.run(plan(), [ones, ones]), "run: inputs are given by name"),
    (lambda: run(X=ones), "run: an input is not given: input=Y, type=f32[4]<2>"),
    (lambda: run(X=ones, Y=ones, W=ones), "run: the plan has no such input: input='W', inputs=['X', 'Y']"),
    (lambda: run(X=ones, Y=torch.ones(5)), "run: input Y: it has another shape: wanted=[4], got=[5]"),
    (lambda: run(X=ones, Y=torch.ones(4, 1)), "run: input Y: it has another shape: wanted=[4], got=[4, 1]"),
    (
        lambda: run(X=ones, Y=ones.double()),
        "run: input Y: it has another dtype: wanted=torch.float32, got=torch.float64",
    ),
    (lambda: run(X=ones, Y=[1.0] * 4), "run: input Y: give a tensor, a relation or a stored relation: got=list"),
    (lambda: run(X=ones, Y=matrix()), "run: input Y: it has another type: wanted=f32[4]<2>, got=f32[4,4]<2,2>"),
    (lambda: run(X=ones, Y=ones.clone().requires_grad_()), "run: input Y: the algebra has no gradients"),
    (lambda: run(X=ones, Y=ones.to("meta")), "run: input Y: a tensor without data"),
    (
        lambda: joinsum.run(joinsum.parse("tra\ninput X: f32[2@-]<3>\noutput Y = X"), {"X": torch.ones(2)}),
        "run: input X: no tensor has this type; give a joinsum.relation",
    ),
    (lambda: joinsum.run(plan(), {"X": ones, "Y": ones}, {"rate": "fast"}), "run: a scalar is a real number by name"),
    (lambda: joinsum.run(plan(), {"X": ones, "Y": ones}, {"rate": 1j}), "run: a scalar is a real number by name"),
    (
        lambda: joinsum.run(joinsum.parse("ia on 3\ninput X: f32[3]<3> (0)\noutput Y = X"), {"X": torch.ones(3)}),
        "run: the plan is for another number of sites: plan=3, sites=2",
    ),
    (
        lambda: joinsum.run(
            joinsum.parse("ia on 2\ninput X: f32[2]<2> (0)\noutput Y = agg[; add](X)"), {"X": ones[:2]}
        ),
        "run: output is pending; broadcast or shuffle it first: output=Y",
    ),
    (
        lambda: run(X=ones, Y=stored_by_an_earlier_context()),
        "stored on the sites of an earlier init; give its to_tensor()",
    ),
    (
        lambda: joinsum.run(
            joinsum.parse("tra\ninput X: f32[2@-]<2>\noutput Y = X"), {"X": vector().rekey(lambda i: 1 - i).stored()}
        ),
        "input: at another placement; give its move('(0)')",
    ),
    # interpretation
    (lambda: joinsum.interpret(plan(), {"X": ones}), "interpret: an input is not given: input=Y"),
    (lambda: joinsum.interpret(3, {}), "interpret: a plan is what joinsum.plan, lower or parse gives: got=int"),
    (
        lambda: joinsum.interpret(
            joinsum.parse("tra\ninput X: c64[2]<2>\noutput Y = X"), {"X": torch.ones(2, dtype=torch.complex64)}
        ),
        "interpret: complex numbers are not interpreted: input=X",
    ),
]


def stored_by_an_earlier_context() -> joinsum.StoredRelation:
    stored = vector().stored()
    joinsum.init(sites=2)
    return stored


@pytest.mark.parametrize(("call", "problem"), CASES, ids=[problem[:60] for _, problem in CASES])
def test_a_wrong_argument_is_a_plan_error(call: Callable[[], Any], problem: str) -> None:
    with pytest.raises(joinsum.PlanError) as caught:
        call()
    message = str(caught.value)
    assert problem in message
    assert re.match(r"[a-z_]+( [A-Za-z0-9_]+)?: \S", message), "messages begin with who found it"
    assert "\n" not in message.strip()


KERNEL_CASES: list[tuple[Callable[[], Any], str]] = [
    (lambda: vector().transform("rulu"), "kernel: unknown name: name=rulu, near=[relu"),
    (lambda: vector().transform("scale"), "scale: wrong number of parameters"),
    (lambda: vector().transform("scale[a]"), "scale: parameter does not fit"),
    (lambda: matrix().join(matrix(), ([], []), "contract[ij,jk]"), "labels"),
    (lambda: joinsum.relation(torch.ones(2, dtype=torch.complex64)).transform("relu"), "relu"),
    (lambda: joinsum.relation(torch.ones(2, dtype=torch.int64)).transform("exp"), "exp"),
    (lambda: vector().join(joinsum.relation(ones.double(), parts=2), ([0], [0]), "add"), "add"),
]


@pytest.mark.parametrize(("call", "problem"), KERNEL_CASES, ids=[problem[:40] for _, problem in KERNEL_CASES])
def test_a_wrong_kernel_is_a_kernel_error(call: Callable[[], Any], problem: str) -> None:
    with pytest.raises(joinsum.KernelError) as caught:
        call()
    assert problem in str(caught.value)


def test_errors_are_what_their_names_say() -> None:
    assert issubclass(joinsum.PlanError, ValueError)
    assert issubclass(joinsum.PlanError, joinsum.Error)
    for name in ("KernelError", "TransportError", "InternalError"):
        error = getattr(joinsum, name)
        assert issubclass(error, RuntimeError)
        assert issubclass(error, joinsum.Error)
        assert error.__module__ == "joinsum"
        assert error.__doc__


def test_scalars_that_no_kernel_reads_are_harmless() -> None:
    found = joinsum.run(plan(), {"X": ones, "Y": ones}, {"rate": 1.0})["Z"]
    assert found.to_tensor().tolist() == [2] * 4
