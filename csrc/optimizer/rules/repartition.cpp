#include <algorithm>

#include "optimizer/rules/families.h"

namespace joinsum::optimizer {
namespace {

using ia::NodePtr;

constexpr const char* kTable2 = "TRA paper, Table 2";
constexpr const char* kTable2Corrected = "TRA paper, Table 2, corrected (docs/deviations.md)";

NodePtr shuffled(const NodePtr& input, const ia::GridPlacement& target) {
  return ia::make(ia::Shuffle{target}, {input});
}

const Dims& axes_at(const NodePtr& node) { return node->as<ia::Broadcast>()->axes; }

bool settled(const NodePtr& node) { return !placement_of(node).pending(); }

Dims all_axes(const NodePtr& node) { return all_dims(node->type().grid.rank()); }

// --- R2-1 to R2-3: moves among moves, filters and maps ---------------------------------------------------------------

Rule shuffle_after_move() {
  return {"R2-1a",
          "S[t](S R) = S[t](B R) = S[t] R",
          "R is settled: only the last move of a row counts",
          kTable2Corrected,
          shuffle(move()),
          [](const Match& m) { return settled(m[1]->input(0)); },
          [](const Match& m) -> std::vector<NodePtr> { return {moved_like(m[0], m[1])}; }};
}

Rule broadcast_after_shuffle() {
  return {"R2-1b",
          "B[a](S[t] R) = S[t with a replicated] R, and B R where a is all axes",
          "R is settled",
          kTable2Corrected,
          broadcast(shuffle()),
          [](const Match& m) { return settled(m[1]->input(0)); },
          [](const Match& m) -> std::vector<NodePtr> { return {moved_like(m[0], m[1])}; }};
}

Rule broadcast_after_broadcast() {
  return {"R2-1c",
          "B[a](B[b] R) = B[a and b] R",
          "R is settled",
          kTable2Corrected,
          broadcast(broadcast()),
          [](const Match& m) { return settled(m[1]->input(0)); },
          [](const Match& m) -> std::vector<NodePtr> { return {moved_like(m[0], m[1])}; }};
}

Rule filter_below_move() {
  return {"R2-2a",
          "F[b](S R) = S(F[b] R), and with B",
          "always; the shuffle keeps the domain on which owners are computed",
          kTable2,
          filter(move()),
          {},
          [](const Match& m) -> std::vector<NodePtr> {
            return {moved_like(m[1], ia::make(filter_at(m[0]), {m[1]->input(0)}))};
          }};
}

Rule filter_above_move() {
  return {"R2-2b",
          "S(F[b] R) = F[b](S R), and with B",
          "a shuffle's domain covers the frontier of R, which the filter may shrink",
          kTable2,
          move(filter()),
          {},
          [](const Match& m) -> std::vector<NodePtr> {
            return {ia::make(filter_at(m[1]), {moved_like(m[0], m[1]->input(0))})};
          }};
}

/// Whether a map and a move may change places as far as keys go.
bool may_pass(const NodePtr& map_node, const NodePtr& move_node) {
  return move_node->as<ia::Broadcast>() != nullptr || keeps_keys(map_node);
}

Rule map_below_move() {
  return {"R2-3a",
          "M[k, f](S R) = S(M[k, f] R), and with B",
          "with S the key map is the identity; where R is pending f distributes over its fold",
          kTable2Corrected,
          map(move()),
          [](const Match& m) { return may_pass(m[0], m[1]); },
          [](const Match& m) -> std::vector<NodePtr> {
            return {moved_like(m[1], ia::make(map_at(m[0]), {m[1]->input(0)}))};
          }};
}

Rule map_above_move() {
  return {"R2-3b",
          "S(M[k, f] R) = M[k, f](S R), and with B",
          "with S the key map is the identity",
          kTable2Corrected,
          move(map()),
          [](const Match& m) { return may_pass(m[1], m[0]); },
          [](const Match& m) -> std::vector<NodePtr> {
            return {ia::make(map_at(m[1]), {moved_like(m[0], m[1]->input(0))})};
          }};
}

// --- R2-4 and R2-5: moves below folds --------------------------------------------------------------------------------

Rule fold_without_move() {
  return {"R2-4",
          "A[g](S[p] R) = A[g] R",
          "R itself keeps the tuples of every group on one site (what p splits does not matter)",
          kTable2Corrected,
          aggregate(shuffle()),
          [](const Match& m) { return placement_of(m[1]->input(0)).keeps_together(aggregate_at(m[0]).group_by); },
          [](const Match& m) -> std::vector<NodePtr> { return {ia::make(aggregate_at(m[0]), {m[1]->input(0)})}; }};
}

Rule fold_in_two_phases() {
  return {
      "R2-5",
      "A[g, ⊕ | f](S[p] R) = A[all, ⊕ | f](S[p'](A[g, ⊕] R))",
      "p is within g, ⊕ is associative and commutative, groups have several tuples; p' says p in the positions of g",
      kTable2Corrected,
      aggregate(shuffle()),
      [](const Match& m) {
        const ia::LocalAggregate& op = aggregate_at(m[0]);
        const Dims dims = split_dims(target_at(m[1]));
        const bool within = std::all_of(dims.begin(), dims.end(),
                                        [&](int64_t dim) { return position_of(op.group_by, dim).has_value(); });
        return within && kernels::foldable(op.kernel.first()) &&
               m[0]->type().relation.tuples() < m[1]->type().relation.tuples();
      },
      [](const Match& m) -> std::vector<NodePtr> {
        const ia::LocalAggregate& op = aggregate_at(m[0]);
        const NodePtr partial = ia::make(ia::LocalAggregate{op.group_by, op.kernel.first()}, {m[1]->input(0)});
        ia::GridPlacement target = target_at(m[1]);
        for (ia::AxisState& state : target.states) {
          if (auto* split = std::get_if<ia::Split>(&state)) split->dim = *position_of(op.group_by, split->dim);
        }
        const Dims all = all_dims(static_cast<int64_t>(op.group_by.size()));
        return {ia::make(ia::LocalAggregate{all, op.kernel}, {shuffled(partial, target)})};
      }};
}

// --- R2-6 and R2-7: moves below joins --------------------------------------------------------------------------------

NodePtr joined(const NodePtr& like, const NodePtr& left, const NodePtr& right) {
  return ia::make(join_at(like), {left, right});
}

bool joins_by_keys(const NodePtr& node) { return !join_at(node).left_keys.empty(); }

Rule broadcast_right_instead() {
  return {
      "R2-6a",
      "J(B[a] L, R) = J(L, B[a] R)",
      "always",
      kTable2,
      join(broadcast(), any()),
      {},
      [](const Match& m) -> std::vector<NodePtr> { return {joined(m[0], m[2], broadcasted(m[3], axes_at(m[1])))}; }};
}

Rule broadcast_left_instead() {
  return {"R2-6b",
          "J(L, B[a] R) = J(B[a] L, R)",
          "always",
          kTable2,
          join(any(), broadcast()),
          {},
          [](const Match& m) -> std::vector<NodePtr> {
            return {joined(m[0], broadcasted(m[1], axes_at(m[2])), m[2]->input(0))};
          }};
}

Rule shuffle_instead_of_left() {
  return {"R2-6c",
          "J(B[a] L, R) = J(S[jl] L, S[jr] R)",
          "there are join keys; both shuffles split the axes a by the join keys, pair by pair on equal domains",
          kTable2Corrected,
          join(broadcast(), any()),
          [](const Match& m) { return joins_by_keys(m[0]); },
          [](const Match& m) -> std::vector<NodePtr> {
            const ia::LocalJoin& op = join_at(m[0]);
            const auto [left, right] = shuffled_to_meet(m[2], m[3], op.left_keys, op.right_keys, axes_at(m[1]));
            return {joined(m[0], left, right)};
          }};
}

Rule shuffle_instead_of_right() {
  return {"R2-6d",
          "J(L, B[a] R) = J(S[jl] L, S[jr] R)",
          "there are join keys; both shuffles split the axes a by the join keys, pair by pair on equal domains",
          kTable2Corrected,
          join(any(), broadcast()),
          [](const Match& m) { return joins_by_keys(m[0]); },
          [](const Match& m) -> std::vector<NodePtr> {
            const ia::LocalJoin& op = join_at(m[0]);
            const auto [left, right] =
                shuffled_to_meet(m[1], m[2]->input(0), op.left_keys, op.right_keys, axes_at(m[2]));
            return {joined(m[0], left, right)};
          }};
}

Rule broadcast_left_of_two() {
  return {
      "R2-6e",
      "J(S L, S R) = J(B L, R)",
      "always",
      kTable2,
      join(shuffle(), shuffle()),
      {},
      [](const Match& m) -> std::vector<NodePtr> { return {joined(m[0], broadcasted(m[2], all_axes(m[0])), m[4])}; }};
}

Rule broadcast_right_of_two() {
  return {
      "R2-6f",
      "J(S L, S R) = J(L, B R)",
      "always",
      kTable2,
      join(shuffle(), shuffle()),
      {},
      [](const Match& m) -> std::vector<NodePtr> { return {joined(m[0], m[2], broadcasted(m[4], all_axes(m[0])))}; }};
}

Rule join_without_shuffle() {
  return {"R2-7",
          "S[p](J(S[jl] L, S[jr] R)) = J(S[jl] L, S[jr] R)",
          "the join leaves tuples that agree on p on one site: jl is within p (printed the other way round)",
          kTable2Corrected,
          shuffle(join(shuffle(), shuffle())),
          [](const Match& m) { return placement_of(m[1]).keeps_together(split_dims(target_at(m[0]))); },
          [](const Match& m) -> std::vector<NodePtr> { return {m[1]}; }};
}

}  // namespace

std::vector<Rule> repartition_rules() {
  return {shuffle_after_move(),       broadcast_after_shuffle(), broadcast_after_broadcast(),
          filter_below_move(),        filter_above_move(),       map_below_move(),
          map_above_move(),           fold_without_move(),       fold_in_two_phases(),
          broadcast_right_instead(),  broadcast_left_instead(),  shuffle_instead_of_left(),
          shuffle_instead_of_right(), broadcast_left_of_two(),   broadcast_right_of_two(),
          join_without_shuffle()};
}

}  // namespace joinsum::optimizer
