#include "sparse/physical/loops.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "sparse/tensor/fills.h"

namespace joinsum::sparse::physical {
namespace {

using Kind = Expression::Kind;

/// Whether an operand is still read in its own order when `loop` follows `outer`, in whose order it was.
bool stays_concordant(const Access& access, IndexSet outer, int64_t loop) {
  size_t depth = 0;
  while (depth < access.indices.size() && contains(outer, access.indices[depth])) ++depth;
  return depth < access.indices.size() && access.indices[depth] == loop;
}

/// The operands that are transposed once `loop` follows `outer`.
uint64_t transposed_by(const std::vector<Access>& accesses, uint64_t transposed, IndexSet outer, int64_t loop) {
  for (size_t i = 0; i < accesses.size(); ++i) {
    const Access& access = accesses[i];
    if (access.is_result || contains(transposed, static_cast<int64_t>(i))) continue;
    if (!contains(access.term->free, loop) || stays_concordant(access, outer, loop)) continue;
    transposed |= only(static_cast<int64_t>(i));
  }
  return transposed;
}

/// Entries of the tensors that these accesses read, each once.
double stored_in(const std::vector<Access>& accesses, uint64_t chosen) {
  double stored = 0;
  std::set<std::string> counted;
  for (const int64_t i : members_of(chosen)) {
    if (counted.insert(accesses[i].term->tensor).second) stored += accesses[i].stored;
  }
  return stored;
}

// Times of the visits of an innermost loop that is the output's, beside those of others: a sum is no faster along dense
// operands, as it goes on element by element.
constexpr double kAlongDense = 0.25;
constexpr double kAcrossResult = 2;
/// Along a dense loop with more visits, operands leave the cache before they are read again.
constexpr double kMostInCache = 1 << 17;
/// Of a sum whose leader is sparse, into one element.
constexpr double kGathered = 2;
/// Of an entry that is transposed.
constexpr double kTransposed = 4;
/// Times of an element of a dense result that has left the cache before it is reduced again.
constexpr double kFromMemory = 0.5;
// Times of an element of a sparse result that is reduced out of order, into all of it or below its first levels.
constexpr double kScattered = 30;
constexpr double kScatteredInFiber = 2;

/// Prices loops of a kernel.
class Prices {
 public:
  Prices(const Terms& terms, const TermPtr& body, const std::vector<Access>& accesses, IndexSet loops,
         const LoopCost& by)
      : terms_(terms), iterations_(terms, body), accesses_(accesses), loops_(loops), by_(by) {
    if (!by_.written) return;
    for (const int64_t index : *by_.written) output_ |= only(index);
    const double entries = iterations_.of(output_);
    is_dense_result_ = 2 * entries >= extent_of(output_, terms_.space());
  }

  /// What `loop` costs below the `outer` ones.
  double of(IndexSet outer, int64_t loop) {
    if (!by_.written) return iterations_.of(outer | only(loop));
    const double walked = walked_by_leader(outer, loop);
    const double written = is_dense_result_ ? again(outer, loop) : out_of_order(outer, loop);
    if ((outer | only(loop)) != loops_) return walked + written;
    if (contains(output_, loop) && by_.written->back() != loop) return kAcrossResult * walked + written;
    if (!contains(output_, loop)) return (is_dense(outer, loop) ? walked : kGathered * walked) + written;
    const bool is_fast = is_dense(outer, loop) && extent_of(only(loop), terms_.space()) <= kMostInCache;
    return (is_fast ? kAlongDense * walked : walked) + written;
  }

  /// What it costs that these accesses are transposed: each tensor once.
  double of_transposed(uint64_t chosen) {
    const auto [found, is_new] = of_transposed_.emplace(chosen, 0);
    if (is_new) found->second = (by_.written ? kTransposed : 1) * stored_in(accesses_, chosen);
    return found->second;
  }

 private:
  /// Iterations of the innermost of these loops: the geometric mean of their bound, which is far above them where
  /// entries are many below few coordinates alone, and of their number for entries that lie evenly, which is far below
  /// them where that is so for all operands.
  double expected(IndexSet loops) {
    const auto [found, is_new] = expected_.emplace(loops, 0);
    if (!is_new) return found->second;
    double evenly = extent_of(loops, terms_.space());
    for (size_t i = 0; i < accesses_.size(); ++i) {
      const Access& access = accesses_[i];
      const IndexSet own = access.term->free & loops;
      if (!access.leads || own == 0 || reads_again(accesses_, i)) continue;
      evenly *= std::min(1.0, terms_.estimate(access.term) / extent_of(own, terms_.space()));
    }
    const double bound = iterations_.of(loops);
    found->second = std::sqrt(bound * std::min(bound, evenly));
    return found->second;
  }

