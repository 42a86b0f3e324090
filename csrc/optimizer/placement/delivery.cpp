#include "optimizer/placement/delivery.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "optimizer/search/min_sum/rows.h"

namespace joinsum::optimizer {
namespace {

using Row = std::vector<double>;

/// Rows of one length, one after the other, in memory that others have used.
class Rows {
 public:
  Rows(Row& memory, size_t rows, size_t length, double entry) : length_(length), entries_(memory) {
    entries_.assign(rows * length, entry);
  }

  double* operator[](size_t row) { return entries_.data() + row * length_; }
  const double* operator[](size_t row) const { return entries_.data() + row * length_; }
  int64_t length() const { return static_cast<int64_t>(length_); }

 private:
  size_t length_;
  Row& entries_;
};

/// Subsets of some readers, as bits, with what each asks together and what it pays if one move is for all of it.
class Groups {
 public:
  Groups(const Routes& routes, const std::vector<const Row*>& asked, MessageMemory& memory)
      : routes_(routes),
        count_(size_t{1} << asked.size()),
        asked_(memory.row(0), count_, routes.needed.size(), 0),
        paid_(memory.row(1), count_, routes.sources(), kForbidden),
        best_(memory.row(2), count_, routes.columns(), 0) {
    for (size_t set = 1; set < count_; ++set) {
      const size_t lowest = std::countr_zero(set);
      std::copy_n(asked_[set & (set - 1)], asked_.length(), asked_[set]);
      min_sum::add_row(asked_[set], asked[lowest]->data(), asked_.length());
    }
    min_sum::lower_product(paid_[1], asked_[1], routes.taking.data(), static_cast<int64_t>(count_) - 1, asked_.length(),
                           paid_.length());
  }

  size_t count() const { return count_; }
  /// By needed place.
  const double* asked(size_t set) const { return asked_[set]; }

  /// For each subset the least that it pays where the value is made at `made`, by where it is put.
  const Rows& best(size_t made) {
    min_sum::lower_groups(best_[0], paid_[0] + routes_.made.size(), paid_[0] + made, static_cast<int64_t>(count_),
                          best_.length(), paid_.length());
    return best_;
  }

 private:
  const Routes& routes_;
  size_t count_;
  Rows asked_;
  Rows paid_;  ///< by source
  Rows best_;
};

}  // namespace

bool Routes::free() const {
  const auto nothing = [](double price) { return price == 0; };
  for (size_t m = 0; m < made.size(); ++m) {
    const double* from = taking_from.data() + m * needed.size();
    if (putting[m * columns() + put.size()] != 0 || !std::all_of(from, from + needed.size(), nothing)) return false;
  }
  return true;
}

double Delivery::entries(const Routes& routes, size_t readers) {
  const double ways = std::pow(3.0, static_cast<double>(readers) - 1);
  return ways * static_cast<double>(routes.made.size() * routes.columns()) +
         static_cast<double>(routes.needed.size() * routes.sources());
}

std::vector<double> Delivery::message_to(size_t member, const Asked& asked) const {
  return memory_->message(routes_.get(), member, asked, entries(),
                          [&] { return member == 0 ? to_maker(asked) : to_reader(member, asked); });
}

double Delivery::least(const Asked& asked) const {
  const Row message = message_to(0, asked);
  double out = kForbidden;
  for (size_t m = 0; m < message.size(); ++m) out = std::min(out, asked[0][m] + message[m]);
  return out;
}

/// Nothing is said of places that nothing makes.
std::vector<double> Delivery::to_maker(const Asked& asked) const {
  std::vector<const Row*> readers;
  for (size_t i = 1; i <= readers_; ++i) readers.push_back(&asked[i]);
  Groups groups(*routes_, readers, *memory_);
  Row out(routes_->made.size(), kForbidden);
  for (size_t m = 0; m < out.size(); ++m) {
    if (asked[0][m] == kForbidden) continue;
    const Rows& best = groups.best(m);
    out[m] =
        min_sum::least_of_rows(best[groups.count() - 1], routes_->putting.data() + m * best.length(), best.length());
  }
  return out;
}

std::vector<double> Delivery::to_reader(size_t reader, const Asked& asked) const {
  std::vector<const Row*> others;
  for (size_t i = 1; i <= readers_; ++i) {
    if (i != reader) others.push_back(&asked[i]);
  }
  Groups groups(*routes_, others, *memory_);
  const size_t made = routes_->made.size();
  // By the others that do not share the reader's move, what all costs but this move, by where it starts.
  Rows before(memory_->row(3), groups.count(), routes_->sources(), kForbidden);
  for (size_t m = 0; m < made; ++m) {
    if (asked[0][m] == kForbidden) continue;
    const Rows& best = groups.best(m);
    const double* putting = routes_->putting.data() + m * best.length();
    for (size_t set = 0; set < groups.count(); ++set) {
      before[set][m] = asked[0][m] + min_sum::least_of_rows(best[set], putting, best.length());
      min_sum::lower_rows(before[set] + made, best[set], putting, asked[0][m], best.length());
    }
  }
  Row out(routes_->needed.size(), kForbidden);
  Rows taken(memory_->row(4), groups.count(), out.size(), kForbidden);
  min_sum::lower_product(taken[0], before[0], routes_->taking_from.data(), static_cast<int64_t>(groups.count()),
                         before.length(), taken.length());
  for (size_t set = 0; set < groups.count(); ++set)
    min_sum::lower_rows(out.data(), taken[set], groups.asked(groups.count() - 1 - set), 0, taken.length());
  return out;
}

std::vector<double> costs_by_put(const Routes& routes, size_t made, std::vector<size_t>& needed) {
  std::sort(needed.begin(), needed.end());
  needed.erase(std::unique(needed.begin(), needed.end()), needed.end());
  const double* putting = routes.putting.data() + made * routes.columns();
  Row costs(putting, putting + routes.columns());
  for (const size_t n : needed) {
    const double* from = routes.taking.data() + n * routes.sources();
    min_sum::add_limited_row(costs.data(), from + routes.made.size(), from[made],
                             static_cast<int64_t>(routes.columns()));
  }
  return costs;
}

std::vector<double> delivered_beside(const Routes& routes, size_t made, std::vector<size_t> needed,
                                     const std::vector<size_t>& places) {
  const Row costs = costs_by_put(routes, made, needed);
  const double least = *std::min_element(costs.begin(), costs.end());
  Row out;
  for (const size_t n : places) {
    const double* from = routes.taking.data() + n * routes.sources();
    const bool there = std::binary_search(needed.begin(), needed.end(), n);
    out.push_back(there ? least
                        : min_sum::least_of_limited_rows(costs.data(), from + routes.made.size(), from[made],
                                                         static_cast<int64_t>(routes.columns())));
  }
  return out;
}

Delivered delivered(const Routes& routes, size_t made, std::vector<size_t> needed) {
  const Row costs = costs_by_put(routes, made, needed);
  // Nowhere, the last, comes first: what is no cheaper is not put.
  const auto best = std::min_element(costs.rbegin(), costs.rend());
  return {*best, static_cast<size_t>(costs.rend() - best) - 1};
}

}  // namespace joinsum::optimizer
