#include "optimizer/contraction_order.h"

#include <algorithm>
#include <array>
#include <bit>
#include <compare>
#include <map>
#include <optional>

#include "einsum/lower.h"
#include "einsum/text.h"
#include "ia/fusion.h"
#include "kernels/table.h"
#include "optimizer/placement/candidates.h"
#include "optimizer/placement/move_prices.h"
#include "tra/lower.h"

namespace joinsum::optimizer {
namespace {

/// A set of operands: bit i stands for operand i.
using Set = uint64_t;

struct Price {
  double cost = 0;
  double flops = 0;
  Price operator+(const Price& other) const { return {cost + other.cost, flops + other.flops}; }
  auto operator<=>(const Price&) const = default;
};

constexpr Price kNever{kForbidden, 0};

/// For each grid axis the label that it divides, by number, or nothing.
using Layout = Dims;

/// In the layout of a result: the label that is divided is folded.
constexpr int64_t kPending = -2;

/// A join as it comes out: of what, and at what price so far.
struct Result {
  const Place* place = nullptr;
  Price price;
  Set left = 0;
  size_t left_result = 0;
  Set right = 0;
  size_t right_result = 0;
};

struct Brought {
  Price price;
  size_t result = 0;
};

/// The join of a set of operands.
struct Value {
  einsum::Labels labels;
  einsum::TensorType type;
  bool given = false;  ///< an operand, which may start anywhere
  std::vector<Result> results;
  bool sorted = false;
  std::map<Layout, std::optional<Brought>> brought;

  double least() const {
    if (given) return 0;
    double least = kForbidden;
    for (const Result& result : results) least = std::min(least, result.price.cost);
    return least;
  }
};

/// What two operands become.
struct Program {
  tra::Plan plan;
  einsum::Labels kept;
  einsum::TensorType type;
  std::vector<RelationType> relations;
};

/// Values by their sets, and what their joins cost.
class Order {
 public:
  Order(const einsum::Einsum& op, const std::vector<einsum::TensorType>& operands, const OrderFor& wanted)
      : op_(op),
        wanted_(wanted),
        places_(wanted.grid),
        prices_(wanted.objective, wanted.cluster),
        extents_(extents_of(op, operands)) {
    labels_ = einsum::labels_of(op.operands);
    for (size_t i = 0; i < operands.size(); ++i) {
      values_[Set{1} << i] = {op.operands[i], operands[i], true, {}, false, {}};
    }
    all_ = (Set{1} << operands.size()) - 1;
  }

  void limit(double cost) { limit_ = cost; }

  /// Compares all orders, or those that join sets with a common label; whether the tries lasted.
  bool compare(Compared compared) {
    all_pairs_ = compared == Compared::kAll;
    const int64_t tries = all_pairs_ ? wanted_.all_tries : wanted_.tries;
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
    const auto best = cheapest(found->second, [&](const Result& result) { return price_at_the_end(*result.place); });
    if (!best) return std::nullopt;
    Sets left;
    for (size_t i = 0; i < op_.operands.size(); ++i) left.push_back(Set{1} << i);
    PricedPath out{{}, best->price.cost, best->price.flops};
    follow(all_, best->result, left, out.path);
    return out;
  }