  /// Entries that the leader walks, also where the others have none of them.
  double walked_by_leader(IndexSet outer, int64_t loop) {
    const double common = expected(outer | only(loop));
    const int64_t first = iterations_.leader(accesses_, outer, loop);
    if (first < 0) return common;
    return std::max(common, expected(outer) * iterations_.per_outer(accesses_[first].term, outer, loop));
  }

  /// What it costs that each iteration of a loop that is not the output's visits much of a dense result again.
  double again(IndexSet outer, int64_t loop) {
    if (contains(output_, loop)) return 0;
    const IndexSet here = outer | only(loop);
    const double visits = expected(here | output_);
    return visits <= kMostInCache * expected(here) ? 0 : kFromMemory * visits;
  }

  /// What it costs that the loops above one of the output's are not the output's indices before it.
  double out_of_order(IndexSet outer, int64_t loop) {
    IndexSet before = 0;
    for (const int64_t index : *by_.written) {
      if (index == loop) break;
      before |= only(index);
    }
    if (!contains(output_, loop)) return 0;
    // Loops between that visit one coordinate leave it in order.
    if ((before & ~outer) == 0 && iterations_.of(outer) <= iterations_.of(before)) return 0;
    return (before == 0 ? kScattered : kScatteredInFiber) * expected(outer | output_);
  }

  /// Whether what visits a loop stores most of its range.
  bool is_dense(IndexSet outer, int64_t loop) const {
    const int64_t leader = iterations_.leader(accesses_, outer, loop);
    for (size_t i = 0; i < accesses_.size(); ++i) {
      if (!contains(accesses_[i].term->free, loop) || (leader >= 0 && leader != static_cast<int64_t>(i))) continue;
      if (2 * iterations_.per_outer(accesses_[i].term, outer, loop) < extent_of(only(loop), terms_.space()))
        return false;
    }
    return true;
  }

