#include <algorithm>

#include "optimizer/rules/families.h"

namespace joinsum::optimizer {
namespace {

using ia::NodePtr;

constexpr const char* kTable2 = "TRA paper, Table 2";
constexpr const char* kTable2Corrected = "TRA paper, Table 2, corrected (docs/deviations.md)";

/// A key function with component d replaced by component `dims[d]`.
KeyExpression reindexed(const KeyExpression& expression, const Dims& dims) {
  return expression.substitute(KeyMap::projection(dims).components());
}

bool reads_only(const KeyExpression& expression, const Dims& dims) {
  const Dims read = expression.components();
  return std::all_of(read.begin(), read.end(), [&](int64_t dim) { return position_of(dims, dim).has_value(); });
}

/// For each of `arity` dimensions its position in `dims`, or 0 where it is not there (and is not read).
Dims positions_in(const Dims& dims, int64_t arity) {
  Dims out;
  for (int64_t dim = 0; dim < arity; ++dim) out.push_back(position_of(dims, dim).value_or(0));
  return out;
}

KeyMap composed(const KeyMap& outer, const KeyMap& inner) {
  std::vector<KeyExpression> components;
  for (const KeyExpression& component : outer.components())
    components.push_back(component.substitute(inner.components()));
  return KeyMap(std::move(components));
}

ia::LocalMap identity_map(const NodePtr& input, kernels::Kernel kernel) {
  return {1, KeyMap::identity(input->type().relation.arity()), std::move(kernel)};
}

NodePtr filtered(const NodePtr& input, KeyExpression predicate) {
  return ia::make(ia::LocalFilter{std::move(predicate)}, {input});
}

Rule merge_filters() {
  return {"R1-1",
          "F[a](F[b] R) = F[b and a] R",
          "always",
          kTable2,
          filter(filter()),
          {},
          [](const Match& m) -> std::vector<NodePtr> {
            return {filtered(m[1]->input(0), KeyExpression::binary(KeyOperator::kAnd, filter_at(m[1]).predicate,
                                                                   filter_at(m[0]).predicate))};
          }};
}

Rule merge_maps() {
  return {"R1-2",
          "M[k, f](M[l, g] R) = M[k∘l, f∘g] R",
          "both maps give one tuple for each",
          kTable2,
          map(map()),
          [](const Match& m) { return map_at(m[0]).outputs == 1 && map_at(m[1]).outputs == 1; },
          [](const Match& m) -> std::vector<NodePtr> {
            const ia::LocalMap& outer = map_at(m[0]);
            const ia::LocalMap& inner = map_at(m[1]);
            ia::LocalMap both{1, composed(outer.key_map, inner.key_map), inner.array_map.followed_by(outer.array_map)};
            return {ia::make(std::move(both), {m[1]->input(0)})};
          }};
}

Rule filter_below_map() {
  return {"R1-3a",
          "F[b](M[id, f] R) = M[id, f](F[b] R)",
          "the key map is the identity",
          kTable2,
          filter(map()),
          [](const Match& m) { return keeps_keys(m[1]); },
          [](const Match& m) -> std::vector<NodePtr> {
            return {ia::make(map_at(m[1]), {filtered(m[1]->input(0), filter_at(m[0]).predicate)})};
          }};
}

Rule filter_above_map() {
  return {"R1-3b",
          "M[id, f](F[b] R) = F[b](M[id, f] R)",
          "the key map is the identity",
          kTable2,
          map(filter()),
          [](const Match& m) { return keeps_keys(m[0]); },
          [](const Match& m) -> std::vector<NodePtr> {
            return {filtered(ia::make(map_at(m[0]), {m[1]->input(0)}), filter_at(m[1]).predicate)};
          }};
}

Rule map_after_fold() {
  return {"R1-4a",
          "M[id, f](A[g, ⊕] R) = A[g, ⊕ | f] R",
          "the key map is the identity, and groups lie together; f runs once on each group's result, not in the fold",
          kTable2Corrected,
          map(aggregate()),
          [](const Match& m) {
            return keeps_keys(m[0]) && m[1]->input(0)->type().placement.keeps_together(aggregate_at(m[1]).group_by);
          },
          [](const Match& m) -> std::vector<NodePtr> {
            const ia::LocalAggregate& fold = aggregate_at(m[1]);
            return {ia::make(ia::LocalAggregate{fold.group_by, fold.kernel.followed_by(map_at(m[0]).array_map)},
                             {m[1]->input(0)})};
          }};
}

Rule map_before_fold() {
  return {"R1-4b",
          "M[id, f](A[g, ⊕] R) = A[g, ⊕](M[id, f] R)",
          "the key map is the identity, and f distributes over ⊕",
          kTable2Corrected,
          map(aggregate()),
          [](const Match& m) {
            const kernels::Kernel& fold = aggregate_at(m[1]).kernel;
            return keeps_keys(m[0]) && fold.then.empty() && fold.parameters.empty() &&
                   kernels::distributes(map_at(m[0]).array_map, fold.name, 0);
          },
          [](const Match& m) -> std::vector<NodePtr> {
            const NodePtr& input = m[1]->input(0);
            return {ia::make(aggregate_at(m[1]), {ia::make(identity_map(input, map_at(m[0]).array_map), {input})})};
          }};
}

Rule filter_below_fold() {
  return {"R1-5a",
          "F[b](A[g, ⊕] R) = A[g, ⊕](F[b∘g] R)",
          "always: b reads the groups' keys, and so the key components g of R",
          kTable2Corrected,
          filter(aggregate()),
          {},
          [](const Match& m) -> std::vector<NodePtr> {
            const ia::LocalAggregate& fold = aggregate_at(m[1]);
            return {ia::make(fold, {filtered(m[1]->input(0), reindexed(filter_at(m[0]).predicate, fold.group_by))})};
          }};
}

Rule filter_above_fold() {
  return {"R1-5b",
          "A[g, ⊕](F[b] R) = F[b'](A[g, ⊕] R)",
          "b reads key components in g only; b' reads them where g puts them",
          kTable2Corrected,
          aggregate(filter()),
          [](const Match& m) { return reads_only(filter_at(m[1]).predicate, aggregate_at(m[0]).group_by); },
          [](const Match& m) -> std::vector<NodePtr> {
            const ia::LocalAggregate& fold = aggregate_at(m[0]);
            const NodePtr& input = m[1]->input(0);
            const Dims at = positions_in(fold.group_by, input->type().relation.arity());
            return {filtered(ia::make(fold, {input}), reindexed(filter_at(m[1]).predicate, at))};
          }};
}

Rule filter_below_join() {
  return {"R1-6",
          "F[b](J[jl; jr; q](L, R)) = J[jl; jr; q](F[b] L, F[b'] R)",
          "b reads join keys only; b' is b with jl replaced by jr",
          kTable2Corrected,
          filter(join()),
          [](const Match& m) { return reads_only(filter_at(m[0]).predicate, join_at(m[1]).left_keys); },
          [](const Match& m) -> std::vector<NodePtr> {
            const ia::LocalJoin& op = join_at(m[1]);
            const KeyExpression& predicate = filter_at(m[0]).predicate;
            const int64_t arity = m[1]->input(0)->type().relation.arity();
            Dims right(arity, 0);
            for (size_t i = 0; i < op.left_keys.size(); ++i) right[op.left_keys[i]] = op.right_keys[i];
            return {ia::make(
                op, {filtered(m[1]->input(0), predicate), filtered(m[1]->input(1), reindexed(predicate, right))})};
          }};
}

Rule map_into_join() {
  return {"R1-7",
          "M[k, f](J[jl; jr; q](L, R)) = M[k, id](J[jl; jr; q | f](L, R))",
          "the map gives one tuple for each; the key map stays outside (inside the join keys it would have to be "
          "injective on them)",
          kTable2Corrected,
          map(join()),
          [](const Match& m) {
            return map_at(m[0]).outputs == 1 && !(map_at(m[0]).array_map == kernels::Kernel{"id", {}});
          },
          [](const Match& m) -> std::vector<NodePtr> {
            const ia::LocalMap& op = map_at(m[0]);
            ia::LocalJoin composed_join = join_at(m[1]);
            composed_join.kernel = composed_join.kernel.followed_by(op.array_map);
            NodePtr joined = ia::make(std::move(composed_join), m[1]->inputs());
            if (keeps_keys(m[0])) return {joined};
            return {ia::make(ia::LocalMap{1, op.key_map, {"id", {}}}, {joined})};
          }};
}

}  // namespace

std::vector<Rule> composition_rules() {
  return {merge_filters(),   merge_maps(),        filter_below_map(),  filter_above_map(),  map_after_fold(),
          map_before_fold(), filter_below_fold(), filter_above_fold(), filter_below_join(), map_into_join()};
}

}  // namespace joinsum::optimizer
