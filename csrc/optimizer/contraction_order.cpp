#include "optimizer/contraction_order.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <optional>

#include "base/disjoint_sets.h"
#include "einsum/text.h"
#include "kernels/table/table.h"
#include "optimizer/pairwise_joins.h"

namespace joinsum::optimizer {
namespace {

/// A set of operands: bit i stands for operand i.
using Set = uint64_t;

/// The most tries where sets of operands without a common label are joined.
constexpr int64_t kTriesOfAll = 300'000;

constexpr Price kNever{min_sum::kForbidden, 0};

/// In the division of a result: the axis divides a label that is aggregated.
constexpr int64_t kPending = -2;

/// The result of a join: its operands, and the price so far.
struct Result {
  const layouts::Layout* layout = nullptr;
  Price price;
  Set left = 0;
  size_t left_result = 0;
  Set right = 0;
  size_t right_result = 0;
};

/// A result that has been moved.
struct Fetched {
  Price price;
  size_t result = 0;
};

/// The join of a set of operands.
struct Value {
  LabelledTensor tensor;
  bool given = false;  ///< an operand, which may start anywhere
  std::vector<Result> results;
  bool sorted = false;
  std::map<Division, std::optional<Fetched>> fetched;  ///< by layout

  double least() const {
    if (given) return 0;
    double least = min_sum::kForbidden;
    for (const Result& result : results) least = std::min(least, result.price.cost);
    return least;
  }
};

/// Values by their sets, and what their joins cost.
class Order {
 public:
  Order(const einsum::Einsum& op, const std::vector<einsum::TensorType>& operands, const OrderFor& wanted)
      : op_(op), wanted_(wanted), joins_(op, operands, wanted) {
    for (size_t i = 0; i < operands.size(); ++i) {
      values_[Set{1} << i] = {{op.operands[i], operands[i]}, true, {}, false, {}};
    }
    all_ = (Set{1} << operands.size()) - 1;
  }

  void limit(double cost) { limit_ = cost; }

  /// Compares all orders, or those that join sets with a common label; whether the tries lasted.
  bool compare(Compared compared) {
    all_pairs_ = compared == Compared::kAll;
    const int64_t tries = all_pairs_ ? std::min(wanted_.tries, kTriesOfAll) : wanted_.tries;
    const Sets components = components_of_all();
    for (Set set = 1; set <= all_; ++set) {
      if (std::popcount(set) < 2) continue;
      const Set lowest = set & -set;
      for (Set left = (set - 1) & set; left != 0; left = (left - 1) & set) {
        if ((left & lowest) != 0 && may_join(left, set ^ left, components)) join(left, set ^ left);
        if (tries_ > tries) return false;
      }
    }
    return true;
  }

  /// The best of the orders that were compared; nothing where none is within the limit.
  std::optional<PricedPath> best() {
    const auto found = values_.find(all_);
    if (found == values_.end()) return std::nullopt;
    const auto best =
        cheapest(found->second, [&](const Result& result) { return joins_.price_of_result(*result.layout); });
    if (!best) return std::nullopt;
    Sets left;
    for (size_t i = 0; i < op_.operands.size(); ++i) left.push_back(Set{1} << i);
    PricedPath out{{}, best->price.cost, best->price.flops};
    follow(all_, best->result, left, out.path);
    return out;
  }

  /// One order.
  std::optional<PricedPath> of(const einsum::transforms::Path& path) {
    std::vector<Set> left;
    for (size_t i = 0; i < op_.operands.size(); ++i) left.push_back(Set{1} << i);
    for (const auto& [first, second] : path) {
      const auto count = static_cast<int64_t>(left.size());
      JOINSUM_USER_CHECK(first >= 0 && second >= 0 && first < count && second < count && first != second,
                         "contraction_order: a step joins two of the operands that are left: step=(", first, ", ",
                         second, "), left=", count);
      const Set a = left[first], b = left[second];
      left.erase(left.begin() + std::max(first, second));
      left.erase(left.begin() + std::min(first, second));
      left.push_back(a | b);
      join(a, b);
    }
    JOINSUM_USER_CHECK(left.size() == 1, "contraction_order: a path joins all operands: left=", left.size());
    return best();
  }

