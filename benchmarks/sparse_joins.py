"""Machine learning over joins, as in section 8.1 of Galley: joinsum beside torch, scipy, numpy, pandas, finch-tensor.

Data have TPC-H's shape but are not its data: numpy generates them from a seed, with dbgen's numbers of rows, line items
of an order and suppliers of a part. A table's features are numbers and one-hot encoded categories, both random, of the
columns that the paper's authors took: 139 in the star join.

| join | X |
|---|---|
| star, a line item | X[i,j] = Σ L[i,s,p,o,c] (S[s,j] + P[p,j] + O[o,j] + C[c,j]) |
| self, two line items of a part | X[i1,i2,j] = Σ L[i1,s1,p] L[i2,s2,p] (S1[s1,j] + S2[s2,j] + P[p,j]) |

| workload | result |
|---|---|
| linear, logistic | X θ, and its sigmoid |
| layer, network | relu(X W1), and sigmoid(relu(relu(X W1) W2) w3); 25 hidden units each, star only as in the paper |
| covariance | Xᵀ X |

| contender | what runs |
|---|---|
| joinsum | one query of a `joinsum.sparse.Program`, with X as above in it |
| torch, dense; scipy, sparse | form X in one piece, dense or in compressed rows, then multiply |
| numpy by hand, torch by hand | products of each table's features, then rows by keys; covariances by blocks |
| pandas | merges tables of dense features, then numpy; where it is installed |
| finch-tensor | its own Galley; X is a sum of products of key matrices and features; star only, where it is installed |

joinsum's times to plan, to compile (no kernel is cached before) and to run warm are apart, also as columns of the table
at the end; finch-tensor plans in each call. `x run` is a contender's time divided by joinsum's warm run, `x all`, as in
the table, by planning and running: above 1 joinsum is faster. Results are compared first; figures are medians of rounds
in turns, of calls beyond 5 s the one of that comparison. Conversions to a contender's format do not count, forming X
does. By hand it is known that an order has one customer. finch-tensor 0.7 has no sigmoid in its compiler. All is
float64.

    python benchmarks/sparse_joins.py [--scale F] [--self-scale F] [--rounds N] [--threads 1,2] [--only star,linear]
        [--plans] [--json FILE]
"""

from __future__ import annotations

import json
import platform
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy as np
import scipy.sparse
import scipy.special
import torch
from joinsum import PlanError, SparseTensor
from joinsum.sparse import Program

try:
    import pandas
except ImportError:
    pandas = None
try:
    import finch
    from finch.autoschedule import COMPILE_NUMBA_GALLEY
except ImportError:
    finch = None

HIDDEN = 25
LINE_ITEMS_OF_ORDER = 7  # at most; at least one
SUPPLIERS_OF_PART = 4
SLOW = 5.0  # seconds of a call that is not repeated
WORKLOADS = {
    "star": ("linear", "logistic", "layer", "network", "covariance"),
    "self": ("linear", "logistic", "covariance"),
}

Array = np.ndarray[Any, Any]
Call = Callable[[], Any]
Expression = list[Any]


# --- data -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """A table of TPC-H, and the columns that are features."""

    rows: int  # at scale factor 1
    numbers: int
    categories: tuple[int, ...]


TABLES = {
    "S": Table(10_000, 1, (25,)),  # balance; nation
    "P": Table(200_000, 2, (5, 25, 40)),  # size, price; manufacturer, brand, container
    "O": Table(1_500_000, 1, (3, 5, 1)),  # price; status, priority, shipping priority
    "C": Table(150_000, 1, (25, 5)),  # balance; nation, segment
}


def features(draw: np.random.Generator, rows: int, table: Table) -> Any:
    """Numbers, then categories, in compressed rows."""
    sizes = [1] * table.numbers + list(table.categories)
    first = np.cumsum([0, *sizes])
    columns = np.stack([start + draw.integers(0, size, rows) for start, size in zip(first, sizes, strict=False)], 1)
    values = np.ones(columns.shape)
    values[:, : table.numbers] = draw.standard_normal((rows, table.numbers))
    ends = np.arange(rows + 1) * len(sizes)
    return scipy.sparse.csr_array((values.ravel(), columns.ravel(), ends), shape=(rows, first[-1]))


