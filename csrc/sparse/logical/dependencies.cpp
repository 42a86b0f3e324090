#include "sparse/logical/dependencies.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "sparse/statistics/degrees.h"
#include "sparse/tensor/fills.h"

namespace joinsum::sparse::logical {
namespace {

using Kind = Expression::Kind;

/// The inputs below maps where each of them alone, at its fill, puts the term at its own.
void collect_deciding(const TermPtr& term, std::vector<TermPtr>& found) {
  if (term->is(Kind::kInput)) found.push_back(term);
  if (!term->is(Kind::kMap)) return;
  std::vector<double> fills;
  for (const TermPtr& child : term->children) fills.push_back(child->fill);
  for (const size_t i : deciding_children(term->op, fills, term->fill)) collect_deciding(term->children[i], found);
}

/// An index among `bound` that equals another one where both elements are stored, and that one.
std::optional<std::pair<int64_t, int64_t>> equal_indices(const Term& a, const Term& b, const Dependency& dependency,
                                                         const std::vector<int64_t>& bound) {
  const auto agree = [&](int64_t axis) { return a.indices[axis] == b.indices[axis]; };
  if (!std::ranges::all_of(dependency.given, agree)) return std::nullopt;
  for (const int64_t axis : dependency.axes) {
    if (agree(axis)) continue;
    if (std::ranges::find(bound, b.indices[axis]) != bound.end()) return std::pair(b.indices[axis], a.indices[axis]);
    if (std::ranges::find(bound, a.indices[axis]) != bound.end()) return std::pair(a.indices[axis], b.indices[axis]);
  }
  return std::nullopt;
}

std::optional<std::pair<int64_t, int64_t>> equal_indices(const Terms& terms, const Term& aggregate,
                                                         const Dependencies& dependencies) {
  const TermPtr& body = aggregate.child();
  // All other pairs of elements count as the fill: it has to be what the aggregate leaves out.
  const double identity = tensor::fill_of_aggregate(terms.space().dtype, aggregate.op, body->fill, 0);
  if (body->fill != identity) return std::nullopt;
  std::vector<TermPtr> inputs;
  collect_deciding(body, inputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto known = dependencies.find(inputs[i]->tensor);
    if (known == dependencies.end()) continue;
    for (size_t j = i + 1; j < inputs.size(); ++j) {
      if (inputs[j]->tensor != inputs[i]->tensor) continue;
      for (const Dependency& each : known->second) {
        if (const auto found = equal_indices(*inputs[i], *inputs[j], each, aggregate.indices)) return found;
      }
    }
  }
  return std::nullopt;
}

void count_reads(const ExpressionPtr& expression, int64_t times, std::map<std::string, int64_t>& found) {
  if (expression->kind == Kind::kInput) found[expression->tensor] += times;
  const bool squares = expression->kind == Kind::kMap && expression->op == Operator::kSquare;
  for (const ExpressionPtr& child : expression->children) count_reads(child, squares ? 2 : times, found);
}

}  // namespace

std::set<std::string> read_again(const ExpressionPtr& expression) {
  std::map<std::string, int64_t> times;
  count_reads(expression, 1, times);
  std::set<std::string> found;
  for (const auto& [name, count] : times) {
    if (count > 1) found.insert(name);
  }
  return found;
}

std::vector<Dependency> dependencies_of(const InputTensor& tensor) {
  std::vector<Dependency> found;
  if (tensor.entries == nullptr) {
    for (const program::Degree& degree : tensor.degrees) {
      if (degree.count <= 1) found.push_back({degree.axes, degree.given});
    }
    return found;
  }
  if (tensor.shape.size() < 2) return found;
  const std::vector<statistics::AxisDegrees> degrees = statistics::degrees_of(tensor.entries);
  for (int64_t axis = 0; axis < std::ssize(degrees); ++axis) {
    if (degrees[axis].most > 1) continue;
    std::vector<int64_t> others;
    for (int64_t other = 0; other < std::ssize(degrees); ++other) {
      if (other != axis) others.push_back(other);
    }
    found.push_back({others, {axis}});
  }
  return found;
}

TermPtr with_unified_indices(Terms& terms, TermPtr term, const Dependencies& dependencies,
                             std::vector<int64_t>* left_out) {
  if (!term->aggregated || dependencies.empty()) return term;
  while (term->is(Kind::kAggregate)) {
    const auto found = equal_indices(terms, *term, dependencies);
    if (!found) break;
    const auto [gone, stays] = *found;
    std::vector<int64_t> indices = term->indices;
    std::erase(indices, gone);
    TermPtr body = terms.renamed(term->child(), gone, stays);
    // Of `and` and `or` results are truths, also where nothing is left to reduce.
    const bool truths = term->op == Operator::kAnd || term->op == Operator::kOr;
    if (indices.empty() && truths) body = terms.map(term->op, {std::move(body)});
    term = terms.aggregate(term->op, std::move(indices), std::move(body));
    if (left_out != nullptr) left_out->push_back(gone);
  }
  std::vector<TermPtr> children;
  for (const TermPtr& child : term->children) {
    children.push_back(with_unified_indices(terms, child, dependencies, left_out));
  }
  return children == term->children ? term : terms.with_children(*term, std::move(children));
}

}  // namespace joinsum::sparse::logical
