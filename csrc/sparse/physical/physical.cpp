#include "sparse/physical/physical.h"

#include <algorithm>
#include <cmath>

#include "sparse/kernels/argument_order.h"
#include "sparse/tensor/fills.h"

namespace joinsum::sparse::physical {
namespace {

using Kind = Expression::Kind;

/// `leads` says whether every map above the term is annihilated by the fill of what lies below.
void collect_accesses(const TermPtr& term, const StoredTensors& stored, bool leads, std::vector<Access>& found) {
  if (term->is(Kind::kInput)) {
    Access access{.term = term, .leads = leads};
    const auto tensor = stored.find(term->tensor);
    access.is_result = tensor == stored.end();
    access.stored = access.is_result ? 0 : tensor->second.entries;
    const auto rank = static_cast<int64_t>(term->indices.size());
    const bool in_order = access.is_result || tensor->second.axes.empty();
    for (const int64_t axis : in_order ? all_dims(rank) : tensor->second.axes) {
      const int64_t index = term->indices[axis];
      if (std::ranges::find(access.indices, index) == access.indices.end()) access.indices.push_back(index);
    }
    found.push_back(std::move(access));
  }
  for (const TermPtr& child : term->children) {
    collect_accesses(child, stored, leads && tensor::decides(term->op, child->fill, term->fill), found);
  }
}

/// Whether a term is at its fill where these of its leaves store nothing; `leaf` counts them.
bool at_fill(const TermPtr& term, const std::vector<bool>& absent, size_t& leaf) {
  if (term->is(Kind::kLiteral)) return true;
  if (term->is(Kind::kInput)) return absent[leaf++];
  bool all = true, any = false;
  for (const TermPtr& child : term->children) {
    const bool here = at_fill(child, absent, leaf);
    all = all && here;
    any = any || (here && tensor::decides(term->op, child->fill, term->fill));
  }
  return all || any;
}

/// Which accesses walk each loop. Source: Galley, section 6.3.
class Merge {
 public:
  Merge(const Terms& terms, TermPtr body, const std::vector<Access>& accesses, const std::vector<int64_t>& loops)
      : body_(std::move(body)), accesses_(accesses), loops_(loops), iterations_(terms, body_) {}

  /// Access that walk, those that look up.
  Loop of(size_t depth) {
    IndexSet outer = 0;
    for (size_t i = 0; i < depth; ++i) outer |= only(loops_[i]);
    Loop loop;
    const int64_t leader = iterations_.leader(accesses_, outer, loops_[depth]);
    for (size_t access = 0; access < accesses_.size(); ++access) {
      if (!contains(accesses_[access].term->free, loops_[depth])) continue;
      const auto i = static_cast<int64_t>(access);
      (leader < 0 || i == leader ? loop.walkers : loop.lookups).push_back(i);
    }
    return loop;
  }

  /// Whether coordinates that none of these stores can be left out.
  bool covers(const std::vector<int64_t>& walkers) const {
    std::vector<bool> absent(accesses_.size(), false);
    for (const int64_t i : walkers) absent[i] = true;
    size_t leaf = 0;
    return !walkers.empty() && at_fill(body_, absent, leaf);
  }