 private:
  using Sets = std::vector<Set>;

  // --- sets ----------------------------------------------------------------------------------------------------------

  static bool share_a_label(const einsum::Labels& a, const einsum::Labels& b) { return !einsum::common(a, b).empty(); }

  /// Sets of operands that labels connect.
  Sets components_of_all() const {
    const auto count = static_cast<int64_t>(op_.operands.size());
    DisjointSets connected(count);
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t j = 0; j < i; ++j) {
        if (share_a_label(op_.operands[i], op_.operands[j])) connected.unite(i, j);
      }
    }
    std::map<int64_t, Set> components;
    for (int64_t i = 0; i < count; ++i) components[connected.find(i)] |= Set{1} << i;
    Sets out;
    for (const auto& [first, component] : components) out.push_back(component);
    return out;
  }

  bool may_join(Set left, Set right, const Sets& components) const {
    const auto a = values_.find(left), b = values_.find(right);
    if (a == values_.end() || b == values_.end()) return false;
    if (a->second.least() + b->second.least() > limit_) return false;
    if (all_pairs_ || share_a_label(a->second.tensor.labels, b->second.tensor.labels)) return true;
    return std::all_of(components.begin(), components.end(), [&](Set component) {
      return ((component & left) == 0 || (component & left) == component) &&
             ((component & right) == 0 || (component & right) == component);
    });
  }

  /// Labels of `left` and `right` that the result or another operand still needs, in one order however the set is
  /// joined.
  einsum::Labels needed_labels(Set set, const einsum::Labels& left, const einsum::Labels& right) const {
    if (set == all_) return op_.result;
    einsum::Labels needed = op_.result;
    for (size_t i = 0; i < op_.operands.size(); ++i) {
      if ((set >> i & 1) == 0) needed.insert(needed.end(), op_.operands[i].begin(), op_.operands[i].end());
    }
    return einsum::common(einsum::common(joins_.labels(), einsum::labels_of({left, right})), needed);
  }

  // --- joins ---------------------------------------------------------------------------------------------------------

  void join(Set left, Set right) {
    const Set set = left | right;
    const LabelledTensor& a = values_.at(left).tensor;
    const LabelledTensor& b = values_.at(right).tensor;
    const einsum::Labels needed = needed_labels(set, a.labels, b.labels);
    std::optional<JoinProgram> program;
    for (const Division& division : joins_.divisions_of(einsum::labels_of({a.labels, b.labels}))) {
      const auto from = fetch(left, joins_.projected(division, a.labels));
      const auto to = fetch(right, joins_.projected(division, b.labels));
      if (!from || !to || from->price.cost + to->price.cost > limit_) continue;
      const Price before = from->price + to->price;
      // Results of joins that divide the labels of the result alike have the same layout.
      Price& least = cheapest_.try_emplace({set, joins_.projected(division, needed, kPending)}, kNever).first->second;
      if (least <= before) continue;
      ++tries_;
      if (!program) program = joins_.program_of(a, b, needed, set == all_);
      const auto run = joins_.run(*program, a, b, division);
      if (!run) continue;
      const Price price = run->price + before;
      if (price.cost > limit_) continue;
      least = std::min(least, price);
      add(set, program->result, {run->result, price, left, from->result, right, to->result});
    }
  }

  /// Of results with the same layout the cheapest remains.
  void add(Set set, const LabelledTensor& tensor, Result result) {
    Value& value = values_[set];
    if (value.results.empty()) value.tensor = tensor;
    const auto same = std::find_if(value.results.begin(), value.results.end(),
                                   [&](const Result& other) { return other.layout == result.layout; });
    if (same == value.results.end()) {
      value.results.push_back(std::move(result));
    } else if (result.price < same->price) {
      *same = std::move(result);
    }
  }

  // --- moves ---------------------------------------------------------------------------------------------------------

  /// The cheapest result of a set, moved to a layout.
  std::optional<Fetched> fetch(Set set, const Division& layout) {
    Value& value = values_.at(set);
    if (value.given) return Fetched{};
    const auto [known, fresh] = value.fetched.try_emplace(layout);
    if (fresh) {
      const layouts::Layout* target = nullptr;
      known->second = cheapest(value, [&](const Result& result) {
        if (target == nullptr || target->relation != result.layout->relation) {
          target = joins_.placed(result.layout->type.relation, layout, value.tensor.labels);
        }
        return joins_.move_price(*result.layout, *target);
      });
    }
    return known->second;
  }

