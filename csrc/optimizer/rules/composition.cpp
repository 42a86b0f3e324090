#include <algorithm>

#include "optimizer/rules/families.h"

namespace joinsum::optimizer::rules {
namespace {

using ia::NodePtr;

/// A key function with component d replaced by component `dims[d]`.
relation::KeyExpression reindexed(const relation::KeyExpression& expression, const Dims& dims) {
  return expression.substitute(relation::KeyMap::projection(dims).components());
}

bool reads_only(const relation::KeyExpression& expression, const Dims& dims) {
  const Dims read = expression.components();
  return std::all_of(read.begin(), read.end(), [&](int64_t dim) { return position_of(dims, dim).has_value(); });
}

/// For each of `arity` dimensions its position in `dims`, or 0 where it is not there (and is not read).
Dims positions_in(const Dims& dims, int64_t arity) {
  Dims out;
  for (int64_t dim = 0; dim < arity; ++dim) out.push_back(position_of(dims, dim).value_or(0));
  return out;
}

relation::KeyMap composed(const relation::KeyMap& outer, const relation::KeyMap& inner) {
  std::vector<relation::KeyExpression> components;
  for (const relation::KeyExpression& component : outer.components())
    components.push_back(component.substitute(inner.components()));
  return relation::KeyMap(std::move(components));
}

ia::LocalMap identity_map(const NodePtr& input, kernels::table::Kernel kernel) {
  return {1, relation::KeyMap::identity(input->type().relation.arity()), std::move(kernel)};
}

NodePtr filtered(const NodePtr& input, relation::KeyExpression predicate) {
  return ia::make(ia::LocalFilter{std::move(predicate)}, {input});
}

}  // namespace

std::vector<Rule> composition_rules() {
  return {
      {.name = "R1-1",
       .law = "F[a](F[b] R) = F[b and a] R",
       .when = "always",
       .source = kTable2,
       .pattern = filter(filter()),
       .rewrite =
           [](const Match& m) {
             return filtered(m[1]->input(0),
                             relation::KeyExpression::binary(relation::KeyOperator::kAnd, filter_at(m[1]).predicate,
                                                             filter_at(m[0]).predicate));
           },
       .phase = Phase::kRewrite,
       .normalization = Normalization::kDirects},
      {.name = "R1-2",
       .law = "M[k, f](M[l, g] R) = M[k∘l, f∘g] R",
       .when = "both maps give one tuple for each",
       .source = kTable2,
       .pattern = map(map()),
       .condition = [](const Match& m) { return map_at(m[0]).outputs == 1 && map_at(m[1]).outputs == 1; },
       .rewrite =
           [](const Match& m) {
             const ia::LocalMap& outer = map_at(m[0]);
             const ia::LocalMap& inner = map_at(m[1]);
             ia::LocalMap both{1, composed(outer.key_map, inner.key_map), inner.array_map.followed_by(outer.array_map)};
             return ia::make(std::move(both), {m[1]->input(0)});
           },
       .phase = Phase::kRewrite,
       .normalization = Normalization::kDirects},
      {.name = "R1-3a",
       .law = "F[b](M[id, f] R) = M[id, f](F[b] R)",
       .when = "the key map is the identity",
       .source = kTable2,
       .pattern = filter(map()),
       .condition = [](const Match& m) { return keeps_keys(m[1]); },
       .rewrite =
           [](const Match& m) { return ia::make(map_at(m[1]), {filtered(m[1]->input(0), filter_at(m[0]).predicate)}); },
       .phase = Phase::kRewrite,
       .normalization = Normalization::kDirects},
      {.name = "R1-3b",
       .law = "M[id, f](F[b] R) = F[b](M[id, f] R)",
       .when = "the key map is the identity",
       .source = kTable2,
       .pattern = map(filter()),
       .condition = [](const Match& m) { return keeps_keys(m[0]); },
       .rewrite =
           [](const Match& m) {
             return filtered(ia::make(map_at(m[0]), {m[1]->input(0)}), filter_at(m[1]).predicate);
           }},
      {.name = "R1-4a",
       .law = "M[id, f](A[g, ⊕] R) = A[g, ⊕ | f] R",
       .when = "the key map is the identity, and groups lie together; f runs once on each group's result, not in the "
               "aggregation",
       .source = kTable2Corrected,
       .pattern = map(aggregate()),
       .condition =
           [](const Match& m) {
             return keeps_keys(m[0]) && m[1]->input(0)->type().placement.keeps_together(aggregate_at(m[1]).group_by);
           },
       .rewrite =
           [](const Match& m) {
             const ia::LocalAggregate& aggregate = aggregate_at(m[1]);
             return ia::make(
                 ia::LocalAggregate{aggregate.group_by, aggregate.kernel.followed_by(map_at(m[0]).array_map)},
                 {m[1]->input(0)});
           }},
      {.name = "R1-4b",
       .law = "M[id, f](A[g, ⊕] R) = A[g, ⊕](M[id, f] R)",
       .when = "the key map is the identity, and f distributes over ⊕",
       .source = kTable2Corrected,
       .pattern = map(aggregate()),
       .condition =
           [](const Match& m) {
             const kernels::table::Kernel& aggregate = aggregate_at(m[1]).kernel;
             return keeps_keys(m[0]) && aggregate.epilogue.empty() && aggregate.parameters.empty() &&
                    kernels::table::distributes(map_at(m[0]).array_map, aggregate.name, 0);
           },
       .rewrite =
           [](const Match& m) {
             const NodePtr& input = m[1]->input(0);
             return ia::make(aggregate_at(m[1]), {ia::make(identity_map(input, map_at(m[0]).array_map), {input})});
           }},
      {.name = "R1-5a",
       .law = "F[b](A[g, ⊕] R) = A[g, ⊕](F[b∘g] R)",
       .when = "always: b reads the groups' keys, and so the key components g of R",
       .source = kTable2Corrected,
       .pattern = filter(aggregate()),
       .rewrite =
           [](const Match& m) {
             const ia::LocalAggregate& aggregate = aggregate_at(m[1]);
             return ia::make(aggregate,
                             {filtered(m[1]->input(0), reindexed(filter_at(m[0]).predicate, aggregate.group_by))});
           },
       .phase = Phase::kRewrite,
       .normalization = Normalization::kDirects},
      {.name = "R1-5b",
       .law = "A[g, ⊕](F[b] R) = F[b'](A[g, ⊕] R)",
       .when = "b reads key components in g only; b' reads them where g puts them",
       .source = kTable2Corrected,
       .pattern = aggregate(filter()),
       .condition = [](const Match& m) { return reads_only(filter_at(m[1]).predicate, aggregate_at(m[0]).group_by); },
       .rewrite =
           [](const Match& m) {
             const ia::LocalAggregate& aggregate = aggregate_at(m[0]);
             const NodePtr& input = m[1]->input(0);
             const Dims at = positions_in(aggregate.group_by, input->type().relation.arity());
             return filtered(ia::make(aggregate, {input}), reindexed(filter_at(m[1]).predicate, at));
           }},
      {.name = "R1-6",
       .law = "F[b](J[jl; jr; q](L, R)) = J[jl; jr; q](F[b] L, F[b'] R)",
       .when = "b reads join keys only; b' is b with jl replaced by jr",
       .source = kTable2Corrected,
       .pattern = filter(join()),
       .condition = [](const Match& m) { return reads_only(filter_at(m[0]).predicate, join_at(m[1]).left_keys); },
       .rewrite =
           [](const Match& m) {
             const ia::LocalJoin& op = join_at(m[1]);
             const relation::KeyExpression& predicate = filter_at(m[0]).predicate;
             const int64_t arity = m[1]->input(0)->type().relation.arity();
             Dims right(arity, 0);
             for (size_t i = 0; i < op.left_keys.size(); ++i) right[op.left_keys[i]] = op.right_keys[i];
             return ia::make(
                 op, {filtered(m[1]->input(0), predicate), filtered(m[1]->input(1), reindexed(predicate, right))});
           },
       .phase = Phase::kRewrite,
       .normalization = Normalization::kDirects},
      {.name = "R1-7",
       .law = "M[k, f](J[jl; jr; q](L, R)) = M[k, id](J[jl; jr; q | f](L, R))",
       .when = "the map gives one tuple for each; the key map stays outside (inside the join keys it would have to be "
               "injective on them)",
       .source = kTable2Corrected,
       .pattern = map(join()),
       .condition =
           [](const Match& m) {
             return map_at(m[0]).outputs == 1 && !(map_at(m[0]).array_map == kernels::table::Kernel{"id", {}});
           },
       .rewrite = [](const Match& m) -> NodePtr {
         const ia::LocalMap& op = map_at(m[0]);
         ia::LocalJoin composed_join = join_at(m[1]);
         composed_join.kernel = composed_join.kernel.followed_by(op.array_map);
         NodePtr joined = ia::make(std::move(composed_join), m[1]->inputs());
         if (keeps_keys(m[0])) return joined;
         return ia::make(ia::LocalMap{1, op.key_map, {"id", {}}}, {joined});
       },
       .phase = Phase::kRewrite,
       .normalization = Normalization::kDirects},
  };
}

}  // namespace joinsum::optimizer::rules