  /// One order.
  std::optional<PricedPath> of(const einsum::Path& path) {
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

  /// Operands that labels connect.
  Sets components_of_all() const {
    Sets out;
    for (size_t i = 0; i < op_.operands.size(); ++i) {
      Set own = Set{1} << i;
      Sets others;
      for (const Set component : out) {
        bool meets = false;
        for (size_t j = 0; j < i; ++j) {
          meets = meets || ((component >> j & 1) != 0 && share_a_label(op_.operands[i], op_.operands[j]));
        }
        if (meets) {
          own |= component;
        } else {
          others.push_back(component);
        }
      }
      others.push_back(own);
      out = std::move(others);
    }
    return out;
  }

  bool may_join(Set left, Set right, const Sets& components) const {
    const auto a = values_.find(left), b = values_.find(right);
    if (a == values_.end() || b == values_.end()) return false;
    if (a->second.least() + b->second.least() > limit_) return false;
    if (all_pairs_ || share_a_label(a->second.labels, b->second.labels)) return true;
    return std::all_of(components.begin(), components.end(), [&](Set component) {
      return ((component & left) == 0 || (component & left) == component) &&
             ((component & right) == 0 || (component & right) == component);
    });
  }

  /// Labels of `left` and `right` that the result or another operand still needs, in one order for all ways to join.
  einsum::Labels kept_of(Set set, const einsum::Labels& left, const einsum::Labels& right) const {
    if (set == all_) return op_.result;
    einsum::Labels needed = op_.result;
    for (size_t i = 0; i < op_.operands.size(); ++i) {
      if ((set >> i & 1) == 0) needed.insert(needed.end(), op_.operands[i].begin(), op_.operands[i].end());
    }
    return einsum::common(einsum::common(labels_, einsum::labels_of({left, right})), needed);
  }

  // --- joins ---------------------------------------------------------------------------------------------------------

  void join(Set left, Set right) {
    const Set set = left | right;
    const einsum::Labels kept = kept_of(set, values_.at(left).labels, values_.at(right).labels);
    std::optional<Program> program;
    for (const Layout& layout : layouts_of(einsum::labels_of({values_.at(left).labels, values_.at(right).labels}))) {
      const Layout a = projected(layout, values_.at(left).labels);
      const Layout b = projected(layout, values_.at(right).labels);
      const auto from = bring(left, a);
      const auto to = bring(right, b);
      if (!from || !to || from->price.cost + to->price.cost > limit_) continue;
      const Price before = from->price + to->price;
      Price& least = cheapest_.try_emplace({set, division_of(kept, layout)}, kNever).first->second;
      if (least <= before) continue;
      ++tries_;
      if (!program) program = program_of(set, kept, values_.at(left), values_.at(right));
      auto made = run(*program, a, b, values_.at(left).labels, values_.at(right).labels);
      if (!made) continue;
      made->price = made->price + before;
      if (made->price.cost > limit_) continue;
      least = std::min(least, made->price);
      made->left = left;
      made->left_result = from->result;
      made->right = right;
      made->right_result = to->result;
      add(set, *program, std::move(*made));
    }
  }

  /// A division of the work as a result with labels `kept` shows it: results of equal ones lie alike.
  Layout division_of(const einsum::Labels& kept, Layout layout) const {
    for (int64_t& label : layout) {
      if (label != kNothing && !einsum::has(kept, labels_[label])) label = kPending;
    }
    return layout;
  }

  /// Ways to divide a join of these labels among the sites.
  std::vector<Layout> layouts_of(const einsum::Labels& labels) const {
    std::vector<Divisible> dims;
    Dims numbers;
    for (const std::string& label : labels) {
      if (parts_of(label) == 1) continue;
      numbers.push_back(number_of(label));
      dims.push_back({parts_of(label), numbers.back()});
    }
    std::vector<Layout> layouts = divisions(wanted_.grid, dims, wanted_.objective != Objective::kSeconds);
    for (Layout& layout : layouts) {
      for (int64_t& dim : layout) dim = dim == kNothing ? kNothing : numbers[dim];
    }
    return layouts;
  }

  Program program_of(Set set, const einsum::Labels& kept, const Value& left, const Value& right) const {
    const bool last = set == all_;
    einsum::Einsum op{{left.labels, right.labels},
                      kept,
                      last ? op_.join : op_.join.first(),
                      op_.aggregate,
                      last ? op_.extents : einsum::Extents{}};
    const auto node = einsum::make(op, {einsum::make_input("L", left.type), einsum::make_input("R", right.type)});
    Program out;
    out.kept = op.result;
    out.type = node->type();
    out.relations = {relation_of(left), relation_of(right)};
    out.plan = einsum::lower(einsum::Plan::make({{"Z", node, std::nullopt}}),
                             {{"L", out.relations[0]}, {"R", out.relations[1]}});
    return out;
  }

  /// The join on every site's own parts; nothing where the sites cannot run it so.
  std::optional<Result> run(const Program& program, const Layout& left, const Layout& right,
                            const einsum::Labels& left_labels, const einsum::Labels& right_labels) {
    try {
      std::unordered_map<const tra::Node*, ia::NodePtr> made;
      for (const tra::NodePtr& node : program.plan.order()) {
        std::vector<ia::NodePtr> inputs;
        for (const auto& input : node->inputs()) inputs.push_back(made.at(input.get()));
        if (const auto* input = node->as<tra::Input>()) {
          const bool is_left = input->name == "L";
          made[node.get()] = ia::make_input(
              input->name,
              placed(program.relations[is_left ? 0 : 1], is_left ? left : right, is_left ? left_labels : right_labels)
                  ->type);
        } else {
          made[node.get()] = ia::make(tra::local_operation(*node), std::move(inputs));
        }
      }
      const auto plan = ia::Plan::make({{"Z", made.at(program.plan.outputs()[0].node.get()), std::nullopt}});
      const Fusions fusions(plan);
      Result result{places_.of(plan.outputs()[0].node->type()), {}};
      for (const ia::NodePtr& node : plan.order()) {
        const NodeCost cost = node_cost(*node, fusions.of(*node), wanted_.cluster);
        result.price = result.price + Price{value_of(cost, wanted_.objective), static_cast<double>(cost.flops)};
      }
      return result;
    } catch (const PlanError&) {
      return std::nullopt;
    } catch (const KernelError&) {
      return std::nullopt;
    }
  }

  /// Of results that lie alike the cheapest stays.
  void add(Set set, const Program& program, Result result) {
    Value& value = values_[set];
    if (value.results.empty()) {
      value.labels = program.kept;
      value.type = program.type;
    }
    const auto same = std::find_if(value.results.begin(), value.results.end(),
                                   [&](const Result& other) { return other.place == result.place; });
    if (same == value.results.end()) {
      value.results.push_back(std::move(result));
    } else if (result.price < same->price) {
      *same = std::move(result);
    }
  }

  // --- moves ---------------------------------------------------------------------------------------------------------

  /// The cheapest way to have a value in a layout.
  std::optional<Brought> bring(Set set, const Layout& layout) {
    Value& value = values_.at(set);
    if (value.given) return Brought{};
    const auto [known, fresh] = value.brought.try_emplace(layout);
    if (fresh) {
      const Place* target = nullptr;
      known->second = cheapest(value, [&](const Result& result) {
        if (target == nullptr || target->relation != result.place->relation) {
          target = placed(result.place->type.relation, layout, value.labels);
        }
        return prices_(*result.place, *target);
      });
    }
    return known->second;
  }

  /// The result that is cheapest with its move. Once all are there, the cheap ones come first, so that most are
  /// skipped.
  template <class MovePrice>
  std::optional<Brought> cheapest(Value& value, MovePrice move_price) {
    if (!value.sorted) {
      std::stable_sort(value.results.begin(), value.results.end(),
                       [](const Result& a, const Result& b) { return a.price < b.price; });
      value.sorted = true;
    }
    std::optional<Brought> best;
    for (size_t i = 0; i < value.results.size(); ++i) {
      if (best && best->price < value.results[i].price) break;
      ++tries_;
      const Price price = value.results[i].price + Price{move_price(value.results[i]), 0};
      if (price.cost <= limit_ && (!best || price < best->price)) best = Brought{price, i};
    }
    return best;
  }

  double price_at_the_end(const Place& place) {
    if (wanted_.everywhere) return prices_(place, *places_.replicated(place.relation));
    if (!place.type.placement.pending()) return 0;
    const RelationType& relation = place.type.relation;
    std::vector<Divisible> dims;
    for (int64_t d = 0; d < relation.arity(); ++d) dims.push_back({relation.frontier[d], d});
    double least = kForbidden;
    for (const Dims& division : divisions(wanted_.grid, dims, false)) {
      least =
          std::min(least, prices_(place, *places_.placed(place.relation, placement_of(division, relation.frontier))));
    }
    return least;
  }

  /// The steps that made a result.
  void follow(Set set, size_t index, Sets& left, einsum::Path& path) const {
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

  // --- relations -----------------------------------------------------------------------------------------------------

  int64_t number_of(const std::string& label) const { return einsum::axis_of(labels_, label); }

  /// Parts of a label; those that stand twice in a tensor stay whole.
  int64_t parts_of(const std::string& label) const {
    const auto twice = [&](const einsum::Labels& labels) {
      return std::count(labels.begin(), labels.end(), label) > 1;
    };
    if (twice(op_.result) || std::any_of(op_.operands.begin(), op_.operands.end(), twice)) return 1;
    return std::max<int64_t>(1, std::min(wanted_.grid.sites(), extents_.at(label)));
  }

  RelationType relation_of(const Value& value) const {
    Dims frontier;
    std::vector<Axis> axes;
    for (const std::string& label : value.labels) {
      const int64_t parts = parts_of(label);
      if (parts == 1) {
        axes.push_back(Axis::whole(extents_.at(label)));
      } else {
        axes.push_back(Axis::cut(static_cast<int64_t>(frontier.size()), even_cuts(extents_.at(label), parts)));
        frontier.push_back(parts);
      }
    }
    return RelationType::make("contraction_order", value.type.dtype, std::move(frontier), std::move(axes));
  }

  Layout projected(Layout layout, const einsum::Labels& labels) const {
    for (int64_t& label : layout) {
      if (label != kNothing && !einsum::has(labels, labels_[label])) label = kNothing;
    }
    return layout;
  }

  /// A relation whose axes are `labels`, in a layout of them.
  const Place* placed(const RelationType& relation, const Layout& layout, const einsum::Labels& labels) {
    Dims split = layout;
    for (int64_t& label : split) {
      if (label != kNothing) label = relation.axes[einsum::axis_of(labels, labels_[label])].key_dim;
    }
    return places_.placed(places_.number(relation), placement_of(split, relation.frontier));
  }

  const einsum::Einsum& op_;
  const OrderFor& wanted_;
  Places places_;
  MovePrices prices_;
  einsum::Extents extents_;
  einsum::Labels labels_;
  Set all_ = 0;
  double limit_ = kForbidden;
  int64_t tries_ = 0;
  bool all_pairs_ = false;
  std::map<Set, Value> values_;
  std::map<std::pair<Set, Layout>, Price> cheapest_;  ///< of results, by set and division of the work
};

void check(const einsum::Einsum& op) {
  const kernels::Facts& facts = kernels::row_of(op.join.first()).facts;
  JOINSUM_USER_CHECK(
      facts.associative && facts.commutative && op.join.then.empty() &&
          kernels::distributes(op.join, op.aggregate.name, 0) && kernels::distributes(op.join, op.aggregate.name, 1),
      "contraction_order: this join is taken from the left, so there is no order to choose: join=", op.join.text(),
      ", aggregate=", op.aggregate.text());
}

}  // namespace

std::string name_of(Compared compared) {
  static constexpr std::array<const char*, 3> kNames{"all", "connected", "proposed"};
  return kNames[static_cast<size_t>(compared)];
}

PricedPath contraction_order(const einsum::Einsum& op, const std::vector<einsum::TensorType>& operands,
                             const OrderFor& wanted, const std::vector<einsum::Path>& proposals) {
  check(op);
  const auto cheaper = [](const PricedPath& a, const PricedPath& b) {
    return Price{a.cost, a.flops} < Price{b.cost, b.flops};
  };
  std::optional<PricedPath> best;
  for (const einsum::Path& path : proposals) {
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