class Database:
    """Features of each table's rows, and the rows that each line item joins."""

    def __init__(self, scale: float) -> None:
        draw = np.random.default_rng(0)
        self.rows = {name: max(round(table.rows * scale), 8) for name, table in TABLES.items()}
        self.features = {name: features(draw, self.rows[name], table) for name, table in TABLES.items()}
        self.customer_of_order = draw.integers(0, self.rows["C"], self.rows["O"])
        order = np.repeat(np.arange(self.rows["O"]), draw.integers(1, LINE_ITEMS_OF_ORDER + 1, self.rows["O"]))
        self.line_items = len(order)
        part = draw.integers(0, self.rows["P"], self.line_items)
        step = self.rows["S"] // SUPPLIERS_OF_PART + part // self.rows["S"]  # as dbgen spreads a part's suppliers
        supplier = (part + draw.integers(0, SUPPLIERS_OF_PART, self.line_items) * step) % self.rows["S"]
        self.keys = {"S": supplier, "P": part, "O": order, "C": self.customer_of_order[order]}

    def counts(self, first: str, second: str) -> Any:
        """How many line items join a row of one table with one of another."""
        pairs = (self.keys[first], self.keys[second])
        shape = (self.rows[first], self.rows[second])
        return scipy.sparse.csr_array((np.ones(self.line_items), pairs), shape=shape)


def read(tensor: str, *indices: str) -> Expression:
    return ["in", tensor, list(indices)]


def mapped(operator: str, *arguments: Expression) -> Expression:
    return ["map", operator, list(arguments)]


def summed(indices: list[str], body: Expression) -> Expression:
    return ["agg", "+", indices, body]


@dataclass(frozen=True)
class Part:
    """Some columns of X: the features of one of the joined rows."""

    tensor: str
    table: str
    index: str


class Join(ABC):
    """What the joins have in common: their parts, and the parameters of models."""

    parts: tuple[Part, ...]
    points: tuple[str, ...]  # indices of a data point
    tables_of_line_item: str

    def __init__(self, database: Database) -> None:
        self.database = database
        draw = np.random.default_rng(1)
        self.starts = [0, *np.cumsum([database.features[part.table].shape[1] for part in self.parts]).tolist()]
        width = self.starts[-1]
        shapes = {"t": (width,), "W1": (width, HIDDEN), "W2": (HIDDEN, HIDDEN), "w3": (HIDDEN,)}
        self.parameters = {name: draw.standard_normal(shape) / shape[0] ** 0.5 for name, shape in shapes.items()}
        self.torch_parameters = {name: torch.from_numpy(each) for name, each in self.parameters.items()}

    @abstractmethod
    def x(self, column: str, tag: str = "") -> Expression:
        """X, whose summed indices are marked by the tag."""

    @cached_property
    def tensors(self) -> dict[str, SparseTensor]:
        tensors = {name: SparseTensor.from_torch(each) for name, each in self.torch_parameters.items()}
        for part, start in zip(self.parts, self.starts, strict=False):
            own = self.database.features[part.table]
            shape = (own.shape[0], self.starts[-1])
            placed = scipy.sparse.csr_array((own.data, own.indices + start, own.indptr), shape=shape)
            tensors[part.tensor] = SparseTensor.from_scipy(placed, levels="csr")
        keys = [self.database.keys[name] for name in self.tables_of_line_item]
        size = self.database.line_items
        extents = (size, *(self.database.rows[name] for name in self.tables_of_line_item))
        tensors["L"] = SparseTensor.from_coordinates([np.arange(size), *keys], np.ones(size), extents)
        return tensors

    @cached_property
    def dense(self) -> dict[str, torch.Tensor]:
        return {name: torch.from_numpy(each.toarray()) for name, each in self.database.features.items()}

    def dense_rows(self, keys: dict[str, Array]) -> torch.Tensor:
        return torch.cat([self.dense[part.table][torch.from_numpy(keys[part.tensor])] for part in self.parts], 1)

    def sparse_rows(self, keys: dict[str, Array]) -> Any:
        rows = [self.database.features[part.table][keys[part.tensor]] for part in self.parts]
        return scipy.sparse.hstack(rows, format="csr")

    def products(self, parameter: str) -> dict[str, Array]:
        """Each part's features times their rows of a parameter."""
        rows = np.split(self.parameters[parameter], self.starts[1:-1])
        return {
            part.tensor: self.database.features[part.table] @ own for part, own in zip(self.parts, rows, strict=True)
        }

    def all_features(self, column: str, tag: str) -> Expression:
        return mapped("+", *(read(part.tensor, part.index + tag, column) for part in self.parts))

    @cached_property
    def frames(self) -> dict[str, Any]:
        """pandas' tables of dense features with their keys, and the line items' keys."""
        found = {}
        for name, each in self.database.features.items():
            found[name] = pandas.DataFrame(each.toarray(), columns=[f"{name}{i}" for i in range(each.shape[1])])
            found[name][name] = np.arange(each.shape[0])
        found["L"] = pandas.DataFrame(self.database.keys)[list(self.tables_of_line_item)]
        found["L"]["L"] = np.arange(self.database.line_items)
        return found


