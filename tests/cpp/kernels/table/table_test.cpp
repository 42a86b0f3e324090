#include "kernels/table/table.h"

#include <set>
#include <thread>

#include <gtest/gtest.h>

namespace joinsum::kernels::table {

namespace {

template <class Function>
std::string error_of(Function function) {
  try {
    function();
  } catch (const KernelError& error) {
    return error.what();
  }
  return "no error";
}

std::string row_error(const std::string& text) {
  return error_of([&] { row_of(Kernel::parse(text)); });
}

Dims shape_of(const std::string& text, const std::vector<Dims>& operands, int64_t output = 0) {
  return result_shape(Kernel::parse(text), operands, output);
}

std::string shape_error(const std::string& text, const std::vector<Dims>& operands, int64_t output = 0) {
  return error_of([&] { shape_of(text, operands, output); });
}

DType dtype_of(const std::string& text, const std::vector<DType>& operands) {
  return result_dtype(Kernel::parse(text), operands);
}

std::string dtype_error(const std::string& text, const std::vector<DType>& operands) {
  return error_of([&] { dtype_of(text, operands); });
}

bool distributes(const std::string& text, const std::string& over, int64_t operand) {
  return table::distributes(Kernel::parse(text), over, operand);
}

TEST(KernelTable, HasTheRowsThatPlansName) {
  const std::vector<std::string> names{"id",
                                       "matmul",
                                       "matmul_tn",
                                       "matmul_nt",
                                       "contract",
                                       "expression",
                                       "expression_add",
                                       "expression_mul",
                                       "expression_max",
                                       "expression_min",
                                       "expression_logaddexp",
                                       "add",
                                       "sub",
                                       "mul",
                                       "div",
                                       "min",
                                       "max",
                                       "squared_difference",
                                       "abs_difference",
                                       "logaddexp",
                                       "equal",
                                       "above",
                                       "scale",
                                       "negate",
                                       "square",
                                       "reciprocal",
                                       "abs",
                                       "conjugate",
                                       "detach",
                                       "sign",
                                       "is_zero",
                                       "sqrt",
                                       "relu",
                                       "relu_derivative",
                                       "sigmoid",
                                       "tanh",
                                       "exp",
                                       "log",
                                       "softplus",
                                       "arrange",
                                       "reduce_add",
                                       "reduce_mul",
                                       "reduce_max",
                                       "reduce_min",
                                       "reduce_logaddexp",
                                       "row_sum",
                                       "total",
                                       "row_max",
                                       "transpose",
                                       "diag",
                                       "insert_dim",
                                       "expand",
                                       "embed_diagonal",
                                       "duplicate",
                                       "tile",
                                       "concat",
                                       "cast",
                                       "bce_with_logits",
                                       "sigmoid_difference",
                                       "sgd_update",
                                       "adam_first",
                                       "adam_second",
                                       "adam_direction"};
  std::vector<std::string> rows, pairs;
  for (const Row* row : all_rows()) {
    (row->name.starts_with("contract_") ? pairs : rows).push_back(row->name);
  }
  EXPECT_EQ(rows, names);
  EXPECT_EQ(pairs.size(), 8u * 5u - 1u);
  EXPECT_EQ(std::set<std::string>(rows.begin(), rows.end()).size(), rows.size());
  for (const Row* row : all_rows()) {
    EXPECT_FALSE(row->summary.empty()) << row->name;
    EXPECT_FALSE(row->user) << row->name;
    EXPECT_EQ(find_row(row->name), row);
  }
}

TEST(KernelTable, AnUnknownNameIsAnsweredWithNearOnes) {
  EXPECT_EQ(row_error("sigmiod"), "kernel: unknown name: name=sigmiod, near=[sigmoid, sign]");
  EXPECT_EQ(row_error("mat_mul"), "kernel: unknown name: name=mat_mul, near=[matmul, matmul_nt, matmul_tn]");
  EXPECT_EQ(row_error("contarct[ij,jk->ik]"), "kernel: unknown name: name=contarct, near=[contract, concat, cast]");
  EXPECT_EQ(row_error("zzzzzzzzzz").substr(0, 45), "kernel: unknown name: name=zzzzzzzzzz, near=[");
  EXPECT_FALSE(has_row("sigmiod"));
}

TEST(KernelTable, ParametersThatDoNotFitAreRefused) {
  EXPECT_EQ(row_error("scale"), "scale: wrong number of parameters: kernel=scale, given=0, wanted=[number or $scalar]");
  EXPECT_EQ(row_error("relu[1]"), "relu: wrong number of parameters: kernel=relu[1], given=1, wanted=[]");
  EXPECT_EQ(row_error("tile[0, 0.5]"), "tile: parameter does not fit: kernel=tile[0, 0.5], index=1, wanted=integer");
  EXPECT_EQ(row_error("tile[$a, 2]"), "tile: parameter does not fit: kernel=tile[$a, 2], index=0, wanted=integer");
  EXPECT_EQ(row_error("scale[abc]"),
            "scale: parameter does not fit: kernel=scale[abc], index=0, wanted=number or $scalar");
  EXPECT_EQ(error_of([] { row_of(Kernel{"cast", {1.0}}); }),
            "cast: parameter does not fit: kernel=cast[1.0], index=0, wanted=label");
  EXPECT_EQ(error_of([] { row_of(Kernel{"cast", {std::string("a]b")}}); }),
            "cast: parameter does not fit: kernel=cast[a]b], index=0, wanted=label");
  EXPECT_EQ(error_of([] { row_of(Kernel{"scale", {0.0 / 0.0}}); }).substr(0, 29), "scale: parameter does not fit");
}

TEST(KernelTable, AnIntegerIsANumber) {
  EXPECT_EQ(row_error("scale[2]"), "no error");
  EXPECT_EQ(row_error("adam_direction[1, 0, 0.5, $e, $t]"), "no error");
}

TEST(KernelLabels, AreReadAndPrinted) {
  for (const std::string text : {"ij,jk->ik", "ii->i", "->", ",->", "i,->i", "aB->Ba"}) {
    EXPECT_EQ(Subscripts::parse(text).text(), text);
  }
  EXPECT_EQ(Subscripts::parse("ij, jk -> ik").text(), "ij,jk->ik");
}

TEST(KernelLabels, NameWhatIsWrong) {
  const auto error = [](const std::string& text) { return error_of([&] { Subscripts::parse(text); }); };
  EXPECT_EQ(error("ij,jk"), "labels: no `->`: labels=ij,jk");
  EXPECT_EQ(error("i1->i"), "labels: not a letter: labels=i1->i, character=1");
  EXPECT_EQ(error("i->i,j"), "labels: not a letter: labels=i->i,j, character=,");
  EXPECT_EQ(error("i->ii"), "labels: letter occurs twice in the result: labels=i->ii, letter=i");
  EXPECT_EQ(error("ij->k"), "labels: letter of the result is in no operand: labels=ij->k, letter=k");
}

TEST(KernelLabels, AContractionHasTwoOperandsWithoutRepeatedLetters) {
  EXPECT_EQ(shape_error("contract[ij->i]", {{2, 3}, {2}}), "contract: two operands are contracted: labels=ij->i");
  EXPECT_EQ(shape_error("contract[ii,ij->j]", {{2, 2}, {2, 3}}),
            "contract: letter occurs twice in one operand: labels=ii,ij->j, letter=i");
}

TEST(KernelShape, ElementwiseKernelsBroadcast) {
  EXPECT_EQ(shape_of("add", {{2, 3}, {2, 3}}), (Dims{2, 3}));
  EXPECT_EQ(shape_of("add", {{3}, {2, 1}}), (Dims{2, 3}));
  EXPECT_EQ(shape_of("add", {{}, {2, 0}}), (Dims{2, 0}));
  EXPECT_EQ(shape_of("add", {{1}, {0}}), (Dims{0}));
  EXPECT_EQ(shape_of("relu", {{4, 5}}), (Dims{4, 5}));
  EXPECT_EQ(shape_error("add", {{2, 3}, {2}}), "add: shapes do not broadcast: kernel=add, shapes=[[2, 3], [2]]");
  EXPECT_EQ(shape_error("add", {{2, 3}}), "add: wrong number of operands: given=1, wanted=2");
}

TEST(KernelShape, LabelledKernelsFollowTheirLetters) {
  EXPECT_EQ(shape_of("matmul", {{2, 3}, {3, 4}}), (Dims{2, 4}));
  EXPECT_EQ(shape_of("matmul_tn", {{3, 2}, {3, 4}}), (Dims{2, 4}));
  EXPECT_EQ(shape_of("matmul_nt", {{2, 3}, {4, 3}}), (Dims{2, 4}));
  EXPECT_EQ(shape_of("contract[abc,cbd->da]", {{2, 3, 4}, {4, 3, 5}}), (Dims{5, 2}));
  EXPECT_EQ(shape_of("row_sum", {{2, 3}}), (Dims{2}));
  EXPECT_EQ(shape_of("total", {{2, 3}}), (Dims{}));
  EXPECT_EQ(shape_of("row_max", {{2, 0}}), (Dims{2}));
  EXPECT_EQ(shape_of("transpose", {{2, 3}}), (Dims{3, 2}));
  EXPECT_EQ(shape_of("diag", {{3, 3}}), (Dims{3}));
  EXPECT_EQ(shape_error("matmul", {{2, 3}, {4, 5}}),
            "matmul: extents of a letter differ: letter=j, labels=ij,jk->ik, shapes=[[2, 3], [4, 5]]");
  EXPECT_EQ(shape_error("matmul", {{2, 3}, {3}}),
            "matmul: operand has the wrong rank: operand=1, labels=jk, shape=[3]");
  EXPECT_EQ(shape_error("diag", {{2, 3}}), "diag: extents of a letter differ: letter=i, labels=ii->i, shapes=[[2, 3]]");
}

TEST(KernelShape, AxisKernelsChangeOneAxis) {
  EXPECT_EQ(shape_of("insert_dim[0]", {{2, 3}}), (Dims{1, 2, 3}));
  EXPECT_EQ(shape_of("insert_dim[2]", {{2, 3}}), (Dims{2, 3, 1}));
  EXPECT_EQ(shape_of("duplicate", {{2, 3}}, 7), (Dims{2, 3}));
  EXPECT_EQ(shape_of("concat[1]", {{2, 3}, {2, 5}}), (Dims{2, 8}));
  EXPECT_EQ(shape_of("concat[0]", {{0, 3}, {2, 3}}), (Dims{2, 3}));
  EXPECT_EQ(shape_error("insert_dim[3]", {{2, 3}}), "insert_dim: axis out of range: axis=3, shape=[2, 3]");
  EXPECT_EQ(shape_error("insert_dim[-1]", {{2, 3}}), "insert_dim: axis out of range: axis=-1, shape=[2, 3]");
  EXPECT_EQ(shape_error("concat[0]", {{2, 3}, {2, 5}}),
            "concat: arrays differ in another axis: axis=0, shapes=[[2, 3], [2, 5]]");
  EXPECT_EQ(shape_error("concat[1]", {{2, 3}, {2}}),
            "concat: arrays differ in another axis: axis=1, shapes=[[2, 3], [2]]");
  EXPECT_EQ(shape_error("concat[0]", {{}, {}}), "concat: axis out of range: axis=0, shape=[]");
}

TEST(KernelShape, TheLastTileMayBeShorter) {
  EXPECT_EQ(shape_of("tile[1, 3]", {{2, 8}}, 0), (Dims{2, 3}));
  EXPECT_EQ(shape_of("tile[1, 3]", {{2, 8}}, 2), (Dims{2, 2}));
  EXPECT_EQ(shape_of("tile[0, 9]", {{2, 8}}, 0), (Dims{2, 8}));
  EXPECT_EQ(shape_of("tile[0, 2]", {{0}}, 0), (Dims{0}));
  EXPECT_EQ(shape_error("tile[1, 3]", {{2, 8}}, 3),
            "tile: no such piece: output=3, pieces=3, kernel=tile[1, 3], shape=[2, 8]");
  EXPECT_EQ(shape_error("tile[1, 0]", {{2, 8}}), "tile: tiles need a positive size: size=0");
  EXPECT_EQ(shape_error("relu", {{2}}, 1), "relu: no such result: output=1");
}

TEST(KernelDtype, OperandsShareOne) {
  EXPECT_EQ(dtype_of("add", {DType::kInt32, DType::kInt32}), DType::kInt32);
  EXPECT_EQ(dtype_error("add", {DType::kInt32, DType::kFloat32}),
            "add: dtypes of the operands differ; cast one: dtypes=[i32, f32]");
}

TEST(KernelDtype, LiesInTheDomainOfTheKernel) {
  EXPECT_EQ(dtype_of("exp", {DType::kComplex64}), DType::kComplex64);
  EXPECT_EQ(dtype_error("exp", {DType::kInt64}), "exp: not defined on this dtype; cast the operand: dtype=i64");
  EXPECT_EQ(dtype_error("max", {DType::kComplex64, DType::kComplex64}),
            "max: not defined on this dtype; cast the operand: dtype=c64");
  EXPECT_EQ(dtype_error("sigmoid", {DType::kComplex64}),
            "sigmoid: not defined on this dtype; cast the operand: dtype=c64");
  EXPECT_EQ(dtype_error("add", {DType::kBool, DType::kBool}),
            "add: not defined on this dtype; cast the operand: dtype=bool");
  for (const std::string text : {"id", "transpose", "tile[0, 1]", "cast[f32]", "embed_diagonal[0, 1]"}) {
    EXPECT_NO_THROW(dtype_of(text, {DType::kBool})) << text;
  }
  EXPECT_EQ(dtype_of("max", {DType::kBool, DType::kBool}), DType::kBool);
  EXPECT_EQ(dtype_of("reduce_max[ij->i]", {DType::kBool}), DType::kBool);
  EXPECT_EQ(dtype_of("contract_min_max[ij,jk->ik]", {DType::kBool, DType::kBool}), DType::kBool);
  EXPECT_EQ(dtype_error("reduce_add[ij->i]", {DType::kBool}),
            "reduce_add: not defined on this dtype; cast the operand: dtype=bool");
  EXPECT_EQ(dtype_error("contract_add_max[ij,jk->ik]", {DType::kBool, DType::kBool}),
            "contract_add_max: not defined on this dtype; cast the operand: dtype=bool");
}

TEST(KernelDtype, IntegersAreScaledByWholeNumbers) {
  EXPECT_EQ(dtype_of("scale[3.0]", {DType::kInt8}), DType::kInt8);
  EXPECT_EQ(dtype_of("scale[$n]", {DType::kInt8}), DType::kInt8);
  EXPECT_EQ(dtype_error("scale[0.5]", {DType::kInt8}),
            "scale: integers take whole parameters; cast the operand: kernel=scale[0.5], dtype=i8");
}

TEST(KernelDtype, CastNamesItsResult) {
  EXPECT_EQ(dtype_of("cast[bf16]", {DType::kFloat32}), DType::kBFloat16);
  EXPECT_EQ(dtype_of("cast[c64]", {DType::kFloat32}), DType::kComplex64);
  EXPECT_EQ(dtype_of("cast[bool]", {DType::kComplex128}), DType::kBool);
  EXPECT_EQ(dtype_error("cast[f31]", {DType::kFloat32}),
            "cast: unknown dtype: dtype=f31, known=bool, u8, i8, i16, i32, i64, f16, bf16, f32, f64, c64, c128");
  EXPECT_EQ(dtype_error("cast[f32]", {DType::kComplex64}),
            "cast: a complex number has no real value: from=c64, to=f32");
}

TEST(KernelFlops, CountOperations) {
  const auto count = [](const std::string& text, const std::vector<Dims>& shapes) {
    return flops(Kernel::parse(text), shapes);
  };
  EXPECT_EQ(count("matmul", {{2, 3}, {3, 4}}), 2 * 2 * 3 * 4);
  EXPECT_EQ(count("contract[bij,bjk->bik]", {{5, 2, 3}, {5, 3, 4}}), 2 * 5 * 2 * 3 * 4);
  EXPECT_EQ(count("add", {{2, 3}, {3}}), 6);
  EXPECT_EQ(count("squared_difference", {{2, 3}, {3}}), 12);
  EXPECT_EQ(count("row_sum", {{2, 3}}), 6);
  EXPECT_EQ(count("transpose", {{2, 3}}), 0);
  EXPECT_EQ(count("concat[0]", {{2, 3}, {4, 3}}), 0);
  EXPECT_EQ(count("matmul", {{1 << 20, 1 << 20}, {1 << 20, 4}}), int64_t{1} << 43);
  EXPECT_THROW(count("matmul", {{1 << 30, 1 << 30}, {1 << 30, 8}}), PlanError);
}

TEST(KernelFacts, SayOverWhatAKernelDistributes) {
  EXPECT_TRUE(distributes("mul", "add", 0) && distributes("mul", "add", 1) && distributes("mul", "sub", 1));
  EXPECT_TRUE(distributes("div", "add", 0));
  EXPECT_FALSE(distributes("div", "add", 1));
  EXPECT_TRUE(distributes("contract[ij,jk->ik]", "add", 1));
  EXPECT_TRUE(distributes("scale[$rate]", "add", 0));
  EXPECT_FALSE(distributes("scale[2.0]", "max", 0));
  EXPECT_TRUE(distributes("add", "max", 1) && distributes("add", "min", 0));
  EXPECT_FALSE(distributes("add", "add", 0));
  EXPECT_TRUE(distributes("relu", "max", 0) && distributes("exp", "min", 0));
  EXPECT_TRUE(distributes("sqrt", "min", 0));
  EXPECT_FALSE(distributes("sqrt", "max", 0));
  EXPECT_TRUE(distributes("transpose", "squared_difference", 0));
  EXPECT_FALSE(distributes("transpose", "matmul", 0));
  EXPECT_FALSE(distributes("relu", "max", 1));
  EXPECT_FALSE(distributes("concat[0]", "add", 0));
}

TEST(KernelFacts, SayOfWhichPartialValuesAKernelGivesPartialValues) {
  const auto joins = [](const std::string& text, const std::string& over) {
    return table::joins_partials(Kernel::parse(text), over);
  };
  EXPECT_TRUE(joins("add", "add") && joins("sub", "add") && joins("contract_add_add[ij,j->i]", "add"));
  EXPECT_TRUE(joins("max", "max") && joins("min", "min") && joins("mul", "mul") && joins("logaddexp", "logaddexp"));
  EXPECT_TRUE(joins("add | scale[2]", "add"));
  EXPECT_FALSE(joins("add | relu", "add"));
  EXPECT_FALSE(joins("mul", "add") || joins("div", "add") || joins("matmul", "add") || joins("add", "max"));
  EXPECT_FALSE(joins("sub", "sub") || joins("max", "min") || joins("negate", "add"));
}

TEST(KernelFacts, ReductionsThatMayBeReordered) {
  for (const std::string text : {"add", "mul", "min", "max"})
    EXPECT_TRUE(reduces_in_any_order(Kernel::parse(text))) << text;
  for (const std::string text : {"sub", "matmul", "concat[0]", "squared_difference"}) {
    EXPECT_FALSE(reduces_in_any_order(Kernel::parse(text))) << text;
  }
}

Row user_row(const std::string& name) { return {.name = name, .summary = "a test's", .operands = 2}; }

TEST(UserKernels, AreFoundUntilTheyAreTakenBack) {
  register_row(user_row("my_kernel"));
  const Row& row = row_of(Kernel{"my_kernel", {}});
  EXPECT_TRUE(row.user);
  EXPECT_EQ(all_rows().back(), &row);
  EXPECT_EQ(error_of([] { register_row(user_row("my_kernel")); }), "register_kernel: name is taken: name=my_kernel");
  unregister_row("my_kernel");
  EXPECT_FALSE(has_row("my_kernel"));
  EXPECT_EQ(row.name, "my_kernel");
  EXPECT_EQ(all_rows().back()->name, "adam_direction");
  EXPECT_EQ(error_of([] { unregister_row("my_kernel"); }), "unregister_kernel: unknown name: name=my_kernel");
  EXPECT_EQ(error_of([] { unregister_row("add"); }), "unregister_kernel: kernel is built in: name=add");
  EXPECT_EQ(error_of([] { register_row(user_row("add")); }), "register_kernel: name is taken: name=add");
}

TEST(UserKernels, IncompleteRowsAreRefused) {
  const auto error = [](auto change) {
    Row row = user_row("my_kernel");
    change(row);
    return error_of([&] { register_row(row); });
  };
  EXPECT_EQ(error([](Row& row) { row.name = "2x"; }), "register_kernel: name is not an identifier: name=2x");
  EXPECT_EQ(error([](Row& row) { row.name = "a b"; }), "register_kernel: name is not an identifier: name=a b");
  EXPECT_EQ(error([](Row& row) { row.operands = 0; }),
            "register_kernel: a kernel has operands: name=my_kernel, operands=0");
  EXPECT_EQ(error([](Row& row) { row.parameters = "li"; }),
            "register_kernel: parameters are letters i, n and at the end l: name=my_kernel, parameters=li");
  EXPECT_EQ(error([](Row& row) { row.form = Form::kLabelled; }),
            "register_kernel: labelled kernel without labels: name=my_kernel");
  EXPECT_EQ(error([](Row& row) { row.form = Form::kOpaque; }),
            "register_kernel: opaque kernel without shape rule: name=my_kernel");
  EXPECT_EQ(error([](Row& row) { row.form = Form::kTile; }),
            "register_kernel: a user's kernel is elementwise, labelled or opaque: name=my_kernel");
  EXPECT_EQ(error([](Row& row) { row.facts.distributes_over = {{"nothing"}}; }),
            "register_kernel: a kernel distributes over one of two operands and no parameters: name=my_kernel, "
            "over=nothing");
  EXPECT_FALSE(has_row("my_kernel"));
}

TEST(UserKernels, ALabelParameterIsReadByItsRow) {
  Row row = user_row("my_label");
  row.parameters = "il";
  register_row(row);
  EXPECT_EQ(Kernel::parse("my_label[1, 2]"), (Kernel{"my_label", {int64_t{1}, std::string("2")}}));
  EXPECT_EQ(row_error("my_label[1, 2]"), "no error");
  unregister_row("my_label");
}

TEST(UserKernels, MayBeRegisteredWhileOthersAreLookedUp) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      const std::string name = "my_kernel_" + std::to_string(t);
      for (int i = 0; i < 200; ++i) {
        register_row(user_row(name));
        EXPECT_EQ(row_of(Kernel{name, {}}).name, name);
        EXPECT_EQ(row_of(Kernel{"relu", {}}).operands, 1);
        EXPECT_GE(all_rows().size(), 41u);
        unregister_row(name);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace joinsum::kernels::table
