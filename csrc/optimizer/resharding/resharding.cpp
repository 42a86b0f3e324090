#include "optimizer/resharding/resharding.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "optimizer/min_sum/rows.h"

namespace joinsum::optimizer::resharding {
namespace {

using Row = std::vector<double>;

/// Rows of one length, one after the other, in scratch memory.
class Rows {
 public:
  Rows(Row& cache, size_t rows, size_t length, double entry) : length_(length), entries_(cache) {
    entries_.assign(rows * length, entry);
  }

  double* operator[](size_t row) { return entries_.data() + row * length_; }
  const double* operator[](size_t row) const { return entries_.data() + row * length_; }
  int64_t length() const { return static_cast<int64_t>(length_); }

 private:
  size_t length_;
  Row& entries_;
};

/// The subsets of some readers, as bits: the charges of each, summed, and its cost if one move serves all of it.
class Groups {
 public:
  Groups(const Routes& routes, const std::vector<const Row*>& messages, MessageCache& cache)
      : routes_(routes),
        count_(size_t{1} << messages.size()),
        messages_(cache.row(0), count_, routes.required.size(), 0),
        allotted_(cache.row(1), count_, routes.sources(), min_sum::kForbidden),
        best_(cache.row(2), count_, routes.columns(), 0) {
    for (size_t set = 1; set < count_; ++set) {
      const size_t lowest = std::countr_zero(set);
      std::copy_n(messages_[set & (set - 1)], messages_.length(), messages_[set]);
      min_sum::add_row(messages_[set], messages[lowest]->data(), messages_.length());
    }
    min_sum::lower_product(allotted_[1], messages_[1], routes.fetch_costs.data(), static_cast<int64_t>(count_) - 1,
                           messages_.length(), allotted_.length());
  }

  size_t count() const { return count_; }
  /// By required layout.
  const double* messages(size_t set) const { return messages_[set]; }

  /// For each subset of readers the least cost of its moves if the value is produced in `produced`, by staging layout.
  const Rows& best(size_t produced) {
    min_sum::lower_groups(best_[0], allotted_[0] + routes_.produced.size(), allotted_[0] + produced,
                          static_cast<int64_t>(count_), best_.length(), allotted_.length());
    return best_;
  }

 private:
  const Routes& routes_;
  size_t count_;
  Rows messages_;
  Rows allotted_;  ///< by source
  Rows best_;
};

}  // namespace

bool Routes::free() const {
  const auto nothing = [](double price) { return price == 0; };
  for (size_t m = 0; m < produced.size(); ++m) {
    const double* from = fetch_costs_by_source.data() + m * required.size();
    if (staging_costs[m * columns() + staged.size()] != 0 || !std::all_of(from, from + required.size(), nothing))
      return false;
  }
  return true;
}

double Resharding::entries(const Routes& routes, size_t readers) {
  const double partitions = std::pow(3.0, static_cast<double>(readers) - 1);
  return partitions * static_cast<double>(routes.produced.size() * routes.columns()) +
         static_cast<double>(routes.required.size() * routes.sources());
}

std::vector<double> Resharding::message_to(size_t member, const Messages& messages) const {
  return cache_->message(routes_.get(), member, messages, entries(*routes_, readers_),
                         [&] { return member == 0 ? to_producer(messages) : to_reader(member, messages); });
}

double Resharding::least(const Messages& messages) const {
  const Row message = message_to(0, messages);
  double out = min_sum::kForbidden;
  for (size_t m = 0; m < message.size(); ++m) out = std::min(out, messages[0][m] + message[m]);
  return out;
}

/// Layouts that the producer excludes are forbidden.
std::vector<double> Resharding::to_producer(const Messages& messages) const {
  std::vector<const Row*> readers;
  for (size_t i = 1; i <= readers_; ++i) readers.push_back(&messages[i]);
  Groups groups(*routes_, readers, *cache_);
  Row out(routes_->produced.size(), min_sum::kForbidden);
  for (size_t m = 0; m < out.size(); ++m) {
    if (messages[0][m] == min_sum::kForbidden) continue;
    const Rows& best = groups.best(m);
    out[m] = min_sum::least_of_rows(best[groups.count() - 1], routes_->staging_costs.data() + m * best.length(),
                                    best.length());
  }
  return out;
}

std::vector<double> Resharding::to_reader(size_t reader, const Messages& messages) const {
  std::vector<const Row*> others;
  for (size_t i = 1; i <= readers_; ++i) {
    if (i != reader) others.push_back(&messages[i]);
  }
  Groups groups(*routes_, others, *cache_);
  const size_t produced = routes_->produced.size();
  // For each set of other readers that do not share the reader's move: the cost of everything but this move, by its
  // source.
  Rows before(cache_->row(3), groups.count(), routes_->sources(), min_sum::kForbidden);
  for (size_t m = 0; m < produced; ++m) {
    if (messages[0][m] == min_sum::kForbidden) continue;
    const Rows& best = groups.best(m);
    const double* staging_costs = routes_->staging_costs.data() + m * best.length();
    for (size_t set = 0; set < groups.count(); ++set) {
      before[set][m] = messages[0][m] + min_sum::least_of_rows(best[set], staging_costs, best.length());
      min_sum::lower_rows(before[set] + produced, best[set], staging_costs, messages[0][m], best.length());
    }
  }
  Row out(routes_->required.size(), min_sum::kForbidden);
  Rows taken(cache_->row(4), groups.count(), out.size(), min_sum::kForbidden);
  min_sum::lower_product(taken[0], before[0], routes_->fetch_costs_by_source.data(),
                         static_cast<int64_t>(groups.count()), before.length(), taken.length());
  for (size_t set = 0; set < groups.count(); ++set)
    min_sum::lower_rows(out.data(), taken[set], groups.messages(groups.count() - 1 - set), 0, taken.length());
  return out;
}

std::vector<double> costs_by_staged(const Routes& routes, size_t produced, std::vector<size_t>& required) {
  std::sort(required.begin(), required.end());
  required.erase(std::unique(required.begin(), required.end()), required.end());
  const double* staging_costs = routes.staging_costs.data() + produced * routes.columns();
  Row costs(staging_costs, staging_costs + routes.columns());
  for (const size_t n : required) {
    const double* from = routes.fetch_costs.data() + n * routes.sources();
    min_sum::add_limited_row(costs.data(), from + routes.produced.size(), from[produced],
                             static_cast<int64_t>(routes.columns()));
  }
  return costs;
}

std::vector<double> resharding_cost_beside(const Routes& routes, size_t produced, std::vector<size_t> required,
                                           const std::vector<size_t>& layouts) {
  const Row costs = costs_by_staged(routes, produced, required);
  const double least = *std::min_element(costs.begin(), costs.end());
  Row out;
  for (const size_t n : layouts) {
    const double* from = routes.fetch_costs.data() + n * routes.sources();
    const bool there = std::binary_search(required.begin(), required.end(), n);
    out.push_back(there ? least
                        : min_sum::least_of_limited_rows(costs.data(), from + routes.produced.size(), from[produced],
                                                         static_cast<int64_t>(routes.columns())));
  }
  return out;
}

ReshardingCost resharding_cost(const Routes& routes, size_t produced, std::vector<size_t> required) {
  const Row costs = costs_by_staged(routes, produced, required);
  // The last, no staging, comes first: ties are not staged.
  const auto best = std::min_element(costs.rbegin(), costs.rend());
  return {*best, static_cast<size_t>(costs.rend() - best) - 1};
}

}  // namespace joinsum::optimizer::resharding