class Star(Join):
    parts = (Part("S", "S", "s"), Part("P", "P", "p"), Part("O", "O", "o"), Part("C", "C", "c"))
    points = ("i",)
    tables_of_line_item = "SPOC"

    def x(self, column: str, tag: str = "") -> Expression:
        keys = [part.index + tag for part in self.parts]
        return summed(keys, mapped("*", read("L", "i", *keys), self.all_features(column, tag)))

    def merged(self) -> Array:
        joined = self.frames["L"]
        for name in TABLES:
            joined = joined.merge(self.frames[name], on=name)
        return np.asarray(joined.sort_values("L").drop(columns=["L", *TABLES]), dtype=float)

    @cached_property
    def finch_tensors(self) -> dict[str, Any]:
        """Features with the columns of X, for each table the matrix of line items and their rows in it, parameters."""
        found = {}
        ends = np.arange(self.database.line_items + 1)
        for part in self.parts:
            own = self.tensors[part.tensor].to_scipy("csr")
            ones = (np.ones(len(ends) - 1), self.database.keys[part.table], ends)
            found[part.tensor] = own
            found[f"{part.tensor} keys"] = scipy.sparse.csr_array(ones, shape=(len(ends) - 1, own.shape[0]))
        for each in found.values():  # One type of indices for all.
            each.indices, each.indptr = each.indices.astype(np.int64), each.indptr.astype(np.int64)
        return {name: finch.asarray(each) for name, each in (found | self.parameters).items()}


class SelfJoin(Join):
    parts = (Part("S1", "S", "s1"), Part("S2", "S", "s2"), Part("P", "P", "p"))
    points = ("i1", "i2")
    tables_of_line_item = "SP"

    def x(self, column: str, tag: str = "") -> Expression:
        first, second, part = (part.index + tag for part in self.parts)
        pair = (read("L", "i1", first, part), read("L", "i2", second, part))
        return summed([first, second, part], mapped("*", *pair, self.all_features(column, tag)))

    def pairs(self) -> tuple[Array, Array]:
        """Line items of the same part, in compressed rows: where those of each line item begin, and which they are."""
        part = self.database.keys["P"]
        counts = np.bincount(part, minlength=self.database.rows["P"])
        begins = np.cumsum(counts) - counts
        ends = np.concatenate([[0], np.cumsum(counts[part])])
        places = np.arange(ends[-1]) + np.repeat(begins[part] - ends[:-1], counts[part])
        return ends, np.argsort(part, kind="stable")[places]

    def keys_of(self, ends: Array, partners: Array) -> dict[str, Array]:
        """The rows that each pair joins."""
        first = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
        supplier, part = self.database.keys["S"], self.database.keys["P"]
        return {"S1": supplier[first], "S2": supplier[partners], "P": part[first]}

    def merged(self) -> Array:
        joined = self.frames["L"].merge(self.frames["L"], on="P", suffixes=("1", "2"))
        for name in ("S1", "S2"):
            joined = joined.merge(self.frames["S"].rename(columns=lambda old, name=name: name + old[1:]), on=name)
        joined = joined.merge(self.frames["P"], on="P").sort_values(["L1", "L2"])
        return np.asarray(joined.drop(columns=["L1", "L2", "S1", "S2", "P"]), dtype=float)

    def matrix(self, values: Any, ends: Array, partners: Array) -> Any:
        return scipy.sparse.csr_array((np.asarray(values), partners, ends), shape=(len(ends) - 1,) * 2)


