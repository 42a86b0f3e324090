#include <algorithm>

#include "optimizer/rules/families.h"

namespace joinsum::optimizer::rules {
namespace {

using ia::NodePtr;
using kernels::table::Form;
using kernels::table::Kernel;
using kernels::table::Row;

constexpr const char* kOwn = "joinsum";

/// An elementwise product by its facts.
bool multiplies(const Kernel& kernel) {
  const Row& row = kernels::table::row_of(kernel);
  return row.form == Form::kElementwise && !row.user && row.operands == 2 && row.facts.associative &&
         row.facts.commutative && row.facts.linear;
}

/// A sum by its facts.
bool adds(const Kernel& kernel) {
  const kernels::table::Facts& facts = kernels::table::row_of(kernel).facts;
  return facts.associative && facts.commutative && facts.identity == 0.0;
}

/// A kernel of one operand that sums some axes and keeps the others, each once.
bool sums_axes(const Kernel& kernel) {
  const Row& row = kernels::table::row_of(kernel);
  if (row.form != Form::kLabelled || row.user || row.operands != 1 || !row.facts.linear) return false;
  const std::string letters = row.labels(kernel).operands[0];
  return std::all_of(letters.begin(), letters.end(),
                     [&](char letter) { return std::count(letters.begin(), letters.end(), letter) == 1; });
}

/// `q`, or `q | f` with f a sum over axes, as one contraction; nothing if it is none.
std::optional<Kernel> as_contraction(const Kernel& kernel, int64_t rank) {
  if (!multiplies(kernel) || rank > 20) return std::nullopt;
  kernels::table::Subscripts labels;
  if (kernel.epilogue.empty()) {
    for (int64_t a = 0; a < rank; ++a) labels.result += static_cast<char>('a' + a);
    labels.operands = {labels.result, labels.result};
    return Kernel{"contract", {labels.text()}};
  }
  if (!sums_axes(kernel.epilogue[0])) return std::nullopt;
  const kernels::table::Subscripts sum = kernels::table::row_of(kernel.epilogue[0]).labels(kernel.epilogue[0]);
  Kernel out{"contract", {kernels::table::Subscripts{{sum.operands[0], sum.operands[0]}, sum.result}.text()}};
  out.epilogue.assign(kernel.epilogue.begin() + 1, kernel.epilogue.end());
  return out;
}

bool same_shapes(const NodePtr& join) {
  const auto left = join->input(0)->type().relation.uniform_shape();
  const auto right = join->input(1)->type().relation.uniform_shape();
  return left && left == right;
}

/// Whether every group is one tuple, under its own key.
bool aggregates_nothing(const NodePtr& node) {
  const relation::RelationType& input = node->input(0)->type().relation;
  const ia::LocalAggregate& op = aggregate_at(node);
  return op.group_by == all_dims(input.arity()) && input.unique() &&
         kernels::table::row_of(op.kernel).form != Form::kConcat;
}

NodePtr without_aggregation(const NodePtr& node) {
  const NodePtr& input = node->input(0);
  if (aggregate_at(node).kernel.epilogue.empty()) return input;
  Kernel then{"id", {}};
  for (const Kernel& next : aggregate_at(node).kernel.epilogue) then = then.followed_by(next);
  return ia::make(ia::LocalMap{1, relation::KeyMap::identity(input->type().relation.arity()), then}, {input});
}

/// Whether the aggregate repeats the reduction of the move below it.
bool repeats_the_reduction(const Match& m) {
  const auto reduction = placement_of(m[1]->input(0)).pending_kernel();
  return reduction && *reduction == aggregate_at(m[0]).kernel.name && aggregates_nothing(m[0]);
}

/// Bytes of one element before and after a map.
std::pair<int64_t, int64_t> widths(const NodePtr& map_node) {
  return {byte_size(map_node->input(0)->type().relation.dtype), byte_size(map_node->type().relation.dtype)};
}

}  // namespace

std::vector<Rule> physical_rules() {
  return {
      {.name = "P-1",
       .law = "A[g, add](J[mul | f](L, R)) = A[g, add](J[contract](L, R))",
       .when = "the join's kernel is an elementwise product of arrays of one shape, f sums axes (or is not there): the "
               "join and the sum then run as one contraction, and the products are never stored",
       .source = kOwn,
       .pattern = aggregate(join()),
       .condition =
           [](const Match& m) {
             const Kernel& kernel = aggregate_at(m[0]).kernel;
             return adds(kernel) && same_shapes(m[1]) &&
                    as_contraction(join_at(m[1]).kernel, m[1]->input(0)->type().relation.rank()).has_value();
           },
       .rewrite =
           [](const Match& m) {
             ia::LocalJoin op = join_at(m[1]);
             op.kernel = *as_contraction(op.kernel, m[1]->input(0)->type().relation.rank());
             return ia::make(aggregate_at(m[0]), {ia::make(std::move(op), m[1]->inputs())});
           }},
      {.name = "P-2",
       .law = "A[all, ⊕](S R) = S R",
       .when = "R is pending under ⊕: the shuffle of partials reduces them, as a reduce-scatter",
       .source = kOwn,
       .pattern = aggregate(shuffle()),
       .condition = repeats_the_reduction,
       .rewrite = [](const Match& m) { return without_aggregation(m[0]); }},
      {.name = "P-3",
       .law = "A[all, ⊕](B R) = B R",
       .when = "R is pending under ⊕: the broadcast of partials reduces them, as an all-reduce",
       .source = kOwn,
       .pattern = aggregate(broadcast()),
       .condition = repeats_the_reduction,
       .rewrite = [](const Match& m) { return without_aggregation(m[0]); }},
      {.name = "P-4",
       .law = "A[all, ⊕ | f] R = M[id, f] R",
       .when = "keys are unique, so every group is one tuple",
       .source = kOwn,
       .pattern = aggregate(),
       .condition = [](const Match& m) { return aggregates_nothing(m[0]) && !placement_of(m[1]).pending(); },
       .rewrite = [](const Match& m) { return without_aggregation(m[0]); },
       .phase = Phase::kRewrite,
       .normalization = Normalization::kSimplifies},
      {.name = "P-5",
       .law = "B[a] R = B[a without x](B[x] R)",
       .when = "a has several axes: slow and fast links by themselves",
       .source = kOwn,
       .pattern = broadcast(),
       .condition =
           [](const Match& m) {
             return m[0]->as<ia::Broadcast>()->axes.size() > 1 && placement_of(m[1]).grid() != nullptr;
           },
       .rewrite = [](const Match& m) -> std::vector<NodePtr> {
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
       },
       .phase = Phase::kNone},
      {.name = "P-6",
       .law = "S[t] R = S[t](S[t on axis x] R)",
       .when = "the placement changes on several axes: slow and fast links by themselves",
       .source = kOwn,
       .pattern = shuffle(),
       .condition =
           [](const Match& m) {
             const auto* now = placement_of(m[1]).grid();
             return now != nullptr && ia::differing_axes(*now, target_at(m[0])).size() > 1;
           },
       .rewrite = [](const Match& m) -> std::vector<NodePtr> {
         std::vector<NodePtr> out;
         const ia::GridPlacement& now = *placement_of(m[1]).grid();
         for (const int64_t axis : ia::differing_axes(now, target_at(m[0]))) {
           ia::GridPlacement first = now;
           first.states[axis] = target_at(m[0]).states[axis];
           try {
             out.push_back(ia::make(m[0]->operation(), {ia::make(ia::Shuffle{first}, {m[1]})}));
           } catch (const PlanError&) {  // one dimension would be split on two domains
           }
         }
         return out;
       },
       .phase = Phase::kNone},
      {.name = "P-7a",
       .law = "M[id, f](S R) = S(M[id, f] R), and with B",
       .when = "f makes elements narrower: they are moved so",
       .source = kOwn,
       .pattern = map(move()),
       .condition = [](const Match& m) { return keeps_keys(m[0]) && widths(m[0]).second < widths(m[0]).first; },
       .rewrite = [](const Match& m) { return moved_like(m[1], ia::make(map_at(m[0]), {m[1]->input(0)})); }},
      {.name = "P-7b",
       .law = "S(M[id, f] R) = M[id, f](S R), and with B",
       .when = "f makes elements wider: they are moved before it",
       .source = kOwn,
       .pattern = move(map()),
       .condition = [](const Match& m) { return keeps_keys(m[1]) && widths(m[1]).second > widths(m[1]).first; },
       .rewrite = [](const Match& m) { return ia::make(map_at(m[1]), {moved_like(m[0], m[1]->input(0))}); }},
      {.name = "P-8",
       .law = "S[t] R = R, and with B",
       .when = "R is placed so already",
       .source = kOwn,
       .pattern = move(),
       .condition = [](const Match& m) { return placement_of(m[0]) == placement_of(m[1]); },
       .rewrite = [](const Match& m) { return m[1]; }},
      {.name = "P-9",
       .law = "M[id, id] R = R",
       .when = "always",
       .source = kOwn,
       .pattern = map(),
       .condition = [](const Match& m) { return keeps_keys(m[0]) && map_at(m[0]).array_map == Kernel{"id", {}}; },
       .rewrite = [](const Match& m) { return m[1]; },
       .phase = Phase::kRewrite,
       .normalization = Normalization::kSimplifies},
  };
}

}  // namespace joinsum::optimizer::rules