  const Terms& terms_;
  Iterations iterations_;
  const std::vector<Access>& accesses_;
  IndexSet loops_;
  const LoopCost& by_;
  IndexSet output_ = 0;
  bool is_dense_result_ = true;
  std::map<uint64_t, double> of_transposed_;
  std::map<IndexSet, double> expected_;
};

struct Partial {
  double cost = 0;
  std::vector<int64_t> loops = {};
};

/// Orders of one set of loops by the operands that they transpose, without those that are dominated.
using Frontier = std::map<uint64_t, Partial>;

void add(Frontier& frontier, uint64_t transposed, Partial partial) {
  for (const auto& [other, known] : frontier) {
    if ((other & ~transposed) == 0 && known.cost <= partial.cost) return;
  }
  std::erase_if(frontier,
                [&](const auto& each) { return (transposed & ~each.first) == 0 && partial.cost <= each.second.cost; });
  frontier[transposed] = std::move(partial);
}

/// Always the loop that costs least next.
std::vector<int64_t> greedy_order(const Terms& terms, Prices& prices, const std::vector<Access>& accesses,
                                  IndexSet loops) {
  std::vector<int64_t> order;
  IndexSet outer = 0;
  uint64_t transposed = 0;
  while (outer != loops) {
    int64_t best = -1;
    double least = 0;
    for (const int64_t loop : by_name(terms, loops & ~outer)) {
      const uint64_t now = transposed_by(accesses, transposed, outer, loop);
      const double moved = prices.of_transposed(now) - prices.of_transposed(transposed);
      const double cost = prices.of(outer, loop) + moved;
      if (best >= 0 && cost >= least) continue;
      best = loop;
      least = cost;
    }
    transposed = transposed_by(accesses, transposed, outer, best);
    outer |= only(best);
    order.push_back(best);
  }
  return order;
}

}  // namespace

bool reads_again(const std::vector<Access>& accesses, size_t access) {
  const auto end = accesses.begin() + static_cast<std::ptrdiff_t>(access);
  return std::any_of(accesses.begin(), end, [&](const Access& earlier) {
    return earlier.term->tensor == end->term->tensor && earlier.term->indices == end->term->indices;
  });
}

double Iterations::of(IndexSet loops) {
  const auto [found, is_new] = known_.emplace(loops, 0);
  if (!is_new) return found->second;
  const StatisticsPtr statistics = restricted(body_, loops);
  const double entries = statistics == nullptr ? 1 : terms_.estimate(statistics);
  found->second = entries * extent_of(loops & ~body_->free, terms_.space());
  return found->second;
}

double Iterations::projected(const TermPtr& operand, IndexSet loops) const {
  return terms_.estimate(terms_.estimator().aggregate(terms_.statistics(operand), loops, terms_.space()));
}

double Iterations::per_outer(const TermPtr& operand, IndexSet outer, int64_t loop) const {
  return projected(operand, outer | only(loop)) / std::max(projected(operand, outer), 1e-300);
}

int64_t Iterations::leader(const std::vector<Access>& accesses, IndexSet outer, int64_t loop) const {
  int64_t leader = -1;
  double fewest = 0;
  for (size_t i = 0; i < accesses.size(); ++i) {
    if (!accesses[i].leads || !contains(accesses[i].term->free, loop)) continue;
    const double entries = per_outer(accesses[i].term, outer, loop);
    if (leader >= 0 && entries >= fewest) continue;
    leader = static_cast<int64_t>(i);
    fewest = entries;
  }
  return leader;
}

/// Null for what has none of the loops.
StatisticsPtr Iterations::restricted(const TermPtr& term, IndexSet loops) const {
  if ((term->free & loops) == 0) return nullptr;
  if (term->is(Kind::kInput)) return terms_.estimator().aggregate(terms_.statistics(term), loops, terms_.space());
  std::vector<StatisticsPtr> deciding, others;
  bool decided = false;
  for (const TermPtr& child : term->children) {
    const bool decides = tensor::decides(term->op, child->fill, term->fill);
    decided = decided || decides;
    const StatisticsPtr statistics = restricted(child, loops);
    if (statistics != nullptr) (decides ? deciding : others).push_back(statistics);
  }
  const IndexSet indices = term->free & loops;
  // Those that annihilate alone say where the map is at its fill; without any of the loops that is nowhere.
  if (decided && deciding.empty()) return everything(indices);
  if (!deciding.empty()) return terms_.estimator().join(deciding, indices, terms_.space());
  return terms_.estimator().unite(others, indices, terms_.space());
}

/// All coordinates: a stored number, repeated along the indices.
StatisticsPtr Iterations::everything(IndexSet indices) const {
  tensor::Tensor number;
  number.values = {DType::kFloat64, tensor::Array<std::byte>(std::vector<std::byte>(sizeof(double)))};
  const program::InputTensor stored{{}, 0, std::make_shared<const tensor::Tensor>(std::move(number)), 1, {}};
  return terms_.estimator().join({terms_.estimator().of_tensor(stored)}, indices, terms_.space());
}

LoopOrder count_order(const Terms& terms, const TermPtr& body, const std::vector<Access>& accesses,
                      const std::vector<int64_t>& loops, const LoopCost& by) {
  IndexSet all = 0;
  for (const int64_t loop : loops) all |= only(loop);
  Prices prices(terms, body, accesses, all, by);
  LoopOrder order{.loops = loops};
  IndexSet outer = 0;
  uint64_t transposed = 0;
  for (const int64_t loop : loops) {
    transposed = transposed_by(accesses, transposed, outer, loop);
    order.iterations.push_back(prices.of(outer, loop));
    outer |= only(loop);
    order.cost += order.iterations.back();
  }
  for (const int64_t i : members_of(transposed)) order.transposed.insert(static_cast<size_t>(i));
  order.cost += prices.of_transposed(transposed);
  return order;
}

LoopOrder cheapest_order(const Terms& terms, const TermPtr& body, const std::vector<Access>& accesses, IndexSet loops,
                         int64_t most_loops, const LoopCost& by) {
  JOINSUM_USER_CHECK(accesses.size() <= 64,
                     "sparse program: too many operands in one kernel: operands=", accesses.size(), ", most=64");
  Prices prices(terms, body, accesses, loops, by);
  LoopOrder best = count_order(terms, body, accesses, greedy_order(terms, prices, accesses, loops), by);
  if (std::popcount(loops) > most_loops) {
    best.optimal = false;
    return best;
  }
  const double limit = best.cost + 1e-12 * std::abs(best.cost);
  const std::vector<int64_t> members = by_name(terms, loops);
  // Sets in the order of their sizes, so that each is complete before it is extended.
  std::map<int64_t, std::map<IndexSet, Frontier>> table;
  table[0][0] = {{0, Partial()}};
  for (int64_t size = 0; size < std::popcount(loops); ++size) {
    for (const auto& [outer, frontier] : table[size]) {
      for (const int64_t loop : members) {
        if (contains(outer, loop)) continue;
        const double more = prices.of(outer, loop);
        for (const auto& [transposed, partial] : frontier) {
          const uint64_t now = transposed_by(accesses, transposed, outer, loop);
          const double moved = prices.of_transposed(now) - prices.of_transposed(transposed);
          const double cost = partial.cost + more + moved;
          if (cost > limit) continue;
          Partial next{cost, partial.loops};
          next.loops.push_back(loop);
          add(table[size + 1][outer | only(loop)], now, std::move(next));
        }
      }
    }
    table.erase(size);
  }
  for (const auto& [transposed, partial] : table[std::popcount(loops)][loops]) {
    if (partial.cost >= best.cost) continue;
    best = count_order(terms, body, accesses, partial.loops, by);
  }
  return best;
}

}  // namespace joinsum::sparse::physical
