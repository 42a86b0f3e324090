#include <algorithm>
#include <limits>
#include <mutex>

#include "bindings/bindings.h"
#include "bindings/python_estimator.h"
#include "sparse/logical/search.h"
#include "sparse/plan.h"
#include "sparse/program/join.h"
#include "sparse/run.h"
#include "sparse/site_queries.h"

namespace joinsum::bindings {
namespace {

using sparse::program::Expression;
using sparse::program::ExpressionPtr;
using sparse::program::IndexSpace;
using sparse::program::Program;
using TensorHandle = std::shared_ptr<sparse::tensor::Tensor>;

sparse::operators::Operator operator_named(const std::string& name) {
  const auto op = sparse::operators::operator_from_name(name);
  if (op) return *op;
  std::vector<std::string> names;
  for (const sparse::operators::Operator each : sparse::operators::all_operators()) names.push_back(name_of(each));
  throw PlanError(concatenate("sparse program: no such operator: operator=", name, ", there are ", names));
}

// --- expressions as data ---------------------------------------------------------------------------------------------

/// `["in", tensor, [index, ...]]` and the other forms of docs/sparse.md.
py::object data_of(const ExpressionPtr& expression) {
  if (expression->kind == Expression::Kind::kLiteral) return py::list(py::make_tuple("lit", expression->value));
  const py::object indices = py::cast(expression->indices);
  if (expression->kind == Expression::Kind::kInput) {
    return py::list(py::make_tuple("in", expression->tensor, indices));
  }
  py::list children;
  for (const ExpressionPtr& child : expression->children) children.append(data_of(child));
  const std::string& name = name_of(expression->op);
  if (expression->kind == Expression::Kind::kMap) return py::list(py::make_tuple("map", name, children));
  return py::list(py::make_tuple("agg", name, indices, children[0]));
}

void bind_expressions(py::module_& module) {
  py::class_<Expression, std::shared_ptr<Expression>>(module, "SparseExpression")
      .def("data", [](const std::shared_ptr<Expression>& self) { return data_of(self); })
      .def("text", [](const std::shared_ptr<Expression>& self) { return sparse::program::text_of(self); });
  const auto plain = [](const ExpressionPtr& made) { return std::const_pointer_cast<Expression>(made); };
  using ExpressionHandle = std::shared_ptr<Expression>;
  module.def("sparse_input", [plain](std::string tensor, std::vector<std::string> indices) {
    return plain(sparse::program::make_input(std::move(tensor), std::move(indices)));
  });
  module.def("sparse_literal", [plain](double value) { return plain(sparse::program::make_literal(value)); });
  module.def("sparse_map", [plain](const std::string& op, const std::vector<ExpressionHandle>& children) {
    return plain(sparse::program::make_map(operator_named(op), {children.begin(), children.end()}));
  });
  module.def("sparse_join",
             [plain](const std::string& join, const std::vector<ExpressionHandle>& operands, const std::string& dtype) {
               return plain(sparse::program::joined(join, {operands.begin(), operands.end()}, dtype_named(dtype)));
             });
  module.def("sparse_aggregation",
             [](const std::string& name) { return name_of(sparse::program::aggregate_named(name)); });
  module.def("sparse_aggregate",
             [plain](const std::string& op, std::vector<std::string> indices, const ExpressionHandle& child) {
               return plain(sparse::program::make_aggregate(operator_named(op), std::move(indices), child));
             });
}

// --- programs --------------------------------------------------------------------------------------------------------

using DegreeData = std::tuple<std::vector<int64_t>, std::vector<int64_t>, double>;

sparse::program::InputTensor input_tensor(Dims shape, double fill, std::optional<TensorHandle> entries, double nnz,
                                          const std::vector<DegreeData>& degrees) {
  sparse::program::InputTensor made{std::move(shape), fill, entries.value_or(nullptr), nnz, {}};
  if (made.entries != nullptr) made.nnz = static_cast<double>(made.entries->stored());
  for (const auto& [axes, given, count] : degrees) made.degrees.push_back({axes, given, count});
  return made;
}

using QueryData = std::tuple<std::string, std::shared_ptr<Expression>, std::vector<std::string>>;

std::shared_ptr<Program> make_program(std::map<std::string, int64_t> index_sizes,
                                      std::map<std::string, sparse::program::InputTensor> tensors,
                                      const std::vector<QueryData>& queries, const std::optional<std::string>& dtype) {
  std::vector<sparse::program::Query> made;
  for (const auto& [name, expression, output] : queries) made.push_back({name, expression, output});
  const auto known = dtype ? std::optional(dtype_named(*dtype)) : std::nullopt;
  return std::make_shared<Program>(std::move(index_sizes), std::move(tensors), std::move(made), known);
}

/// Names of tensors, and of each the axes that others determine, and those others.
std::map<std::string, std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>>> dependencies_data(
    const Program& program) {
  std::map<std::string, std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>>> data;
  for (const auto& [name, own] : sparse::dependencies_of(program)) {
    for (const auto& each : own) data[name].emplace_back(each.axes, each.given);
  }
  return data;
}

/// Options as Python names them.
struct Options {
  std::string estimator = "chain";
  std::pair<double, double> cost = {1, 1};
  std::string mode = "absorb";
  std::string search = "greedy";
  double bytemap = 0.05;
  double dense = 0.5;
  bool distribute = true;
  bool cover = true;
  int64_t most_loops = 10;
  int64_t kernel_size = 128;
  std::map<std::string, std::vector<std::string>> formats = {};
  bool whole = false;
  bool dependencies = false;
};

sparse::PlanOptions options_of(const Options& given) {
  JOINSUM_USER_CHECK(given.mode == "single" || given.mode == "absorb",
                     "sparse program: no such mode; there are single and absorb: mode=", given.mode);
  JOINSUM_USER_CHECK(given.search == "greedy" || given.search == "branch_and_bound",
                     "sparse program: no such search; there are greedy and branch_and_bound: search=", given.search);
  sparse::PlanOptions options;
  options.logical.estimator = sparse::statistics::estimator_named(given.estimator);
  options.logical.cost = {given.cost.first, given.cost.second};
  options.logical.absorption =
      given.mode == "single" ? sparse::logical::Absorption::kSingle : sparse::logical::Absorption::kAbsorb;
  options.logical.search =
      given.search == "greedy" ? sparse::logical::Search::kGreedy : sparse::logical::Search::kBranchAndBound;
  options.logical.whole = given.whole;
  options.logical.distribute = given.distribute;
  options.logical.cover = given.cover;
  options.dependencies = given.dependencies;
  options.logical.kernel_size.repeated = given.kernel_size;
  options.physical.cutoffs.bytemap = given.bytemap;
  options.physical.cutoffs.dense = given.dense;
  options.physical.most_loops = given.most_loops;
  for (const auto& [name, levels] : given.formats) {
    for (const std::string& level : levels) {
      options.physical.formats[name].push_back(sparse::tensor::level_format_named(level));
    }
  }
  return options;
}

sparse::kernels::Engine engine_named(const std::string& name) {
  if (name == "automatic") return sparse::kernels::Engine::kAutomatic;
  if (name == "interpreter") return sparse::kernels::Engine::kInterpreter;
  JOINSUM_USER_CHECK(name == "compiled",
                     "sparse program: no such engine; there are automatic, interpreter and compiled: engine=", name);
  return sparse::kernels::Engine::kCompiled;
}

/// A plan with its program, and what its runs keep.
class Planned {
 public:
  struct Run {
    std::map<std::string, TensorHandle> results;
    sparse::Runner::Seconds seconds;
    std::vector<std::string> compiled;
    std::vector<std::string> replanned;
    std::map<std::string, double> true_entries;
  };

