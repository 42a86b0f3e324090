#include <algorithm>

#include "optimizer/rules/families.h"

namespace joinsum::optimizer {
namespace {

using ia::NodePtr;
using kernels::Form;
using kernels::Kernel;
using kernels::Row;

constexpr const char* kSource = "joinsum";

// --- contractions ----------------------------------------------------------------------------------------------------

/// An elementwise product by its facts.
bool multiplies(const Kernel& kernel) {
  const Row& row = kernels::row_of(kernel);
  return row.form == Form::kElementwise && !row.user && row.operands == 2 && row.facts.associative &&
         row.facts.commutative && row.facts.linear;
}

/// A sum by its facts.
bool adds(const Kernel& kernel) {
  const kernels::Facts& facts = kernels::row_of(kernel).facts;
  return facts.associative && facts.commutative && facts.identity == 0.0;
}

/// A kernel of one operand that sums some axes and keeps the others, each once.
bool sums_axes(const Kernel& kernel) {
  const Row& row = kernels::row_of(kernel);
  if (row.form != Form::kLabelled || row.user || row.operands != 1 || !row.facts.linear) return false;
  const std::string letters = row.labels(kernel).operands[0];
  return std::all_of(letters.begin(), letters.end(),
                     [&](char letter) { return std::count(letters.begin(), letters.end(), letter) == 1; });
}

/// `q`, or `q | f` with f a sum over axes, as one contraction; nothing if it is none.
std::optional<Kernel> as_contraction(const Kernel& kernel, int64_t rank) {
  if (!multiplies(kernel) || rank > 20) return std::nullopt;
  kernels::Labels labels;
  if (kernel.then.empty()) {
    for (int64_t a = 0; a < rank; ++a) labels.result += static_cast<char>('a' + a);
    labels.operands = {labels.result, labels.result};
    return Kernel{"contract", {labels.text()}};
  }
  if (!sums_axes(kernel.then[0])) return std::nullopt;
  const kernels::Labels sum = kernels::row_of(kernel.then[0]).labels(kernel.then[0]);
  Kernel out{"contract", {kernels::Labels{{sum.operands[0], sum.operands[0]}, sum.result}.text()}};
  out.then.assign(kernel.then.begin() + 1, kernel.then.end());
  return out;
}

bool same_shapes(const NodePtr& join) {
  const auto left = join->input(0)->type().relation.uniform_shape();
  const auto right = join->input(1)->type().relation.uniform_shape();
  return left && left == right;
}

Rule contract() {
  return {"P-1",
          "A[g, add](J[mul | f](L, R)) = A[g, add](J[contract](L, R))",
          "the join's kernel is an elementwise product of arrays of one shape, f sums axes (or is not there): the join "
          "and the sum then run as one contraction, and the products are never stored",
          kSource,
          aggregate(join()),
          [](const Match& m) {
            const Kernel& fold = aggregate_at(m[0]).kernel;
            return adds(fold) && same_shapes(m[1]) &&
                   as_contraction(join_at(m[1]).kernel, m[1]->input(0)->type().relation.rank()).has_value();
          },
          [](const Match& m) -> std::vector<NodePtr> {
            ia::LocalJoin op = join_at(m[1]);
            op.kernel = *as_contraction(op.kernel, m[1]->input(0)->type().relation.rank());
            return {ia::make(aggregate_at(m[0]), {ia::make(std::move(op), m[1]->inputs())})};
          }};
}

// --- folds of what is folded already ---------------------------------------------------------------------------------

/// Whether every group is one tuple, under its own key.
bool folds_nothing(const NodePtr& node) {
  const RelationType& input = node->input(0)->type().relation;
  const ia::LocalAggregate& op = aggregate_at(node);
  return op.group_by == all_dims(input.arity()) && input.unique() && kernels::row_of(op.kernel).form != Form::kConcat;
}

NodePtr without_fold(const NodePtr& node) {
  const NodePtr& input = node->input(0);
  if (aggregate_at(node).kernel.then.empty()) return input;
  Kernel then{"id", {}};
  for (const Kernel& next : aggregate_at(node).kernel.then) then = then.followed_by(next);
  return ia::make(ia::LocalMap{1, KeyMap::identity(input->type().relation.arity()), then}, {input});
}

/// Whether the fold below the move is what the aggregate folds again.
bool settles_its_fold(const Match& m) {
  const auto fold = placement_of(m[1]->input(0)).pending_kernel();
  return fold && *fold == aggregate_at(m[0]).kernel.name && folds_nothing(m[0]);
}

Rule reduce_scatter() {
  return {"P-2",
          "A[all, ⊕](S R) = S R",
          "R is pending under ⊕: the shuffle of partials folds them, as a reduce-scatter",
          kSource,
          aggregate(shuffle()),
          settles_its_fold,
          [](const Match& m) -> std::vector<NodePtr> { return {without_fold(m[0])}; }};
}

Rule all_reduce() {
  return {"P-3",
          "A[all, ⊕](B R) = B R",
          "R is pending under ⊕: the broadcast of partials folds them, as an all-reduce",
          kSource,
          aggregate(broadcast()),
          settles_its_fold,
          [](const Match& m) -> std::vector<NodePtr> { return {without_fold(m[0])}; }};
}

Rule fold_of_nothing() {
  return {"P-4",
          "A[all, ⊕ | f] R = M[id, f] R",
          "keys are unique, so every group is one tuple",
          kSource,
          aggregate(),
          [](const Match& m) { return folds_nothing(m[0]) && !placement_of(m[1]).pending(); },
          [](const Match& m) -> std::vector<NodePtr> { return {without_fold(m[0])}; }};
}

// --- moves -----------------------------------------------------------------------------------------------------------

Rule split_broadcast() {
  return {
      "P-5",
      "B[a] R = B[a without x](B[x] R)",
      "a has several axes: slow and fast links by themselves",
      kSource,
      broadcast(),
      [](const Match& m) { return m[0]->as<ia::Broadcast>()->axes.size() > 1 && placement_of(m[1]).grid() != nullptr; },
      [](const Match& m) -> std::vector<NodePtr> {
        const Dims axes = m[0]->as<ia::Broadcast>()->axes;
        std::vector<NodePtr> out;
        for (const int64_t first : axes) {
          Dims rest = axes;
          std::erase(rest, first);
          try {
            out.push_back(ia::make(ia::Broadcast{rest}, {ia::make(ia::Broadcast{{first}}, {m[1]})}));
          } catch (const PlanError&) {  // the faster of two axes that split one dimension goes first
          }
        }
        return out;
      }};
}

/// Axes on which two placements differ.
Dims differing_axes(const ia::GridPlacement& a, const ia::GridPlacement& b) {
  Dims out;
  for (size_t i = 0; i < a.states.size(); ++i) {
    if (!(a.states[i] == b.states[i])) out.push_back(static_cast<int64_t>(i));
  }
  return out;
}

Rule split_shuffle() {
  return {"P-6",
          "S[t] R = S[t](S[t on axis x] R)",
          "the placement changes on several axes: slow and fast links by themselves",
          kSource,
          shuffle(),
          [](const Match& m) {
            const auto* now = placement_of(m[1]).grid();
            return now != nullptr && differing_axes(*now, target_at(m[0])).size() > 1;
          },
          [](const Match& m) -> std::vector<NodePtr> {
            std::vector<NodePtr> out;
            const ia::GridPlacement& now = *placement_of(m[1]).grid();
            for (const int64_t axis : differing_axes(now, target_at(m[0]))) {
              ia::GridPlacement first = now;
              first.states[axis] = target_at(m[0]).states[axis];
              try {
                out.push_back(ia::make(m[0]->operation(), {ia::make(ia::Shuffle{first}, {m[1]})}));
              } catch (const PlanError&) {  // one dimension would be split on two domains
              }
            }
            return out;
          }};
}

/// Bytes of one element before and after a map.
std::pair<int64_t, int64_t> widths(const NodePtr& map_node) {
  return {byte_size(map_node->input(0)->type().relation.dtype), byte_size(map_node->type().relation.dtype)};
}

Rule narrow_before_move() {
  return {"P-7a",
          "M[id, f](S R) = S(M[id, f] R), and with B",
          "f makes elements narrower: they are moved so",
          kSource,
          map(move()),
          [](const Match& m) { return keeps_keys(m[0]) && widths(m[0]).second < widths(m[0]).first; },
          [](const Match& m) -> std::vector<NodePtr> {
            return {moved_like(m[1], ia::make(map_at(m[0]), {m[1]->input(0)}))};
          }};
}

Rule widen_after_move() {
  return {"P-7b",
          "S(M[id, f] R) = M[id, f](S R), and with B",
          "f makes elements wider: they are moved before it",
          kSource,
          move(map()),
          [](const Match& m) { return keeps_keys(m[1]) && widths(m[1]).second > widths(m[1]).first; },
          [](const Match& m) -> std::vector<NodePtr> {
            return {ia::make(map_at(m[1]), {moved_like(m[0], m[1]->input(0))})};
          }};
}

Rule move_of_nothing() {
  return {"P-8",
          "S[t] R = R, and with B",
          "R is placed so already",
          kSource,
          move(),
          [](const Match& m) { return placement_of(m[0]) == placement_of(m[1]); },
          [](const Match& m) -> std::vector<NodePtr> { return {m[1]}; }};
}

Rule map_of_nothing() {
  return {"P-9",
          "M[id, id] R = R",
          "always",
          kSource,
          map(),
          [](const Match& m) { return keeps_keys(m[0]) && map_at(m[0]).array_map == Kernel{"id", {}}; },
          [](const Match& m) -> std::vector<NodePtr> { return {m[1]}; }};
}

}  // namespace

std::vector<Rule> physical_rules() {
  return {contract(),      reduce_scatter(),     all_reduce(),       fold_of_nothing(), split_broadcast(),
          split_shuffle(), narrow_before_move(), widen_after_move(), move_of_nothing(), map_of_nothing()};
}

}  // namespace joinsum::optimizer