# --- workloads ------------------------------------------------------------------------------------------------------


def query(join: Join, workload: str) -> tuple[Expression, list[str]]:
    """The expression that joinsum plans, and the indices of its result."""

    def product(x: Expression, parameter: str, *indices: str) -> Expression:
        return summed([indices[0]], mapped("*", x, read(parameter, *indices)))

    points = list(join.points)
    if workload == "covariance":
        return summed(points, mapped("*", join.x("j", "a"), join.x("k", "b"))), ["j", "k"]
    if workload in ("linear", "logistic"):
        linear = product(join.x("j"), "t", "j")
        return (linear if workload == "linear" else mapped("sigmoid", linear)), points
    layer = mapped("relu", product(join.x("j"), "W1", "j", "h"))
    if workload == "layer":
        return layer, [*points, "h"]
    second = mapped("relu", product(layer, "W2", "h", "k"))
    return mapped("sigmoid", product(second, "w3", "k")), points


def names_in(expression: Expression) -> set[str]:
    if expression[0] == "in":
        return {expression[1]}
    below = expression[2] if expression[0] == "map" else [expression[3]]
    return set().union(*map(names_in, below))


def program(join: Join, workload: str) -> Program:
    expression, output = query(join, workload)
    tensors = {name: join.tensors[name] for name in names_in(expression)}
    return Program({"tensors": tensors, "queries": [{"name": "y", "expr": expression, "output": output}]})


@dataclass(frozen=True)
class Library:
    """Functions that may overwrite their argument."""

    relu: Callable[[Any], Any]
    sigmoid: Callable[[Any], Any]


NUMPY = Library(lambda x: np.maximum(x, 0, out=x), lambda x: scipy.special.expit(x, out=x))
TORCH = Library(torch.relu_, torch.sigmoid_)
FINCH = Library(lambda x: finch.maximum(x, 0.0), lambda x: 1.0 / (1.0 + finch.exp(-x)))


def parameter_of(workload: str) -> str:
    return "t" if workload in ("linear", "logistic") else "W1"


def finished(product: Any, parameters: dict[str, Any], workload: str, library: Library) -> Any:
    """The result from X θ, or from X W1."""
    if workload in ("linear", "logistic"):
        return product if workload == "linear" else library.sigmoid(product)
    hidden = library.relu(product)
    if workload == "layer":
        return hidden
    return library.sigmoid(library.relu(hidden @ parameters["W2"]) @ parameters["w3"])


def modelled(x: Any, parameters: dict[str, Any], workload: str, library: Library) -> Any:
    if workload == "covariance":
        return x.T @ x
    return finished(x @ parameters[parameter_of(workload)], parameters, workload, library)


def star_by_numpy(join: Star, workload: str) -> Any:
    keys = join.database.keys
    of = join.products(parameter_of(workload))
    of["O"] += of["C"][join.database.customer_of_order]
    product = of["O"][keys["O"]]
    product += of["S"][keys["S"]]
    product += of["P"][keys["P"]]
    return finished(product, join.parameters, workload, NUMPY)


def star_by_torch(join: Star, rows: torch.Tensor, workload: str) -> Any:
    """`rows` are those of each line item's supplier, part and order in their products, one below the other."""
    of = {name: torch.from_numpy(each) for name, each in join.products(parameter_of(workload)).items()}
    of["O"] += of["C"][torch.from_numpy(join.database.customer_of_order)]
    stacked = torch.cat([of[name] for name in "SPO"])
    if stacked.dim() == 1:
        product = stacked[rows[:, 0]].add_(stacked[rows[:, 1]]).add_(stacked[rows[:, 2]])
    else:
        product = torch.nn.functional.embedding_bag(rows, stacked, mode="sum")
    return finished(product, join.torch_parameters, workload, TORCH)


