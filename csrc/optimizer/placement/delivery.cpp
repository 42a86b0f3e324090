#include "optimizer/placement/delivery.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "optimizer/search/min_sum/rows.h"

namespace joinsum::optimizer {
namespace {

using Row = std::vector<double>;

/// Rows of one length, one after the other.
class Rows {
 public:
  Rows(size_t rows, size_t length, double entry) : length_(length), entries_(rows * length, entry) {}

  double* operator[](size_t row) { return entries_.data() + row * length_; }
  const double* operator[](size_t row) const { return entries_.data() + row * length_; }
  int64_t length() const { return static_cast<int64_t>(length_); }

 private:
  size_t length_;
  Row entries_;
};

/// Subsets of some readers, as bits, with what each asks together and what it pays if one move is for all of it.
class Groups {
 public:
  Groups(const Routes& routes, const std::vector<const Row*>& asked)
      : routes_(routes),
        count_(size_t{1} << asked.size()),
        asked_(count_, routes.needed.size(), 0),
        paid_(count_, routes.sources(), kForbidden),
        best_(count_, routes.columns(), 0) {
    for (size_t set = 1; set < count_; ++set) {
      const size_t lowest = std::countr_zero(set);
      std::copy_n(asked_[set & (set - 1)], asked_.length(), asked_[set]);
      min_sum::add_row(asked_[set], asked[lowest]->data(), asked_.length());
      for (size_t n = 0; n < routes.needed.size(); ++n) {
        if (asked_[set][n] == kForbidden) continue;
        min_sum::lower_row(paid_[set], routes.taking.data() + n * routes.sources(), asked_[set][n], paid_.length());
      }
    }
  }

  size_t count() const { return count_; }
  /// By needed place.
  const double* asked(size_t set) const { return asked_[set]; }

  /// For each subset the least that it pays where the value is made at `made`, by where it is put.
  const Rows& best(size_t made) {
    for (size_t set = 1; set < count_; ++set) {
      std::fill_n(best_[set], best_.length(), kForbidden);
      const size_t lowest = set & -set;
      const size_t others = set ^ lowest;
      for (size_t more = others;; more = (more - 1) & others) {
        const double* paid = paid_[lowest | more];
        min_sum::lower_limited_rows(best_[set], best_[others ^ more], paid + routes_.made.size(), paid[made],
                                    best_.length());
        if (more == 0) break;
      }
    }
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
  Groups groups(*routes_, readers);
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
  Groups groups(*routes_, others);
  const size_t made = routes_->made.size();
  // By the others that do not share the reader's move, what all costs but this move, by where it starts.
  Rows before(groups.count(), routes_->sources(), kForbidden);
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
  for (size_t set = 0; set < groups.count(); ++set) {
    const double* sharing = groups.asked(groups.count() - 1 - set);
    for (size_t source = 0; source < routes_->sources(); ++source) {
      if (before[set][source] == kForbidden) continue;
      min_sum::lower_rows(out.data(), routes_->taking_from.data() + source * out.size(), sharing, before[set][source],
                          static_cast<int64_t>(out.size()));
    }
  }
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