  /// The result that is cheapest with its move. Once all are there, the cheap ones come first, so that most are
  /// skipped.
  template <class MovePrice>
  std::optional<Fetched> cheapest(Value& value, MovePrice move_price) {
    if (!value.sorted) {
      std::stable_sort(value.results.begin(), value.results.end(),
                       [](const Result& a, const Result& b) { return a.price < b.price; });
      value.sorted = true;
    }
    std::optional<Fetched> best;
    for (size_t i = 0; i < value.results.size(); ++i) {
      if (best && best->price < value.results[i].price) break;
      ++tries_;
      const Price price = value.results[i].price + Price{move_price(value.results[i]), 0};
      if (price.cost <= limit_ && (!best || price < best->price)) best = Fetched{price, i};
    }
    return best;
  }

  /// The steps that lead to a result.
  void follow(Set set, size_t index, Sets& left, einsum::transforms::Path& path) const {
    const Value& value = values_.at(set);
    if (value.given) return;
    const Result& result = value.results[index];
    follow(result.left, result.left_result, left, path);
    follow(result.right, result.right_result, left, path);
    const auto first = std::find(left.begin(), left.end(), result.left) - left.begin();
    const auto second = std::find(left.begin(), left.end(), result.right) - left.begin();
    path.emplace_back(first, second);
    std::erase_if(left, [&](Set each) { return each == result.left || each == result.right; });
    left.push_back(set);
  }

  const einsum::Einsum& op_;
  const OrderFor& wanted_;
  PairwiseJoins joins_;
  Set all_ = 0;
  double limit_ = min_sum::kForbidden;
  int64_t tries_ = 0;
  bool all_pairs_ = false;
  std::map<Set, Value> values_;
  std::map<std::pair<Set, Division>, Price> cheapest_;  ///< of results, by set and division of the work
};

void check(const einsum::Einsum& op) {
  JOINSUM_USER_CHECK(kernels::table::reorders(op.join, op.aggregate.name),
                     "contraction_order: this join is taken from the left, so there is no order to choose: join=",
                     op.join.text(), ", aggregate=", op.aggregate.text());
}

}  // namespace

std::string name_of(Compared compared) {
  static constexpr std::array<const char*, 3> kNames{"all", "connected", "proposed"};
  return kNames[static_cast<size_t>(compared)];
}

PricedPath contraction_order(const einsum::Einsum& op, const std::vector<einsum::TensorType>& operands,
                             const OrderFor& wanted, const std::vector<einsum::transforms::Path>& proposals) {
  check(op);
  JOINSUM_USER_CHECK(operands.size() < 64,
                     "contraction_order: sets of so many operands are not priced: operands=", operands.size(),
                     ", most=63");
  const auto cheaper = [](const PricedPath& a, const PricedPath& b) {
    return Price{a.cost, a.flops} < Price{b.cost, b.flops};
  };
  std::optional<PricedPath> best;
  for (const einsum::transforms::Path& path : proposals) {
    const auto priced = Order(op, operands, wanted).of(path);
    if (priced && (!best || cheaper(*priced, *best))) best = priced;
  }
  for (const Compared compared : {Compared::kConnected, Compared::kAll}) {
    if (operands.size() > kOrderedExactly) break;
    Order order(op, operands, wanted);
    if (best) order.limit(best->cost);
    if (!order.compare(compared)) break;
    const auto found = order.best();
    if (found && (!best || !cheaper(*best, *found))) best = found;
    if (best) best->compared = compared;
  }
  JOINSUM_USER_CHECK(operands.size() <= kOrderedExactly || !proposals.empty(),
                     "contraction_order: so many operands need a proposal: operands=", operands.size());
  JOINSUM_USER_CHECK(best.has_value(),
                     "contraction_order: no placement runs the joins: einsum=", einsum::operation_text(op));
  return *best;
}

}  // namespace joinsum::optimizer