  Planned(std::shared_ptr<Program> program, const Options& options)
      : program_(std::move(program)), plan_(sparse::plan(*program_, options_of(options))) {}

  const sparse::ProgramPlan& plan() const { return plan_; }

  /// Keeps no tensor of the program: each run is given all of them. The program without them.
  std::shared_ptr<Program> forget_tensors() {
    const std::scoped_lock lock(mutex_);
    runner_ = nullptr;
    program_ = std::make_shared<Program>(program_->without_entries());
    return program_;
  }

  /// One run at a time: kernels and converted tensors are kept between runs.
  Run run(const std::map<std::string, TensorHandle>& given, int threads, const std::string& engine,
          const std::string& cache, bool adapts, bool every, bool counts) {
    const std::scoped_lock lock(mutex_);
    if (runner_ == nullptr) runner_ = std::make_unique<sparse::Runner>(*program_, plan_);
    const sparse::kernels::RunOptions options{threads, engine_named(engine), cache};
    Run out;
    for (const auto& [name, tensor] : runner_->run({given.begin(), given.end()}, options, {adapts, every, counts})) {
      out.results[name] = std::const_pointer_cast<sparse::tensor::Tensor>(tensor);
    }
    out.seconds = runner_->seconds();
    out.compiled = runner_->compiled();
    out.replanned = runner_->replanned();
    out.true_entries = runner_->true_entries();
    return out;
  }