def star_covariance_by_hand(join: Star) -> Array:
    """Blocks of Xᵀ X: a table's features times sums of another's over the line items that join them."""
    database = join.database
    s, p, o, c = (database.features[name] for name in "SPOC")
    own = {"S": s, "P": p, "O": scipy.sparse.hstack([o, c[database.customer_of_order]], format="csr")}
    rows = []
    for first in own:
        weights = np.bincount(database.keys[first], minlength=database.rows[first]).astype(float)
        with_itself = own[first].T @ (scipy.sparse.diags_array(weights) @ own[first])
        rows.append({first: with_itself.toarray()})
    for i, j in ((0, 1), (0, 2), (1, 2)):
        first, second = tuple(own)[i], tuple(own)[j]
        rows[i][second] = (own[first].T @ (database.counts(first, second) @ own[second])).toarray()
        rows[j][first] = rows[i][second].T
    return np.block([[row[name] for name in own] for row in rows])


def pairs_by_numpy(join: SelfJoin, workload: str) -> Any:
    keys, of = join.database.keys, join.products("t")
    ends, partners = join.pairs()
    values = np.repeat(of["S1"][keys["S"]] + of["P"][keys["P"]], np.diff(ends))
    values += of["S2"][keys["S"]][partners]
    return join.matrix(finished(values, {}, workload, NUMPY), ends, partners)


def pair_covariance_by_hand(join: SelfJoin) -> Array:
    """Blocks of Xᵀ X by sums over the line items of each part."""
    database = join.database
    s, p = database.features["S"], database.features["P"]
    of_part = np.bincount(database.keys["P"], minlength=database.rows["P"]).astype(float)
    of_supplier = np.bincount(database.keys["S"], of_part[database.keys["P"]], database.rows["S"])
    suppliers = (database.counts("P", "S") @ s).toarray()
    ss = (s.T @ (scipy.sparse.diags_array(of_supplier) @ s)).toarray()
    pp = (p.T @ (scipy.sparse.diags_array(of_part**2) @ p)).toarray()
    between, sp = suppliers.T @ suppliers, (p.T @ (suppliers * of_part[:, None])).T
    return np.block([[ss, between, sp], [between, ss, sp], [sp.T, sp.T, pp]])


def by_finch(join: Star, workload: str) -> Any:
    each = {name: finch.defer(tensor) for name, tensor in join.finch_tensors.items()}
    products = [finch.matmul(each[f"{part.tensor} keys"], each[part.tensor]) for part in join.parts]
    x = products[0] + products[1] + products[2] + products[3]
    return finch.to_numpy(finch.compute(modelled(x, each, workload, FINCH), ctx=COMPILE_NUMBA_GALLEY))


def star_rivals(join: Star, workload: str) -> dict[str, Call]:
    starts = np.cumsum([0, join.database.rows["S"], join.database.rows["P"]])
    keys = join.database.keys
    rows = torch.from_numpy(np.stack([keys[name] + start for name, start in zip("SPO", starts, strict=True)], 1))
    calls: dict[str, Call] = {
        "torch, dense": lambda: modelled(join.dense_rows(keys), join.torch_parameters, workload, TORCH),
        "scipy, sparse": lambda: modelled(join.sparse_rows(keys), join.parameters, workload, NUMPY),
    }
    if workload == "covariance":
        calls["numpy by hand"] = lambda: star_covariance_by_hand(join)
    else:
        calls["numpy by hand"] = lambda: star_by_numpy(join, workload)
        calls["torch by hand"] = lambda: star_by_torch(join, rows, workload)
    if pandas is not None:
        calls["pandas"] = lambda: modelled(join.merged(), join.parameters, workload, NUMPY)
    if finch is not None and workload not in ("logistic", "network"):
        by_finch(join, workload)  # Compiles.
        calls["finch-tensor"] = lambda: by_finch(join, workload)
    return calls


