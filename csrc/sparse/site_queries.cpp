#include "sparse/site_queries.h"

#include <algorithm>
#include <optional>
#include <set>

#include "sparse/tensor/fills.h"

namespace joinsum::sparse {
namespace {

using operators::Operator;
using program::make_aggregate;
using program::make_input;
using program::make_literal;
using program::make_map;

constexpr const char* kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
constexpr int64_t kMostLetters = 52;
constexpr double kMostElements = 0x1p59;  // torch counts the bytes of all of them, by 63 bits

/// The kernel that reduces partial results of an aggregate by `op`; those of `and` and `or` are truths.
std::string reduction_of(Operator op) {
  switch (op) {
    case Operator::kMultiply:
      return "mul";
    case Operator::kMin:
    case Operator::kAnd:
      return "min";
    case Operator::kMax:
    case Operator::kOr:
      return "max";
    case Operator::kLogAddExp:
      return "logaddexp";
    default:
      return "add";
  }
}

class Writer {
 public:
  Writer(const LogicalQuery& query, const PhysicalQuery& physical, const program::IndexSpace& space)
      : query_(query), physical_(physical), space_(space) {
    IndexSet all = query.body->free;
    for (const auto& indices : {query.output, query.indices}) {
      for (const int64_t index : indices) all |= only(index);
    }
    for (const int64_t index : members_of(all)) letters_.emplace(index, kLetters[letters_.size() % kMostLetters]);
  }

  std::optional<SiteQuery> write() {
    if (static_cast<int64_t>(letters_.size()) > kMostLetters) return std::nullopt;
    double elements = 1;
    for (const int64_t index : query_.output) elements *= static_cast<double>(space_.sizes[index]);
    if (elements > kMostElements) return std::nullopt;
    ExpressionPtr expression = expression_of(query_.body);
    out_.name = query_.name;
    std::vector<std::string> reduced;
    for (const int64_t index : query_.indices) reduced.push_back(std::string(1, letters_.at(index)));
    if (query_.op) expression = make_aggregate(*query_.op, reduced, expression);
    out_.expression = text_of(expression);
    for (const int64_t index : query_.output) out_.output += letters_.at(index);
    out_.entries = query_.entries_of_result;
    out_.iterations = physical_.iterations.empty() ? 1 : physical_.iterations.back();
    out_.dense = std::ranges::all_of(physical_.formats, [](LevelFormat f) { return f == LevelFormat::kDense; });
    for (const auto& [index, letter] : letters_) {
      const bool held = std::ranges::any_of(
          out_.operands, [&](const std::string& each) { return each.find(letter) != std::string::npos; });
      if (!held) out_.extents[letter] = space_.sizes[index];
    }
    divide();
    return out_;
  }

 private:
  ExpressionPtr expression_of(const TermPtr& term) {
    if (term->is(Expression::Kind::kLiteral)) return make_literal(term->fill);
    if (term->is(Expression::Kind::kInput)) return operand(*term);
    std::vector<ExpressionPtr> children;
    for (const TermPtr& child : term->children) children.push_back(expression_of(child));
    return make_map(term->op, std::move(children));
  }

  ExpressionPtr operand(const logical::Term& input) {
    std::string letters;
    std::vector<std::string> names;
    std::vector<std::vector<int64_t>> axes;
    for (size_t axis = 0; axis < input.indices.size(); ++axis) {
      const char letter = letters_.at(input.indices[axis]);
      const size_t before = letters.find(letter);
      if (before != std::string::npos) {
        axes[before].push_back(static_cast<int64_t>(axis));
        continue;
      }
      letters += letter;
      names.emplace_back(1, letter);
      axes.push_back({static_cast<int64_t>(axis)});
    }
    const std::string name = "x" + std::to_string(out_.operands.size());
    out_.diagonals.push_back(axes.size() == input.indices.size() ? std::vector<std::vector<int64_t>>() : axes);
    out_.tensors.push_back(input.tensor);
    out_.operands.push_back(std::move(letters));
    return make_input(name, std::move(names));
  }

  /// Of a sparse result, elements that a part does not store count as nothing in the reduction: they have to be its
  /// neutral element.
  void divide() {
    double count = 1;
    for (const int64_t index : query_.indices) count *= static_cast<double>(space_.sizes[index]);
    out_.fill = query_.body->fill;
    if (!query_.op) return;
    const bool neutral = query_.body->fill == tensor::fill_of_aggregate(space_.dtype, *query_.op, query_.body->fill, 0);
    out_.fill = tensor::fill_of_aggregate(space_.dtype, *query_.op, query_.body->fill, count);
    for (const int64_t index : query_.indices) {
      const char letter = letters_.at(index);
      if (!out_.dense && !neutral) {
        out_.undivided += letter;
      } else if (!out_.extents.contains(letter)) {
        out_.reduce[letter] = reduction_of(*query_.op);
      }
    }
  }

  const LogicalQuery& query_;
  const PhysicalQuery& physical_;
  const program::IndexSpace& space_;
  std::map<int64_t, char> letters_;
  SiteQuery out_;
};

}  // namespace

std::vector<SiteQuery> site_queries(const ProgramPlan& plan) {
  std::vector<SiteQuery> out;
  std::set<std::string> results;
  for (const PlannedQuery& query : plan.queries) {
    for (size_t i = 0; i < query.physical.size(); ++i) {
      const LogicalQuery& logical = query.logical.queries[i];
      if (plan.same_as.contains(logical.name)) continue;
      auto written = Writer(logical, query.physical[i], query.logical.space).write();
      if (!written || written->operands.empty()) return {};
      for (size_t operand = 0; operand < written->tensors.size(); ++operand) {
        std::string& tensor = written->tensors[operand];
        const auto same = plan.same_as.find(tensor);
        if (same != plan.same_as.end()) tensor = same->second;
        if (results.contains(tensor) && !written->diagonals[operand].empty()) return {};
      }
      results.insert(written->name);
      out.push_back(std::move(*written));
    }
  }
  return out;
}

}  // namespace joinsum::sparse
