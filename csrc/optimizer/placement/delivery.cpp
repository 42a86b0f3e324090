#include "optimizer/placement/delivery.h"

#include <algorithm>
#include <bit>

#include "optimizer/search/min_sum/rows.h"

namespace joinsum::optimizer {
namespace {

using Row = std::vector<double>;

double least_of(const Row& row) { return *std::min_element(row.begin(), row.end()); }

/// Subsets of some readers, as bits, with what each asks together and what it pays if one move is for all of it.
class Groups {
 public:
  Groups(const Routes& routes, const std::vector<const Row*>& asked) : routes_(routes) {
    const size_t count = size_t{1} << asked.size();
    asked_.assign(count, Row(routes.needed.size(), 0));
    paid_.assign(count, Row(routes.sources(), kForbidden));
    for (size_t set = 1; set < count; ++set) {
      const size_t lowest = std::countr_zero(set);
      asked_[set] = asked_[set & (set - 1)];
      min_sum::add_row(asked_[set].data(), asked[lowest]->data(), static_cast<int64_t>(asked_[set].size()));
      for (size_t n = 0; n < routes.needed.size(); ++n) {
        if (asked_[set][n] == kForbidden) continue;
        min_sum::lower_row(paid_[set].data(), routes.taking.data() + n * routes.sources(), asked_[set][n],
                           static_cast<int64_t>(routes.sources()));
      }
    }
    for (size_t set = 0; set < count; ++set) best_.emplace_back(routes.columns(), 0.0);
  }

  size_t count() const { return asked_.size(); }
  const Row& asked(size_t set) const { return asked_[set]; }

  /// For each subset the least that it pays where the value is made at `made`, by where it is put.
  const std::vector<Row>& best(size_t made) {
    for (size_t set = 1; set < count(); ++set) {
      std::fill(best_[set].begin(), best_[set].end(), kForbidden);
      const size_t lowest = set & -set;
      const size_t others = set ^ lowest;
      for (size_t more = others;; more = (more - 1) & others) {
        const Row& paid = paid_[lowest | more];
        min_sum::lower_limited_rows(best_[set].data(), best_[others ^ more].data(), paid.data() + routes_.made.size(),
                                    paid[made], static_cast<int64_t>(routes_.columns()));
        if (more == 0) break;
      }
    }
    return best_;
  }

 private:
  const Routes& routes_;
  std::vector<Row> asked_;  ///< by subset and needed place
  std::vector<Row> paid_;   ///< by subset and source
  std::vector<Row> best_;   ///< by subset and place to put
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

std::vector<double> Delivery::message_to(size_t member, const Asked& asked) const {
  return member == 0 ? to_maker(asked) : to_reader(member, asked);
}

double Delivery::least(const Asked& asked) const {
  const Row message = to_maker(asked);
  double out = kForbidden;
  for (size_t m = 0; m < message.size(); ++m) out = std::min(out, asked[0][m] + message[m]);
  return out;
}

std::vector<double> Delivery::to_maker(const Asked& asked) const {
  std::vector<const Row*> readers;
  for (size_t i = 1; i <= readers_; ++i) readers.push_back(&asked[i]);
  Groups groups(*routes_, readers);
  Row out;
  for (size_t m = 0; m < routes_->made.size(); ++m) {
    Row costs = groups.best(m).back();
    min_sum::add_row(costs.data(), routes_->putting.data() + m * routes_->columns(),
                     static_cast<int64_t>(costs.size()));
    out.push_back(least_of(costs));
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
  const auto columns = static_cast<int64_t>(routes_->columns());
  // By the others that do not share the reader's move, what all costs but this move, by where it starts.
  std::vector<Row> before(groups.count(), Row(routes_->sources(), kForbidden));
  Row costs(columns);
  for (size_t m = 0; m < made; ++m) {
    if (asked[0][m] == kForbidden) continue;
    const std::vector<Row>& best = groups.best(m);
    for (size_t set = 0; set < groups.count(); ++set) {
      std::copy(best[set].begin(), best[set].end(), costs.begin());
      min_sum::add_row(costs.data(), routes_->putting.data() + m * columns, columns);
      before[set][m] = asked[0][m] + least_of(costs);
      min_sum::lower_row(before[set].data() + made, costs.data(), asked[0][m], columns);
    }
  }
  Row out(routes_->needed.size(), kForbidden);
  for (size_t set = 0; set < groups.count(); ++set) {
    const Row& sharing = groups.asked(groups.count() - 1 - set);
    for (size_t source = 0; source < routes_->sources(); ++source) {
      if (before[set][source] == kForbidden) continue;
      min_sum::lower_rows(out.data(), routes_->taking_from.data() + source * out.size(), sharing.data(),
                          before[set][source], static_cast<int64_t>(out.size()));
    }
  }
  return out;
}

Delivered delivered(const Routes& routes, size_t made, std::vector<size_t> needed) {
  std::sort(needed.begin(), needed.end());
  needed.erase(std::unique(needed.begin(), needed.end()), needed.end());
  Delivered best{kForbidden, routes.put.size()};
  // Nowhere comes first: what is no cheaper is not put.
  for (size_t i = 0; i < routes.columns(); ++i) {
    const size_t put = routes.put.size() - i;
    double cost = routes.putting[made * routes.columns() + put];
    for (const size_t n : needed) {
      const double* from = routes.taking.data() + n * routes.sources();
      cost += std::min(from[made], from[routes.made.size() + put]);
    }
    if (cost < best.cost) best = {cost, put};
  }
  return best;
}

}  // namespace joinsum::optimizer