def self_rivals(join: SelfJoin, workload: str) -> dict[str, Call]:
    def paired(form: Callable[[dict[str, Array]], Any], parameters: dict[str, Any], library: Library) -> Any:
        ends, partners = join.pairs()
        values = modelled(form(join.keys_of(ends, partners)), parameters, workload, library)
        return values if workload == "covariance" else join.matrix(values, ends, partners)

    def by_pandas() -> Any:
        values = modelled(join.merged(), join.parameters, workload, NUMPY)
        return values if workload == "covariance" else join.matrix(values, *join.pairs())

    calls: dict[str, Call] = {
        "torch, dense": lambda: paired(join.dense_rows, join.torch_parameters, TORCH),
        "scipy, sparse": lambda: paired(join.sparse_rows, join.parameters, NUMPY),
        "numpy by hand": partial(pairs_by_numpy, join, workload),
    }
    if workload == "covariance":
        calls["numpy by hand"] = partial(pair_covariance_by_hand, join)
    if pandas is not None:
        calls["pandas"] = by_pandas
    return calls


# --- measuring ------------------------------------------------------------------------------------------------------


@dataclass
class Figures:
    """Seconds, of joinsum and of the others by name."""

    join: str
    workload: str
    line_items: int
    threads: int
    plan: float = 0
    compile: float = 0
    first_run: float = 0
    run: float = 0
    kernels: int = 0
    compiled: int = 0
    refused: str = ""
    others: dict[str, float] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        title = f"{self.join}, {self.workload}, {self.line_items:,} line items, {self.threads} threads"
        yield title + (f": joinsum refuses: {self.refused}" if self.refused else "")
        if not self.refused:
            yield (
                f"    {'joinsum':16}{1e3 * self.run:10.1f} ms   plan {1e3 * self.plan:.1f}, "
                f"compile {1e3 * self.compile:.1f}, first run {1e3 * self.first_run:.1f} ms; "
                f"{self.compiled} of {self.kernels} kernels run compiled"
            )
        for name, seconds in self.others.items():
            ratios = "" if self.refused else f"{seconds / self.run:10.2f} x run"
            ratios += "" if self.refused else f"{seconds / (self.plan + self.run):10.2f} x all"
            yield f"    {name:16}{1e3 * seconds:10.1f} ms{ratios}"


def table(rows: list[Figures]) -> str:
    """Milliseconds to plan, to compile and to run, and ratios of the others' times to planning and running."""
    names = list(dict.fromkeys(name for row in rows for name in row.others))
    head = ["workload", "threads", "plan", "compile", "run", *names]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in rows:
        cells = [f"{row.join}: {row.workload}", str(row.threads)]
        if row.refused:
            cells += ["refused"] + [""] * (len(head) - 3)
        else:
            cells += [f"{1e3 * seconds:.0f}" for seconds in (row.plan, row.compile, row.run)]
            ratios = {name: seconds / (row.plan + row.run) for name, seconds in row.others.items()}
            cells += [f"{ratios[name]:.2f}" if name in ratios else "" for name in names]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def canonical(result: Any) -> list[Array]:
    """Arrays that are equal where results are: all elements of small and dense ones, else what is stored, in order."""
    if isinstance(result, SparseTensor) and set(result.levels) != {"dense"}:
        places = tuple(result.coordinates().numpy())
        result = scipy.sparse.coo_array((result.values().numpy(), places), shape=tuple(result.shape)).tocsr()
    if isinstance(result, SparseTensor):
        result = result.to_dense()
    if not scipy.sparse.issparse(result):
        return [np.asarray(result)]
    if result.shape[0] <= 1000:
        return [result.toarray()]
    result.sort_indices()
    return [result.indptr, result.indices, result.data]


def checked(calls: dict[str, Call]) -> dict[str, float]:
    """Seconds of each call; raises where results differ from the first one's."""
    found: dict[str, float] = {}
    wanted: list[Array] = []
    for name, call in calls.items():
        start = time.perf_counter()
        result = call()
        found[name] = time.perf_counter() - start
        arrays = canonical(result)
        wanted = wanted or arrays
        for one, other in zip(arrays, wanted, strict=True):
            near = 1e-11 * max(1.0, float(np.abs(other).max()))
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=near, err_msg=name)
    return found


