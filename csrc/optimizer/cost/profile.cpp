#include "optimizer/cost/profile.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"

namespace joinsum::optimizer::cost {
namespace {

constexpr double kUnknown = -1;

/// How far apart two counts are, in powers of two.
double distance(int64_t a, int64_t b) {
  return std::abs(std::log2(static_cast<double>(a + 1) / static_cast<double>(b + 1)));
}

/// The entry with the least `cost`; null where there is none.
template <class Entry, class Cost>
const Entry* nearest(const std::vector<Entry>& entries, Cost cost) {
  const auto found = std::min_element(entries.begin(), entries.end(),
                                      [&](const Entry& a, const Entry& b) { return cost(a) < cost(b); });
  return found == entries.end() ? nullptr : &*found;
}

double reduction_seconds(const std::vector<ReductionProfile>& reductions, int64_t element_bytes, double elements,
                         Curve ReductionProfile::* curve) {
  const auto* reduction =
      nearest(reductions, [&](const ReductionProfile& r) { return distance(r.element_bytes, element_bytes); });
  return reduction == nullptr || (reduction->*curve).empty() ? kUnknown : (reduction->*curve).at(elements);
}

}  // namespace

Curve::Curve(const std::string& what, std::vector<double> sizes, std::vector<double> seconds)
    : sizes_(std::move(sizes)), seconds_(std::move(seconds)) {
  JOINSUM_USER_CHECK(!sizes_.empty() && sizes_.size() == seconds_.size(),
                     "profile: a curve has as many sizes as seconds, at least one: curve=", what,
                     ", sizes=", sizes_.size(), ", seconds=", seconds_.size());
  for (size_t i = 0; i < sizes_.size(); ++i) {
    JOINSUM_USER_CHECK(std::isfinite(sizes_[i]) && sizes_[i] >= 0 && (i == 0 || sizes_[i] > sizes_[i - 1]),
                       "profile: sizes of a curve ascend: curve=", what, ", index=", i, ", size=", sizes_[i]);
    JOINSUM_USER_CHECK(std::isfinite(seconds_[i]) && seconds_[i] >= 0 && (i == 0 || seconds_[i] >= seconds_[i - 1]),
                       "profile: seconds of a curve never fall: curve=", what, ", index=", i,
                       ", seconds=", seconds_[i]);
  }
}

double Curve::at(double size) const {
  if (size <= sizes_.front() || sizes_.size() == 1) return seconds_.front();
  const auto above = std::upper_bound(sizes_.begin(), sizes_.end(), size);
  const size_t i = std::clamp<size_t>(above - sizes_.begin(), 1, sizes_.size() - 1);
  const double slope = (seconds_[i] - seconds_[i - 1]) / (sizes_[i] - sizes_[i - 1]);
  return seconds_[i - 1] + slope * (size - sizes_[i - 1]);
}

ProductProfile::ProductProfile(DType dtype, const std::vector<double>& extents, const std::vector<double>& seconds)
    : dtype_(dtype) {
  const size_t n = extents.size();
  JOINSUM_USER_CHECK(n >= 2 && seconds.size() == n * n * n,
                     "profile: products have seconds for every triple of two or more extents: extents=", n,
                     ", seconds=", seconds.size());
  for (size_t i = 0; i < n; ++i) {
    JOINSUM_USER_CHECK(std::isfinite(extents[i]) && extents[i] >= 1 && (i == 0 || extents[i] > extents[i - 1]),
                       "profile: extents of products ascend from 1 or more: index=", i, ", extent=", extents[i]);
    log_extents_.push_back(std::log(extents[i]));
  }
  for (size_t i = 0; i < seconds.size(); ++i) {
    JOINSUM_USER_CHECK(std::isfinite(seconds[i]) && seconds[i] > 0,
                       "profile: seconds of a product are positive: index=", i, ", seconds=", seconds[i]);
    log_seconds_.push_back(std::log(seconds[i]));
  }
}

double ProductProfile::first() const { return std::exp(log_seconds_.front()); }

double ProductProfile::at(double rows, double inner, double columns) const {
  const size_t n = log_extents_.size();
  std::array<size_t, 3> low{};
  std::array<double, 3> part{};
  double beyond = 0;
  const std::array<double, 3> extents{rows, inner, columns};
  for (size_t i = 0; i < 3; ++i) {
    const double extent = std::log(std::max(extents[i], 1.0));
    const double inside = std::clamp(extent, log_extents_.front(), log_extents_.back());
    beyond += std::max(extent - log_extents_.back(), 0.0);
    const auto above = std::upper_bound(log_extents_.begin(), log_extents_.end(), inside);
    low[i] = std::clamp<size_t>(above - log_extents_.begin(), 1, n - 1) - 1;
    part[i] = (inside - log_extents_[low[i]]) / (log_extents_[low[i] + 1] - log_extents_[low[i]]);
  }
  double seconds = 0;
  for (size_t corner = 0; corner < 8; ++corner) {
    double weight = 1;
    size_t index = 0;
    for (size_t i = 0; i < 3; ++i) {
      const size_t up = corner >> i & 1;
      weight *= up == 1 ? part[i] : 1 - part[i];
      index = index * n + low[i] + up;
    }
    if (weight > 0) seconds += weight * log_seconds_[index];
  }
  return std::exp(seconds + beyond);
}

const LinkProfile* Profile::link(const Dims& axes) const {
  const LinkProfile* best = nullptr;
  for (const LinkProfile& link : links) {
    if (!std::includes(link.axes.begin(), link.axes.end(), axes.begin(), axes.end())) continue;
    if (best == nullptr || link.axes.size() < best->axes.size()) best = &link;
  }
  return best;
}

double Profile::product(DType dtype, double rows, double inner, double columns) const {
  const auto far = [&](const ProductProfile& p) {
    return p.dtype() == dtype ? 0 : 1 + distance(byte_size(p.dtype()), byte_size(dtype));
  };
  const auto* table = nearest(products, far);
  return table == nullptr ? kUnknown : beyond_node(table->at(rows, inner, columns));
}

double Profile::elementwise_call(const kernels::table::Row& row, int64_t element_bytes, double elements) const {
  const auto far = [&](const ElementwiseProfile& e) {
    return 16 * distance(e.operands, row.operands) + 2 * distance(e.flops_per_element, row.flops_per_element) +
           (e.domain == row.domain ? 0 : 0.5) + 4 * distance(e.element_bytes, element_bytes);
  };
  const auto* entry = nearest(elementwise, far);
  return entry == nullptr ? kUnknown : beyond_node(entry->seconds.at(elements));
}

double Profile::elementwise_call(const kernels::table::Kernel& kernel, int64_t element_bytes, double elements) const {
  kernels::table::Row called{.name = kernel.name, .summary = {}};
  called.operands = kernels::table::operands_of(kernel);
  called.domain = kernels::table::row_of(kernel).domain;
  called.flops_per_element = kernels::table::flops_per_element(kernel);
  return elementwise_call(called, element_bytes, elements);
}

double Profile::row_reduction(int64_t element_bytes, double elements) const {
  const double seconds = reduction_seconds(reductions, element_bytes, elements, &ReductionProfile::rows);
  return seconds < 0 ? kUnknown : beyond_node(seconds);
}

double Profile::key_reduction(int64_t element_bytes, double elements) const {
  const double seconds = reduction_seconds(reductions, element_bytes, elements, &ReductionProfile::keys);
  return seconds < 0 ? kUnknown : beyond_node(seconds);
}

double Profile::copy(double bytes) const { return copies.empty() ? kUnknown : bytes > 0 ? copies.at(bytes) : 0; }

}  // namespace joinsum::optimizer::cost
