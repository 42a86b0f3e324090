#include "sparse/logical/splitting.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>

namespace joinsum::sparse::logical {
namespace {

using Kind = Expression::Kind;

int64_t operands_of(const TermPtr& term) {
  if (term->is(Kind::kInput)) return 1;
  int64_t count = 0;
  for (const TermPtr& child : term->children) count += operands_of(child);
  return count;
}

int64_t occurrences_in(const TermPtr& term) {
  if (term->is(Kind::kInput)) return std::popcount(term->free);
  int64_t count = 0;
  for (const TermPtr& child : term->children) count += occurrences_in(child);
  return count;
}

/// Splits one query.
class Splitting {
 public:
  Splitting(Terms& terms, const KernelSize& most, const LogicalCost& cost,
            const std::function<std::string()>& next_name)
      : terms_(terms), most_(most), cost_(cost), next_name_(next_name) {}

  /// Those that come before it, and what is left of it, last.
  std::vector<LogicalQuery> apply(LogicalQuery query) {
    std::vector<LogicalQuery> queries;
    while (!fits(query.body)) {
      best_ = {};
      find(query.body, true);
      if (best_.part == nullptr) break;
      const double entries = entries_of(best_.part);
      LogicalQuery part{.name = next_name_(), .body = best_.part, .output = members_of(best_.part->free)};
      part.entries_of_result = part.entries_of_body = entries;
      part.cost = (cost_.per_result + cost_.per_element) * entries;
      const TermPtr result =
          terms_.input(part.name, part.output, best_.part->fill, terms_.statistics(best_.part), best_.part->origins);
      std::vector<TermPtr> left = best_.left;
      left.insert(left.begin() + best_.place, result);
      const TermPtr whole = best_.left.empty() ? result : terms_.with_children(*best_.node, std::move(left));
      query.body = terms_.replaced(query.body, best_.node, whole);
      queries.push_back(std::move(part));
    }
    queries.push_back(std::move(query));
    return queries;
  }

 private:
  /// A part that may become a query: of `node`, all but the children that are `left`, among which it has a place.
  struct Part {
    TermPtr part = {};
    TermPtr node = {};
    std::vector<TermPtr> left = {};
    int64_t place = 0;
    bool is_joined = false;  ///< whether its factors share an index
    double entries = 0;
  };

  bool fits(const TermPtr& term) const {
    return operands_of(term) <= most_.operands && occurrences_in(term) - std::popcount(term->free) <= most_.repeated;
  }

  void find(const TermPtr& node, bool is_whole) {
    if (!node->is(Kind::kMap)) return;
    const bool is_divisible = is_associative(node->op) && is_commutative(node->op) && node->children.size() > 2;
    if (is_divisible && !has_opposite_infinities(*node)) find_pairs(node);
    const int64_t operands = operands_of(node);
    if (!is_whole && operands > 1 && (operands == 2 || fits(node))) {
      const double entries = entries_of(node);
      if (is_better(true, entries)) best_ = {.part = node, .node = node, .is_joined = true, .entries = entries};
    }
    for (const TermPtr& child : node->children) find(child, false);
  }

  /// Of these a sum's fill depends on the order.
  static bool has_opposite_infinities(const Term& term) {
    const auto has = [&](double fill) {
      return std::ranges::any_of(term.children, [&](const TermPtr& child) { return child->fill == fill; });
    };
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    return has(kInfinity) && has(-kInfinity);
  }

  void find_pairs(const TermPtr& node) {
    const std::vector<TermPtr>& children = node->children;
    for (size_t i = 0; i < children.size(); ++i) {
      for (size_t j = i + 1; j < children.size(); ++j) {
        const bool is_joined = (children[i]->free & children[j]->free) != 0;
        if (best_.part != nullptr && best_.is_joined && !is_joined) continue;
        const double entries = entries_of(node->op, children[i], children[j]);
        if (is_better(is_joined, entries)) best_ = grown(node, i, j, is_joined, entries);
      }
    }
  }

  /// Two children of a node, and all others that bring no further index, as far as they fit.
  Part grown(const TermPtr& node, size_t first, size_t second, bool is_joined, double entries) const {
    std::vector<TermPtr> chosen = {node->children[first], node->children[second]};
    const IndexSet held = chosen[0]->free | chosen[1]->free;
    Part part{.node = node, .place = static_cast<int64_t>(first), .is_joined = is_joined, .entries = entries};
    for (size_t i = 0; i < node->children.size(); ++i) {
      const TermPtr& child = node->children[i];
      if (i == first || i == second) continue;
      bool joins = child->free != 0 && (child->free & ~held) == 0;
      if (joins) {
        chosen.push_back(child);
        joins = fits(terms_.map(node->op, chosen));
        if (!joins) chosen.pop_back();
        if (joins && i < first) --part.place;
      }
      if (!joins) part.left.push_back(child);
    }
    part.part = terms_.map(node->op, std::move(chosen));
    return part;
  }

  bool is_better(bool is_joined, double entries) const {
    if (best_.part == nullptr) return true;
    return is_joined != best_.is_joined ? is_joined : entries < best_.entries;
  }

  double entries_of(const TermPtr& term) const { return terms_.estimate(term); }

  /// Of two factors; each pair is estimated once.
  double entries_of(Operator op, const TermPtr& a, const TermPtr& b) {
    const auto [found, is_new] = known_.emplace(std::tuple(op, a, b), 0);
    if (is_new) found->second = entries_of(terms_.map(op, {a, b}));
    return found->second;
  }

  Terms& terms_;
  const KernelSize& most_;
  const LogicalCost& cost_;
  const std::function<std::string()>& next_name_;
  Part best_;
  std::map<std::tuple<Operator, TermPtr, TermPtr>, double> known_;
};

}  // namespace

std::vector<LogicalQuery> split_queries(Terms& terms, std::vector<LogicalQuery> queries, const KernelSize& most,
                                        const LogicalCost& cost, const std::function<std::string()>& next_name) {
  std::vector<LogicalQuery> all;
  for (LogicalQuery& query : queries) {
    for (LogicalQuery& each : Splitting(terms, most, cost, next_name).apply(std::move(query))) {
      all.push_back(std::move(each));
    }
  }
  return all;
}

}  // namespace joinsum::sparse::logical