def seconds_of(call: Call) -> float:
    """Of a call, repeated while it is short."""
    repeats, start = 0, time.perf_counter()
    while repeats == 0 or (repeats < 50 and time.perf_counter() - start < 0.05):
        call()
        repeats += 1
    return (time.perf_counter() - start) / repeats


def timed(calls: dict[str, Call], rounds: int) -> dict[str, float]:
    """Medians of rounds in turns."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            found[name].append(seconds_of(call))
    return {name: median(each) for name, each in found.items()}


def measure(figures: Figures, join: Join, others: dict[str, Call], rounds: int, show_plan: bool) -> None:
    calls: dict[str, Call] = {"plan": lambda: program(join, figures.workload).plan(search="branch_and_bound")}
    with tempfile.TemporaryDirectory() as cache:
        start = time.perf_counter()
        plan = calls["plan"]()
        found = {"plan": time.perf_counter() - start}
        try:
            figures.first_run = checked({"joinsum": lambda: plan.run(cache=cache)["y"]})["joinsum"]
            figures.compile = plan.seconds["compile"]
            calls["joinsum"] = lambda: plan.run(cache=cache)["y"]
        except PlanError as error:
            figures.refused = str(error)
        calls |= others
        found |= checked({name: call for name, call in calls.items() if name != "plan"})
        found |= timed({name: call for name, call in calls.items() if found[name] < SLOW}, rounds)
    figures.run, figures.plan, figures.others = found.pop("joinsum", 0.0), found.pop("plan"), found
    figures.kernels, figures.compiled = len(plan.physical), len(plan.compiled)
    if show_plan:
        print(plan)


def cases(scale: float, self_scale: float, only: set[str]) -> Iterator[tuple[str, str, Join, dict[str, Call]]]:
    for name, workloads in WORKLOADS.items():
        if not only & {name} and only & set(WORKLOADS):
            continue
        chosen = [each for each in workloads if each in only or not only - set(WORKLOADS)]
        if name == "star" and chosen:
            star = Star(Database(scale))
            yield from ((name, workload, star, star_rivals(star, workload)) for workload in chosen)
        elif chosen:
            pairs = SelfJoin(Database(self_scale))
            yield from ((name, workload, pairs, self_rivals(pairs, workload)) for workload in chosen)


@click.command(help=__doc__)
@click.option("--scale", default=0.25, show_default=True, help="Scale factor of the star join; the paper's is 0.25.")
@click.option("--self-scale", default=0.02, show_default=True, help="That of the self join, of 31 pairs a line item.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--threads", default="2", show_default=True)
@click.option("--only", default="", help="Joins and workloads, separated by commas.")
@click.option("--plans", is_flag=True, help="Print joinsum's plans.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write the figures here too.")
def main(
    scale: float, self_scale: float, rounds: int, threads: str, only: str, plans: bool, json_file: Path | None
) -> None:
    missing = [name for name, module in (("pandas", pandas), ("finch-tensor", finch)) if module is None]
    print(
        f"{platform.processor() or platform.machine()}, torch {torch.__version__}, numpy {np.__version__}, "
        f"scipy {scipy.__version__}; not installed: {', '.join(missing) or 'none'}"
    )
    rows = []
    for name, workload, join, others in cases(scale, self_scale, {each for each in only.split(",") if each}):
        for count in map(int, threads.split(",")):
            torch.set_num_threads(count)
            figures = Figures(name, workload, join.database.line_items, count)
            measure(figures, join, others, rounds, plans)
            print("\n".join(figures.lines()), flush=True)
            rows.append(figures)
    print(table(rows))
    ratios = [min(each.others.values()) / each.run for each in rows if not each.refused]
    if ratios:
        print(f"fastest other one: median {median(ratios):.2f} x run, least {min(ratios):.2f}")
    if json_file is not None:
        json_file.write_text(json.dumps([asdict(each) for each in rows], indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