 private:
  TermPtr body_;
  const std::vector<Access>& accesses_;
  const std::vector<int64_t>& loops_;
  Iterations iterations_;
};

std::vector<std::string> names_of(const std::vector<int64_t>& indices, const IndexSpace& space) {
  std::vector<std::string> names;
  for (const int64_t index : indices) names.push_back(space.names[index]);
  return names;
}

/// Levels that hold places for all elements have no more than this many, or than this many for each entry.
constexpr double kMostPlaces = 1 << 21;
constexpr double kMostPlacesOfEntry = 16;

/// Entries of a result where those of the operands that decide lie evenly.
double even_entries(const Terms& terms, const LogicalQuery& query) {
  double density = 1;
  const std::vector<Access> accesses = accesses_of(query.body, {});
  for (size_t i = 0; i < accesses.size(); ++i) {
    const Access& access = accesses[i];
    const double elements = extent_of(access.term->free, terms.space());
    if (access.leads && elements > 0 && !reads_again(accesses, i))
      density *= std::min(1.0, terms.estimate(access.term) / elements);
  }
  IndexSet output = 0;
  for (const int64_t index : query.output) output |= only(index);
  const double reduced = extent_of(query.body->free & ~output, terms.space());
  return extent_of(output, terms.space()) * -std::expm1(reduced * std::log1p(-density));
}

std::vector<LevelFormat> result_formats(const Terms& terms, const LogicalQuery& query,
                                        const std::vector<int64_t>& loops, FormatCutoffs cutoffs) {
  Dims shape;
  std::vector<double> entries;
  IndexSet prefix = 0;
  const StatisticsPtr body = terms.statistics(query.body);
  for (const int64_t index : query.output) {
    shape.push_back(terms.space().sizes[index]);
    prefix |= only(index);
    const StatisticsPtr projected = terms.estimator().aggregate(body, prefix, terms.space());
    entries.push_back(terms.estimate(projected) * extent_of(prefix & ~query.body->free, terms.space()));
  }
  double most = kMostPlaces;
  if (extent_of(prefix, terms.space()) > kMostPlaces) {
    // Of a bound that the largest degrees alone make, places would be many more than entries.
    const double bound = entries.back();
    most = std::max(most, kMostPlacesOfEntry * std::sqrt(bound * std::min(bound, even_entries(terms, query))));
  }
  cutoffs.largest_dense = std::min(cutoffs.largest_dense, most);
  return choose_formats(shape, entries, names_of(query.output, terms.space()), names_of(loops, terms.space()), cutoffs);
}

PlannedAccess planned_access(const Access& access, const std::vector<int64_t>& loops) {
  PlannedAccess planned{.tensor = access.term->tensor};
  for (const int64_t loop : loops) {
    if (!contains(access.term->free, loop)) continue;
    planned.indices.push_back(loop);
    std::vector<int64_t> axes;
    for (size_t axis = 0; axis < access.term->indices.size(); ++axis) {
      if (access.term->indices[axis] == loop) axes.push_back(static_cast<int64_t>(axis));
    }
    planned.axes.push_back(axes.front());
    planned.diagonal.push_back(std::move(axes));
  }
  planned.transposed = planned.indices != access.indices;
  return planned;
}

/// Whether a query maps the values of one tensor, or result, of the same indices.
bool maps_values(const LogicalQuery& query, const std::vector<Access>& accesses) {
  if (query.op || query.output.empty() || accesses.size() != 1) return false;
  std::vector<int64_t> read = accesses.front().term->indices, written = query.output;
  std::ranges::sort(read);
  std::ranges::sort(written);
  return read == written;
}

/// The leaves of a body that read results of queries between, in this order of indices; their permutations by name.
TermPtr reordered(const Terms& terms, TermPtr body, const std::vector<Access>& accesses,
                  const std::vector<int64_t>& loops, const std::map<std::string, size_t>& between,
                  std::map<std::string, std::vector<size_t>>& wanted) {
  for (const Access& access : accesses) {
    if (!between.contains(access.term->tensor)) continue;
    std::vector<size_t> permutation;
    std::vector<int64_t> indices;
    for (const int64_t loop : loops) {
      const auto at = std::ranges::find(access.term->indices, loop);
      if (at == access.term->indices.end()) continue;
      permutation.push_back(static_cast<size_t>(at - access.term->indices.begin()));
      indices.push_back(loop);
    }
    wanted[access.term->tensor] = permutation;
    const TermPtr leaf = terms.input(access.term->tensor, indices, access.term->fill, terms.statistics(access.term),
                                     access.term->origins);
    body = terms.replaced(body, access.term, leaf);
  }
  return body;
}

/// Whether what is reduced out of order has more positions than 64 bits count: the elements below the outermost loops
/// that are the output's first indices.
bool exceeds_positions(const Terms& terms, const std::vector<int64_t>& output, const std::vector<int64_t>& loops) {
  constexpr double kMostPositions = 4e18;
  double positions = 1;
  bool in_order = true;
  for (size_t i = 0; i < output.size(); ++i) {
    in_order = in_order && loops[i] == output[i];
    if (!in_order) positions *= static_cast<double>(terms.space().sizes[output[i]]);
  }
  return positions > kMostPositions;
}

/// An order is chosen by the time that it takes where it costs this much, and another one this much less.
constexpr double kLeastCost = 1e6;
constexpr double kTimesFaster = 1.4;

/// The order that costs least, or the fastest one where that pays.
LoopOrder chosen_order(const Terms& terms, const LogicalQuery& query, const std::vector<Access>& accesses,
                       IndexSet loops, int64_t most_loops) {
  LoopOrder order = cheapest_order(terms, query.body, accesses, loops, most_loops);
  const LoopCost time{query.output};
  const double taken = count_order(terms, query.body, accesses, order.loops, time).cost;
  if (std::max(taken, order.cost) < kLeastCost) return order;
  const LoopOrder fastest = cheapest_order(terms, query.body, accesses, loops, most_loops, time);
  if (kTimesFaster * fastest.cost > taken) return order;
  order = count_order(terms, query.body, accesses, fastest.loops);
  order.optimal = false;
  return order;
}

/// The order that is chosen, or the output's indices first where that one has no room for its result.
LoopOrder order_of(const Terms& terms, const LogicalQuery& query, const StoredTensors& stored, int64_t most_loops) {
  IndexSet loops = query.body->free;
  for (const int64_t index : query.output) loops |= only(index);
  const std::vector<Access> accesses = accesses_of(query.body, stored);
  LoopOrder order = chosen_order(terms, query, accesses, loops, most_loops);
  if (!exceeds_positions(terms, query.output, order.loops)) return order;
  std::vector<int64_t> in_order = query.output;
  for (const int64_t loop : order.loops) {
    if (std::ranges::find(query.output, loop) == query.output.end()) in_order.push_back(loop);
  }
  order = count_order(terms, query.body, accesses, in_order);
  order.optimal = false;
  return order;
}

PhysicalQuery plan_kernel(const Terms& terms, LogicalQuery& query, const StoredTensors& stored,
                          const std::map<std::string, size_t>& between,
                          std::map<std::string, std::vector<size_t>>& wanted, const PhysicalOptions& options) {
  PhysicalQuery physical{.name = query.name};
  const LoopOrder order = order_of(terms, query, stored, options.most_loops);
  physical.loops = order.loops;
  physical.iterations = order.iterations;
  physical.cost = order.cost;
  physical.optimal_order = order.optimal;
  const std::vector<Access> read = accesses_of(query.body, stored);
  const bool maps = maps_values(query, read);
  query.body = reordered(terms, query.body, read, maps ? query.output : order.loops, between, wanted);
  const std::vector<Access> accesses = accesses_of(query.body, stored);
  physical.maps_values = maps && accesses.front().term->indices == query.output;
  for (const size_t i : order.transposed) {
    const std::string& tensor = accesses[i].term->tensor;
    if (std::ranges::find(physical.transposed, tensor) == physical.transposed.end()) {
      physical.transposed.push_back(tensor);
    }
  }
  physical.output = query.output;
  const auto given = options.formats.find(query.name);
  physical.formats = given != options.formats.end() && given->second.size() == query.output.size()
                         ? given->second
                         : result_formats(terms, query, physical.loops, options.cutoffs);
  for (const Access& access : accesses) physical.accesses.push_back(planned_access(access, physical.loops));
  Merge merge(terms, query.body, accesses, physical.loops);
  for (size_t depth = 0; depth < physical.loops.size(); ++depth) {
    Loop loop = merge.of(depth);
    for (size_t i = 0; i < accesses.size(); ++i) {
      if (!contains(accesses[i].term->free, physical.loops[depth])) continue;
      const bool walks = std::ranges::find(loop.walkers, static_cast<int64_t>(i)) != loop.walkers.end();
      physical.accesses[i].protocols.push_back(walks ? Protocol::kWalk : Protocol::kLookup);
    }
    if (!merge.covers(loop.walkers)) {
      // Every coordinate counts: all operands are looked up over the whole range.
      loop.lookups.insert(loop.lookups.end(), loop.walkers.begin(), loop.walkers.end());
      std::ranges::sort(loop.lookups);
      loop.walkers.clear();
    }
    physical.walks.push_back(std::move(loop));
  }
  return physical;
}

int64_t add_body(const TermPtr& term, Kernel& kernel, int64_t& operand) {
  BodyNode node;
  if (term->is(Kind::kLiteral)) {
    node.literal = term->fill;
  } else if (term->is(Kind::kInput)) {
    node.kind = BodyNode::Kind::kOperand;
    node.operand = operand++;
  } else {
    node.kind = BodyNode::Kind::kMap;
    node.op = term->op;
    for (const TermPtr& child : term->children) node.children.push_back(add_body(child, kernel, operand));
  }
  kernel.body.push_back(std::move(node));
  return static_cast<int64_t>(kernel.body.size()) - 1;
}

}  // namespace

std::vector<LevelFormat> choose_formats(const Dims& shape, const std::vector<double>& entries_of_prefix,
                                        const std::vector<std::string>& output_order,
                                        const std::vector<std::string>& loop_order, const FormatCutoffs& cutoffs) {
  JOINSUM_USER_CHECK(shape.size() == output_order.size() && entries_of_prefix.size() == shape.size(),
                     "choose_formats: lists differ in length: shape=", shape.size(),
                     ", nnz_of_prefix=", entries_of_prefix.size(), ", output_order=", output_order.size());
  std::vector<LevelFormat> formats;
  double outer = 1, elements = 1;
  bool sequential = true;
  for (size_t d = 0; d < shape.size(); ++d) {
    const auto size = static_cast<double>(shape[d]);
    const double density = outer == 0 || size == 0 ? 0 : entries_of_prefix[d] / outer / size;
    elements *= size;
    sequential = sequential && d < loop_order.size() && output_order[d] == loop_order[d];
    if (density > cutoffs.dense && elements <= cutoffs.largest_dense) {
      formats.push_back(LevelFormat::kDense);
    } else if (density > cutoffs.bytemap && elements <= cutoffs.largest_dense) {
      formats.push_back(LevelFormat::kBytemap);
    } else {
      formats.push_back(sequential ? LevelFormat::kSortedList : LevelFormat::kHash);
    }
    outer = entries_of_prefix[d];
  }
  return formats;
}

std::vector<Access> accesses_of(const TermPtr& body, const StoredTensors& stored) {
  std::vector<Access> found;
  collect_accesses(body, stored, true, found);
  return found;
}

std::vector<PhysicalQuery> plan_kernels(QueryPlan& plan, EstimatorPtr estimator, const StoredTensors& stored,
                                        const PhysicalOptions& options) {
  const Terms terms(std::move(estimator), plan.space);
  std::map<std::string, size_t> between;
  for (size_t i = 0; i + 1 < plan.queries.size(); ++i) between[plan.queries[i].name] = i;
  std::map<std::string, std::vector<size_t>> wanted;
  std::vector<PhysicalQuery> kernels(plan.queries.size());
  for (size_t i = plan.queries.size(); i-- > 0;) {
    LogicalQuery& query = plan.queries[i];
    if (const auto found = wanted.find(query.name); found != wanted.end()) {
      std::vector<int64_t> output;
      for (const size_t position : found->second) output.push_back(query.output[position]);
      query.output = std::move(output);
    }
    kernels[i] = plan_kernel(terms, query, stored, between, wanted, options);
  }
  return kernels;
}

PhysicalQuery plan_kernel_again(const Terms& terms, const LogicalQuery& query, const StoredTensors& stored,
                                const PhysicalOptions& options) {
  LogicalQuery same = query;
  std::map<std::string, std::vector<size_t>> wanted;
  return plan_kernel(terms, same, stored, {}, wanted, options);
}

Kernel kernel_of_values(const LogicalQuery& logical, DType dtype) {
  Kernel kernel;
  kernel.dtype = dtype;
  kernel.loops.push_back({{}, {0}});
  const TermPtr read = accesses_of(logical.body, {}).front().term;
  kernel.operands.push_back({{0}, {LevelFormat::kDense}, read->fill});
  kernel.required.push_back(false);
  int64_t operand = 0;
  add_body(logical.body, kernel, operand);
  kernel.output = {0};
  kernel.formats = {LevelFormat::kDense};
  kernel.body_fill = logical.body->fill;
  return kernel;
}

Kernel kernel_of(const LogicalQuery& logical, const PhysicalQuery& physical,
                 const std::vector<std::vector<LevelFormat>>& formats_of_operands, DType dtype) {
  Kernel kernel;
  kernel.dtype = dtype;
  const auto loop_of = [&](int64_t index) {
    return static_cast<int64_t>(std::ranges::find(physical.loops, index) - physical.loops.begin());
  };
  kernel.loops = physical.walks;
  std::vector<Access> accesses = accesses_of(logical.body, {});
  for (size_t i = 0; i < accesses.size(); ++i) {
    Operand operand{.formats = formats_of_operands[i], .fill = accesses[i].term->fill};
    for (const int64_t index : physical.accesses[i].indices) operand.loops.push_back(loop_of(index));
    kernel.operands.push_back(std::move(operand));
    std::vector<bool> absent(accesses.size(), false);
    absent[i] = true;
    size_t leaf = 0;
    kernel.required.push_back(at_fill(logical.body, absent, leaf));
  }
  int64_t operand = 0;
  add_body(logical.body, kernel, operand);
  kernel.aggregate = logical.op;
  for (const int64_t index : physical.output) kernel.output.push_back(loop_of(index));
  kernel.formats = physical.formats;
  kernel.body_fill = logical.body->fill;
  order_arguments(kernel);
  return kernel;
}

}  // namespace joinsum::sparse::physical
