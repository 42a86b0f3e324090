#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dims.h"
#include "base/dtype.h"
#include "kernels/table/table.h"

namespace joinsum::optimizer::cost {

/// Seconds by size, measured at a few sizes: linear between two of them, which is an α-β law in each piece; the first
/// one's seconds below them, and along the last piece beyond. Never falls.
class Curve {
 public:
  Curve() = default;
  /// Sizes ascend and are not negative, seconds never fall; raises PlanError naming `what`.
  Curve(const std::string& what, std::vector<double> sizes, std::vector<double> seconds);
  bool empty() const { return sizes_.empty(); }
  double at(double size) const;
  /// Seconds of the smallest size.
  double first() const { return seconds_.front(); }

 private:
  std::vector<double> sizes_;
  std::vector<double> seconds_;
};

/// A stage of messages that cross the grid axes `axes`, in all sub-groups of them at once; by the bytes of the busiest
/// site in its busier direction.
struct LinkProfile {
  Dims axes;   ///< ascending
  Curve all;   ///< every site sends to each other one of its sub-group
  Curve pair;  ///< one site sends to one other one, nobody else to anybody
};

/// Matrix products of one dtype: seconds for every triple (rows, inner, columns) of `extents`. Between them log seconds
/// are linear in log extents; beyond the last extent seconds grow with it.
class ProductProfile {
 public:
  ProductProfile(DType dtype, const std::vector<double>& extents, const std::vector<double>& seconds);
  DType dtype() const { return dtype_; }
  double at(double rows, double inner, double columns) const;
  /// Seconds of the smallest product.
  double first() const;

 private:
  DType dtype_;
  std::vector<double> log_extents_;
  std::vector<double> log_seconds_;  ///< row-major
};

/// Elementwise kernels that have these facts; by the elements of the result.
struct ElementwiseProfile {
  int64_t operands = 1;
  int64_t flops_per_element = 1;
  Domain domain = Domain::kAny;
  int64_t element_bytes = 4;
  Curve seconds;
};

/// Reductions inside an array (`rows`), and of the tuples of a block along an axis of keys (`keys`); by the elements
/// read.
struct ReductionProfile {
  int64_t element_bytes = 4;
  Curve rows;
  Curve keys;
};

/// Rates of a machine as `joinsum.calibrate()` has measured them, on all sites at once. Seconds of kernels are those of
/// a node with one call. The cluster's flat rates price what is missing. Source: docs/calibration.md.
struct Profile {
  double run_seconds = 0;   ///< of the agreement that opens a run
  double node_seconds = 0;  ///< of a node that computes nothing
  double overlap = 0;       ///< the fraction of the seconds of messages in which sites can compute, 0 to 1
  std::vector<LinkProfile> links;
  std::vector<ProductProfile> products;
  std::vector<ElementwiseProfile> elementwise;
  std::vector<ReductionProfile> reductions;
  Curve copies;  ///< by bytes, into memory that has been used before

  /// The links of the smallest measured set of axes that has all of `axes`; null where there is none.
  const LinkProfile* link(const Dims& axes) const;
  /// Seconds beyond those of the node itself. Negative where the profile does not say.
  double product(DType dtype, double rows, double inner, double columns) const;
  double elementwise_call(const kernels::table::Row& row, int64_t element_bytes, double elements) const;
  double elementwise_call(const kernels::table::Kernel& kernel, int64_t element_bytes, double elements) const;
  double row_reduction(int64_t element_bytes, double elements) const;
  double key_reduction(int64_t element_bytes, double elements) const;
  double copy(double bytes) const;

 private:
  double beyond_node(double seconds) const { return seconds > node_seconds ? seconds - node_seconds : 0; }
};

}  // namespace joinsum::optimizer::cost
