#include <algorithm>

#include "optimizer/rules/families.h"

namespace joinsum::optimizer::rules {
namespace {

using ia::NodePtr;

NodePtr shuffled(const NodePtr& input, const ia::GridPlacement& target) {
  return ia::make(ia::Shuffle{target}, {input});
}

const Dims& axes_at(const NodePtr& node) { return node->as<ia::Broadcast>()->axes; }

bool reduced(const NodePtr& node) { return !placement_of(node).pending(); }

Dims all_axes(const NodePtr& node) { return all_dims(node->type().grid.rank()); }

/// Whether a map and a move may change places as far as keys go.
bool may_pass(const NodePtr& map_node, const NodePtr& move_node) {
  return move_node->as<ia::Broadcast>() != nullptr || keeps_keys(map_node);
}

NodePtr joined(const NodePtr& like, const NodePtr& left, const NodePtr& right) {
  return ia::make(join_at(like), {left, right});
}

bool joins_by_keys(const NodePtr& node) { return !join_at(node).left_keys.empty(); }

}  // namespace

std::vector<Rule> repartition_rules() {
  return {
      {.name = "R2-1a",
       .law = "S[t](S R) = S[t](B R) = S[t] R",
       .when = "R is not pending: only the last move of a row counts",
       .source = kTable2Corrected,
       .pattern = shuffle(move()),
       .condition = [](const Match& m) { return reduced(m[1]->input(0)); },
       .rewrite = [](const Match& m) { return moved_like(m[0], m[1]); }},
      {.name = "R2-1b",
       .law = "B[a](S[t] R) = S[t with a replicated] R, and B R where a is all axes",
       .when = "R is not pending",
       .source = kTable2Corrected,
       .pattern = broadcast(shuffle()),
       .condition = [](const Match& m) { return reduced(m[1]->input(0)); },
       .rewrite = [](const Match& m) { return moved_like(m[0], m[1]); }},
      {.name = "R2-1c",
       .law = "B[a](B[b] R) = B[a and b] R",
       .when = "R is not pending",
       .source = kTable2Corrected,
       .pattern = broadcast(broadcast()),
       .condition = [](const Match& m) { return reduced(m[1]->input(0)); },
       .rewrite = [](const Match& m) { return moved_like(m[0], m[1]); }},
      {.name = "R2-2a",
       .law = "F[b](S R) = S(F[b] R), and with B",
       .when = "always; the shuffle keeps the domain on which owners are computed",
       .source = kTable2,
       .pattern = filter(move()),
       .rewrite = [](const Match& m) { return moved_like(m[1], ia::make(filter_at(m[0]), {m[1]->input(0)})); }},
      {.name = "R2-2b",
       .law = "S(F[b] R) = F[b](S R), and with B",
       .when = "a shuffle's domain covers the frontier of R, which the filter may shrink",
       .source = kTable2,
       .pattern = move(filter()),
       .rewrite = [](const Match& m) { return ia::make(filter_at(m[1]), {moved_like(m[0], m[1]->input(0))}); }},
      {.name = "R2-3a",
       .law = "M[k, f](S R) = S(M[k, f] R), and with B",
       .when = "with S the key map is the identity; where R is pending f distributes over its reduction",
       .source = kTable2Corrected,
       .pattern = map(move()),
       .condition = [](const Match& m) { return may_pass(m[0], m[1]); },
       .rewrite = [](const Match& m) { return moved_like(m[1], ia::make(map_at(m[0]), {m[1]->input(0)})); }},
      {.name = "R2-3b",
       .law = "S(M[k, f] R) = M[k, f](S R), and with B",
       .when = "with S the key map is the identity",
       .source = kTable2Corrected,
       .pattern = move(map()),
       .condition = [](const Match& m) { return may_pass(m[1], m[0]); },
       .rewrite = [](const Match& m) { return ia::make(map_at(m[1]), {moved_like(m[0], m[1]->input(0))}); }},
      {.name = "R2-4",
       .law = "A[g](S[p] R) = A[g] R",
       .when = "R itself keeps the tuples of every group on one site (what p splits does not matter)",
       .source = kTable2Corrected,
       .pattern = aggregate(shuffle()),
       .condition =
           [](const Match& m) { return placement_of(m[1]->input(0)).keeps_together(aggregate_at(m[0]).group_by); },
       .rewrite = [](const Match& m) { return ia::make(aggregate_at(m[0]), {m[1]->input(0)}); }},
      {.name = "R2-5",
       .law = "A[g, ⊕ | f](S[p] R) = A[all, ⊕ | f](S[p'](A[g, ⊕] R))",
       .when = "p is within g, ⊕ is associative and commutative, groups have several tuples; p' says p in the "
               "positions of g",
       .source = kTable2Corrected,
       .pattern = aggregate(shuffle()),
       .condition =
           [](const Match& m) {
             const ia::LocalAggregate& op = aggregate_at(m[0]);
             const Dims dims = split_dims(target_at(m[1]));
             const bool within = std::all_of(dims.begin(), dims.end(),
                                             [&](int64_t dim) { return position_of(op.group_by, dim).has_value(); });
             return within && kernels::table::reduces_in_any_order(op.kernel.first()) &&
                    m[0]->type().relation.tuples() < m[1]->type().relation.tuples();
           },
       .rewrite =
           [](const Match& m) {
             const ia::LocalAggregate& op = aggregate_at(m[0]);
             const NodePtr partial = ia::make(ia::LocalAggregate{op.group_by, op.kernel.first()}, {m[1]->input(0)});
             ia::GridPlacement target = target_at(m[1]);
             for (ia::AxisState& state : target.states) {
               if (auto* split = std::get_if<ia::Split>(&state)) split->dim = *position_of(op.group_by, split->dim);
             }
             const Dims all = all_dims(static_cast<int64_t>(op.group_by.size()));
             return ia::make(ia::LocalAggregate{all, op.kernel}, {shuffled(partial, target)});
           }},
      {.name = "R2-6a",
       .law = "J(B[a] L, R) = J(L, B[a] R)",
       .when = "always",
       .source = kTable2,
       .pattern = join(broadcast(), any()),
       .rewrite = [](const Match& m) { return joined(m[0], m[2], broadcasted(m[3], axes_at(m[1]))); }},
      {.name = "R2-6b",
       .law = "J(L, B[a] R) = J(B[a] L, R)",
       .when = "always",
       .source = kTable2,
       .pattern = join(any(), broadcast()),
       .rewrite = [](const Match& m) { return joined(m[0], broadcasted(m[1], axes_at(m[2])), m[2]->input(0)); }},
      {.name = "R2-6c",
       .law = "J(B[a] L, R) = J(S[jl] L, S[jr] R)",
       .when = "there are join keys; both shuffles split the axes a by the join keys, pair by pair on equal domains",
       .source = kTable2Corrected,
       .pattern = join(broadcast(), any()),
       .condition = [](const Match& m) { return joins_by_keys(m[0]); },
       .rewrite =
           [](const Match& m) {
             const ia::LocalJoin& op = join_at(m[0]);
             const auto [left, right] = shuffled_to_meet(m[2], m[3], op.left_keys, op.right_keys, axes_at(m[1]));
             return joined(m[0], left, right);
           }},
      {.name = "R2-6d",
       .law = "J(L, B[a] R) = J(S[jl] L, S[jr] R)",
       .when = "there are join keys; both shuffles split the axes a by the join keys, pair by pair on equal domains",
       .source = kTable2Corrected,
       .pattern = join(any(), broadcast()),
       .condition = [](const Match& m) { return joins_by_keys(m[0]); },
       .rewrite =
           [](const Match& m) {
             const ia::LocalJoin& op = join_at(m[0]);
             const auto [left, right] =
                 shuffled_to_meet(m[1], m[2]->input(0), op.left_keys, op.right_keys, axes_at(m[2]));
             return joined(m[0], left, right);
           }},
      {.name = "R2-6e",
       .law = "J(S L, S R) = J(B L, R)",
       .when = "always",
       .source = kTable2,
       .pattern = join(shuffle(), shuffle()),
       .rewrite = [](const Match& m) { return joined(m[0], broadcasted(m[2], all_axes(m[0])), m[4]); }},
      {.name = "R2-6f",
       .law = "J(S L, S R) = J(L, B R)",
       .when = "always",
       .source = kTable2,
       .pattern = join(shuffle(), shuffle()),
       .rewrite = [](const Match& m) { return joined(m[0], m[2], broadcasted(m[4], all_axes(m[0]))); }},
      {.name = "R2-7",
       .law = "S[p](J(S[jl] L, S[jr] R)) = J(S[jl] L, S[jr] R)",
       .when = "the join leaves tuples that agree on p on one site: jl is within p (printed the other way round)",
       .source = kTable2Corrected,
       .pattern = shuffle(join(shuffle(), shuffle())),
       .condition = [](const Match& m) { return placement_of(m[1]).keeps_together(split_dims(target_at(m[0]))); },
       .rewrite = [](const Match& m) { return m[1]; }},
  };
}

}  // namespace joinsum::optimizer::rules