 private:
  std::shared_ptr<Program> program_;
  sparse::ProgramPlan plan_;
  std::mutex mutex_;
  std::unique_ptr<sparse::Runner> runner_;
};

/// The user's names of indices, or the planner's where two of them had one name.
std::vector<std::string> names_of(const std::vector<int64_t>& indices, const std::vector<std::string>& names) {
  std::vector<std::string> out;
  for (const int64_t index : indices) out.push_back(names[index]);
  return out;
}

/// Names for the indices of one logical query: those that the user wrote, unless two of the query's share one.
IndexSpace shown_space(const sparse::logical::LogicalQuery& query, const IndexSpace& space) {
  IndexSpace shown = space;
  sparse::statistics::IndexSet used = query.body->free;
  for (const int64_t index : query.output) used |= sparse::statistics::only(index);
  std::map<std::string, int64_t> times;
  for (const int64_t index : sparse::statistics::members_of(used)) {
    ++times[space.originals[index]];
    if (space.names[index] != space.originals[index]) ++times[space.names[index]];
  }
  for (const int64_t index : sparse::statistics::members_of(used)) {
    if (times[space.originals[index]] == 1) shown.names[index] = space.originals[index];
  }
  return shown;
}

py::dict logical_data(const sparse::logical::LogicalQuery& query, const IndexSpace& shown) {
  py::dict data;
  data["name"] = query.name;
  data["op"] = query.op ? py::cast(name_of(*query.op)) : py::none();
  data["indices"] = names_of(query.indices, shown.names);
  data["expr"] = data_of(sparse::logical::Terms(nullptr, shown).to_expression(query.body));
  data["output"] = names_of(query.output, shown.names);
  data["nnz_agg"] = query.entries_of_result;
  data["nnz_map"] = query.entries_of_body;
  data["cost"] = query.cost;
  return data;
}

py::dict physical_data(const sparse::physical::PhysicalQuery& query, const IndexSpace& shown) {
  py::dict data;
  data["name"] = query.name;
  data["loops"] = names_of(query.loops, shown.names);
  py::list formats;
  for (const sparse::tensor::LevelFormat format : query.formats) formats.append(name_of(format));
  data["output"] = names_of(query.output, shown.names);
  data["formats"] = formats;
  py::list accesses;
  for (const sparse::physical::PlannedAccess& access : query.accesses) {
    py::list protocols;
    for (const sparse::physical::Protocol protocol : access.protocols) {
      protocols.append(protocol == sparse::physical::Protocol::kWalk ? "walk" : "lookup");
    }
    py::dict each;
    each["tensor"] = access.tensor;
    each["indices"] = names_of(access.indices, shown.names);
    each["protocols"] = protocols;
    accesses.append(each);
  }
  data["accesses"] = accesses;
  data["iterations"] = query.iterations;
  data["transposed"] = query.transposed;
  data["cost"] = query.cost;
  data["optimal_order"] = query.optimal_order;
  std::vector<int64_t> whole;
  for (size_t i = 0; i < query.walks.size(); ++i) {
    if (query.walks[i].walkers.empty()) whole.push_back(query.loops[i]);
  }
  data["whole_range"] = names_of(whole, shown.names);
  return data;
}

py::dict plan_data(const Planned& planned) {
  py::list logical, physical;
  py::dict orders, complete;
  for (const sparse::PlannedQuery& query : planned.plan().queries) {
    const IndexSpace& space = query.logical.space;
    for (size_t i = 0; i < query.physical.size(); ++i) {
      const IndexSpace shown = shown_space(query.logical.queries[i], space);
      logical.append(logical_data(query.logical.queries[i], shown));
      physical.append(physical_data(query.physical[i], shown));
    }
    orders[py::str(query.logical.queries.back().name)] = names_of(query.logical.order, space.originals);
    complete[py::str(query.logical.queries.back().name)] = query.logical.complete;
  }
  py::dict data;
  data["logical"] = logical;
  data["cost"] = planned.plan().cost;
  data["orders"] = orders;
  data["search_complete"] = complete;
  data["physical"] = physical;
  data["classes"] = sparse::classes_of(planned.plan());
  return data;
}

void bind_site_queries(py::module_& module) {
  using sparse::SiteQuery;
  py::class_<SiteQuery>(module, "SparseSiteQuery")
      .def_readonly("name", &SiteQuery::name)
      .def_readonly("tensors", &SiteQuery::tensors)
      .def_readonly("operands", &SiteQuery::operands)
      .def_readonly("diagonals", &SiteQuery::diagonals)
      .def_readonly("expression", &SiteQuery::expression)
      .def_readonly("output", &SiteQuery::output)
      .def_readonly("dense", &SiteQuery::dense)
      .def_readonly("fill", &SiteQuery::fill)
      .def_readonly("entries", &SiteQuery::entries)
      .def_readonly("iterations", &SiteQuery::iterations)
      .def_readonly("extents", &SiteQuery::extents)
      .def_readonly("reduce", &SiteQuery::reduce)
      .def_readonly("undivided", &SiteQuery::undivided);
}

void bind_programs(py::module_& module) {
  py::class_<sparse::program::InputTensor>(module, "SparseInput")
      .def(py::init(&input_tensor), py::arg("shape"), py::arg("fill"), py::arg("entries"), py::arg("nnz"),
           py::arg("degrees"));
  py::class_<Program, std::shared_ptr<Program>>(module, "SparseProgram")
      .def(py::init(&make_program), py::arg("index_sizes"), py::arg("tensors"), py::arg("queries"),
           py::arg("dtype") = py::none())
      .def("result",
           [](const Program& self, const std::string& name) {
             const Program::Result& result = self.result(name);
             return std::pair(result.shape, result.fill);
           })
      .def_property_readonly("tensors",
                             [](const Program& self) {
                               std::map<std::string, TensorHandle> out;
                               for (const auto& [name, tensor] : self.tensors()) {
                                 out[name] = std::const_pointer_cast<sparse::tensor::Tensor>(tensor.entries);
                               }
                               return out;
                             })
      .def_property_readonly("inputs",
                             [](const Program& self) {
                               std::map<std::string, std::tuple<std::vector<int64_t>, double, double>> out;
                               for (const auto& [name, tensor] : self.tensors()) {
                                 out[name] = {tensor.shape, tensor.fill, tensor.nnz};
                               }
                               return out;
                             })
      .def_property_readonly("all_finite", &Program::all_finite)
      .def_property_readonly("dependencies", &dependencies_data)
      .def_property_readonly("queries", [](const Program& self) {
        std::vector<std::string> names;
        for (const auto& query : self.queries()) names.push_back(query.name);
        return names;
      });
  py::class_<Options>(module, "SparsePlanOptions")
      .def(py::init<std::string, std::pair<double, double>, std::string, std::string, double, double, bool, bool,
                    int64_t, int64_t>(),
           py::arg("estimator"), py::arg("cost"), py::arg("mode"), py::arg("search"), py::arg("bytemap"),
           py::arg("dense"), py::arg("distribute"), py::arg("cover"), py::arg("most_loops"), py::arg("kernel_size"))
      .def_readwrite("formats", &Options::formats)
      .def_readwrite("whole", &Options::whole)
      .def_readwrite("dependencies", &Options::dependencies);
  py::class_<Planned::Run>(module, "SparseRun")
      .def_readonly("results", &Planned::Run::results)
      .def_property_readonly(
          "seconds",
          [](const Planned::Run& run) { return std::tuple(run.seconds.plan, run.seconds.compile, run.seconds.run); })
      .def_readonly("compiled", &Planned::Run::compiled)
      .def_readonly("replanned", &Planned::Run::replanned)
      .def_readonly("true_entries", &Planned::Run::true_entries);
  py::class_<Planned>(module, "SparsePlan")
      .def(py::init<std::shared_ptr<Program>, const Options&>(), py::arg("program"), py::arg("options"), WithoutGil())
      .def("data", &plan_data)
      .def("site_queries", [](const Planned& self) { return sparse::site_queries(self.plan()); })
      .def_property_readonly("distributed",
                             [](const Planned& self) {
                               return std::ranges::any_of(self.plan().queries,
                                                          [](const auto& query) { return query.logical.distributed; });
                             })
      .def_property_readonly("same_as", [](const Planned& self) { return self.plan().same_as; })
      .def("run", &Planned::run, py::arg("given"), py::arg("threads"), py::arg("engine"), py::arg("cache"),
           py::arg("adapts"), py::arg("every") = false, py::arg("counts") = false, WithoutGil())
      .def("forget_tensors", &Planned::forget_tensors, WithoutGil());
}

// --- the pieces ------------------------------------------------------------------------------------------------------

/// An expression as terms without statistics; extents of its indices do not matter.
struct Plain {
  sparse::logical::Terms terms;
  sparse::logical::TermPtr term;
};

Plain plain_terms(const std::shared_ptr<Expression>& expression) {
  const sparse::program::Distinct distinct = sparse::program::with_distinct_indices(expression, {});
  sparse::program::Readable readable;
  std::map<std::string, int64_t> sizes;
  for (const ExpressionPtr& input : sparse::program::inputs_of(distinct.expression)) {
    readable[input->tensor].shape = Dims(input->indices.size(), 2);
  }
  for (const auto& [name, original] : distinct.originals) sizes[original] = 2;
  sparse::logical::Terms terms(nullptr, sparse::program::space_of("sparse program", distinct, {}, readable, sizes));
  const sparse::logical::TermPtr term = sparse::logical::lifted(terms, terms.from_expression(distinct.expression, {}));
  return {std::move(terms), term};
}

py::list minimal_sub_expressions(const std::shared_ptr<Expression>& expression, const std::string& index) {
  Plain plain = plain_terms(expression);
  py::list found;
  for (const sparse::logical::TermPtr& each :
       sparse::logical::minimal_sub_expressions(plain.terms, plain.term, plain.terms.space().id_of(index))) {
    found.append(data_of(plain.terms.to_expression(each, true)));
  }
  return found;
}

std::vector<std::pair<std::string, std::string>> must_precede(const std::shared_ptr<Expression>& expression) {
  Plain plain = plain_terms(expression);
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const auto& [first, second] : sparse::logical::must_precede(plain.terms, plain.term)) {
    pairs.emplace_back(plain.terms.space().names[first], plain.terms.space().names[second]);
  }
  return pairs;
}

double elimination_cost(const Program& program, const std::vector<std::string>& order, const Options& options) {
  JOINSUM_USER_CHECK(program.queries().size() == 1,
                     "elimination_cost: the program has several queries: queries=", program.queries().size());
  const sparse::logical::LogicalOptions logical = options_of(options).logical;
  return sparse::logical::elimination_cost(program.queries().front(), program.space(0),
                                           sparse::sources_of(program, *logical.estimator), order, logical);
}

py::dict order_costs(const Program& program, const std::vector<std::string>& loops, const std::string& estimator) {
  const sparse::physical::LoopOrder order =
      sparse::order_costs(program, 0, loops, sparse::statistics::estimator_named(estimator));
  double total = 0;
  for (const double each : order.iterations) total += each;
  py::dict data;
  data["iterations"] = order.iterations;
  data["transposes"] = order.cost - total;
  data["total"] = order.cost;
  return data;
}

std::vector<std::string> choose_formats(const Dims& shape, const std::vector<double>& entries,
                                        const std::vector<std::string>& output_order,
                                        const std::vector<std::string>& loop_order, double bytemap, double dense) {
  std::vector<std::string> names;
  // Without the cap, which is the planner's own.
  const sparse::physical::FormatCutoffs cutoffs{bytemap, dense, std::numeric_limits<double>::infinity()};
  for (const auto format : sparse::physical::choose_formats(shape, entries, output_order, loop_order, cutoffs)) {
    names.push_back(name_of(format));
  }
  return names;
}

void bind_pieces(py::module_& module) {
  module.def("sparse_minimal_sub_expressions", &minimal_sub_expressions);
  module.def("sparse_must_precede", &must_precede);
  module.def("sparse_estimate",
             [](const std::shared_ptr<Expression>& expression, const Program& program, const std::string& estimator) {
               return sparse::estimate(expression, program, sparse::statistics::estimator_named(estimator));
             });
  module.def("sparse_elimination_cost", &elimination_cost);
  module.def("sparse_order_costs", &order_costs);
  module.def("sparse_choose_formats", &choose_formats);
  module.def("register_sparse_estimator", [](std::string name, py::object functions) {
    sparse::statistics::register_estimator(python_estimator(std::move(name), std::move(functions)));
  });
  module.def("sparse_estimator_names", &sparse::statistics::estimator_names);
  module.def(
      "sparse_operators",
      [](bool only_aggregates) {
        std::vector<std::string> names;
        for (const sparse::operators::Operator each : sparse::operators::all_operators()) {
          if (!only_aggregates || aggregates(each)) names.push_back(name_of(each));
        }
        return names;
      },
      py::arg("only_aggregates") = false);
}

}  // namespace

void bind_sparse(py::module_& module) {
  bind_expressions(module);
  bind_site_queries(module);
  bind_programs(module);
  bind_pieces(module);
}

}  // namespace joinsum::bindings
