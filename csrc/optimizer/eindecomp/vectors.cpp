#include "optimizer/eindecomp/vectors.h"

#include <algorithm>
#include <bit>

namespace joinsum::optimizer::eindecomp {
namespace {

constexpr int64_t kMostCalls = int64_t{1} << 30;
constexpr size_t kMostVectors = 1'000'000;

/// Gives parts to one label after the other.
class Enumeration {
 public:
  Enumeration(const Dims& extents, int64_t calls) : extents_(extents), parts_(extents.size(), 1) {
    // Most calls that the labels from each one on can make.
    reach_.assign(extents.size() + 1, 1);
    for (size_t label = extents.size(); label-- > 0;) {
      reach_[label] = std::min(calls, reach_[label + 1] * std::min(calls, greatest_parts(extents[label])));
    }
    extend(0, calls);
  }

  std::vector<Dims> take() { return std::move(found_); }

 private:
  void extend(size_t label, int64_t rest) {
    if (label == extents_.size()) {
      JOINSUM_USER_CHECK(found_.size() < kMostVectors,
                         "partition: more partition vectors than can be compared; plan for fewer calls, or merge "
                         "labels: limit=",
                         kMostVectors, ", extents=", extents_);
      found_.push_back(parts_);
      return;
    }
    for (int64_t parts = std::min(rest, greatest_parts(extents_[label])); parts >= 1; parts /= 2) {
      if (rest / parts > reach_[label + 1]) break;
      parts_[label] = parts;
      extend(label + 1, rest / parts);
    }
    parts_[label] = 1;
  }

  const Dims& extents_;
  Dims parts_;
  Dims reach_;
  std::vector<Dims> found_;
};

}  // namespace

int64_t power_of_two_calls(int64_t calls) {
  JOINSUM_USER_CHECK(calls >= 1 && calls <= kMostCalls,
                     "partition: the number of kernel calls is between 1 and 2^30: calls=", calls);
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(calls)));
}

int64_t greatest_parts(int64_t extent) { return extent == 0 ? 1 : extent & -extent; }

int64_t reachable_calls(const Dims& extents, int64_t calls) {
  const int64_t wanted = power_of_two_calls(calls);
  int64_t reached = 1;
  for (const int64_t extent : extents) reached = std::min(wanted, reached * std::min(wanted, greatest_parts(extent)));
  return reached;
}

std::vector<Dims> viable_vectors(const Dims& extents, int64_t calls) {
  return Enumeration(extents, reachable_calls(extents, calls)).take();
}

}  // namespace joinsum::optimizer::eindecomp
