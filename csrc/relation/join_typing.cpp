#include <algorithm>
#include <cmath>
#include <map>

#include "kernels/table/rows.h"
#include "kernels/table/sparsity.h"
#include "relation/kernel_axes.h"
#include "relation/typing.h"
#include "sparse/tensor/elements.h"

namespace joinsum::relation {
namespace {

/// Re-reads an operand's axes by the positions that its key dimensions take in the result, cut to the result's
/// frontier.
std::vector<Axis> relink(const std::vector<Axis>& axes, const Dims& position, const Dims& frontier) {
  std::vector<Axis> out = axes;
  for (Axis& axis : out) {
    if (!axis.linked()) continue;
    axis.key_dim = position[axis.key_dim];
    axis.cuts.resize(frontier[axis.key_dim] + 1);
    axis.extent = axis.cuts.back();
  }
  return out;
}

Dims join_frontier(const std::string& who, const RelationType& left, const RelationType& right, const JoinKeys& on) {
  Dims frontier = left.frontier;
  for (const int64_t d : complement(on.right, right.arity())) frontier.push_back(right.frontier[d]);
  for (size_t i = 0; i < on.left.size(); ++i) {
    int64_t& size = frontier[on.left[i]];
    size = std::min(left.frontier[on.left[i]], right.frontier[on.right[i]]);
    for (const int64_t a : left.axes_of(on.left[i])) {
      for (const int64_t b : right.axes_of(on.right[i])) {
        JOINSUM_USER_CHECK(
            std::equal(left.axes[a].cuts.begin(), left.axes[a].cuts.begin() + size + 1, right.axes[b].cuts.begin()),
            who, ": joined axes are cut at different points: left key dimension=", on.left[i],
            ", cuts=", left.axes[a].cuts, ", right key dimension=", on.right[i], ", cuts=", right.axes[b].cuts);
      }
    }
  }
  return frontier;
}

/// Calls `visit` with each left and right key that meet, in the order of the left keys, then of the right ones.
void for_each_meeting(const RelationType& left, const RelationType& right, const JoinKeys& on,
                      const std::function<void(const Key& out, const Key& left, const Key& right)>& visit) {
  std::map<Key, std::vector<Key>> matches;
  for (const Key& key : right.all_keys()) matches[project(key, on.right)].push_back(key);
  for (const Key& key : left.all_keys()) {
    const auto found = matches.find(project(key, on.left));
    if (found == matches.end()) continue;
    for (const Key& other : found->second) visit(on.joined(key, other), key, other);
  }
}

std::shared_ptr<const std::vector<Key>> join_keys(const std::string& who, const RelationType& left,
                                                  const RelationType& right, const JoinKeys& on) {
  if (left.regular() && right.regular()) return nullptr;
  auto keys = std::make_shared<std::vector<Key>>();
  for_each_meeting(left, right, on, [&](const Key& out, const Key&, const Key&) { keys->push_back(out); });
  check_enumerable(who, static_cast<int64_t>(keys->size()));
  return keys;
}

void check_sparse_operands(const std::string& who, const RelationType& left, const RelationType& right,
                           const kernels::table::Kernel& kernel) {
  if (!left.sparse() && !right.sparse()) return;
  if (kernels::table::gives_sparse(kernel, left.sparse(), right.sparse())) {
    JOINSUM_USER_CHECK(sparse::tensor::is_element_type(left.dtype), who,
                       ": a sparse result is of f32, f64, i32, i64, u8 or bool; cast the operands: left=", left.text(),
                       ", right=", right.text());
    return;
  }
  const kernels::table::Row& row = kernels::table::row_of(kernel);
  JOINSUM_USER_CHECK(row.form == kernels::table::Form::kLabelled && row.facts.linear && !row.user, who,
                     ": kernel does not take sparse arrays; products such as matmul do, and of two sparse arrays "
                     "elementwise kernels that are zero at zero; give a dense tensor: kernel=",
                     kernel.text(), ", left=", left.text(), ", right=", right.text());
}

/// Entries of a sparse result, if those of the operands are spread evenly.
int64_t entries_of(const RelationType& left, const RelationType& right, const kernels::table::Kernel& kernel,
                   const RelationType& joined, double terms) {
  const double l = density_of(left), r = density_of(right);
  const bool product = kernels::table::contracts(kernel) || !left.sparse() || !right.sparse() || kernel.name == "mul";
  const double stored = product ? 1 - std::pow(1 - l * r, terms) : 1 - (1 - l) * (1 - r);
  return static_cast<int64_t>(std::ceil(stored * static_cast<double>(joined.elements())));
}

/// Terms of each sum of a contraction of one pair of arrays, on average; of an elementwise kernel one.
double terms_of(const RelationType& left, const RelationType& right, const kernels::table::Kernel& kernel) {
  if (!kernels::table::contracts(kernel)) return 1;
  const kernels::table::Subscripts labels = kernels::table::row_of(kernel).labels(kernel);
  std::map<char, double> extents;
  for (const auto& [type, letters] : {std::pair(&left, labels.operands[0]), std::pair(&right, labels.operands[1])}) {
    for (size_t a = 0; a < letters.size(); ++a) {
      const Axis& axis = type->axes[a];
      const double parts = axis.linked() ? static_cast<double>(axis.cuts.size() - 1) : 1;
      extents[letters[a]] = static_cast<double>(axis.extent) / std::max(parts, 1.0);
    }
  }
  double terms = 1;
  for (const auto& [letter, extent] : extents) {
    if (labels.result.find(letter) == std::string::npos) terms *= extent;
  }
  return terms;
}

RelationType with_entries(RelationType joined, const RelationType& left, const RelationType& right,
                          const kernels::table::Kernel& kernel) {
  if (kernels::table::gives_sparse(kernel, left.sparse(), right.sparse())) {
    joined.entries = entries_of(left, right, kernel, joined, terms_of(left, right, kernel));
  }
  return joined;
}

}  // namespace

double density_of(const RelationType& relation) {
  if (!relation.sparse()) return 1;
  return static_cast<double>(*relation.entries) / static_cast<double>(std::max<int64_t>(relation.elements(), 1));
}

void check_dense(const std::string& who, const RelationType& relation) {
  JOINSUM_USER_CHECK(!relation.sparse(), who,
                     ": the operator takes no sparse relation; give a dense tensor: type=", relation.text());
}

Dims JoinKeys::left_position(int64_t left_arity) const { return all_dims(left_arity); }

Dims JoinKeys::right_position(int64_t left_arity, int64_t right_arity) const {
  Dims position(right_arity);
  int64_t next = left_arity;
  for (int64_t d = 0; d < right_arity; ++d) {
    const auto joined = position_of(right, d);
    position[d] = joined ? left[*joined] : next++;
  }
  return position;
}

Key JoinKeys::joined(Key left_key, const Key& right_key) const {
  for (size_t d = 0; d < right_key.size(); ++d) {
    if (!position_of(right, static_cast<int64_t>(d))) left_key.push_back(right_key[d]);
  }
  return left_key;
}

Box JoinKeys::joined(const Box& left_box, const Box& right_box) const {
  Box box{joined(left_box.lower, right_box.lower), joined(left_box.upper, right_box.upper)};
  for (size_t i = 0; i < left.size(); ++i) {
    const int64_t d = left[i];
    box.lower[d] = std::max(box.lower[d], right_box.lower[right[i]]);
    box.upper[d] = std::max(box.lower[d], std::min(box.upper[d], right_box.upper[right[i]]));
  }
  return box;
}

RelationType join_type(const std::string& who, const RelationType& left, const RelationType& right, const JoinKeys& on,
                       const kernels::table::Kernel& kernel) {
  if (!kernel.epilogue.empty()) return epilogue_type(who, join_type(who, left, right, on, kernel.first()), kernel);
  JOINSUM_USER_CHECK(on.left.size() == on.right.size(), who, ": key lists differ in length: left=", on.left,
                     ", right=", on.right);
  check_dims(who, "left", on.left, left.arity());
  check_dims(who, "right", on.right, right.arity());
  check_operands(who, kernel, 2);
  check_sparse_operands(who, left, right, kernel);
  const DType dtype = kernels::table::result_dtype(kernel, {left.dtype, right.dtype});
  const Dims frontier = join_frontier(who, left, right, on);
  const auto keys = join_keys(who, left, right, on);
  const KernelUse use{who, kernel, source_of(who, frontier, keys)};
  const auto left_axes = relink(left.axes, on.left_position(left.arity()), frontier);
  const auto right_axes = relink(right.axes, on.right_position(left.arity(), right.arity()), frontier);
  if (auto axes = symbolic_axes(use, {left_axes, right_axes}))
    return with_entries(RelationType::make(who, dtype, frontier, *axes, keys), left, right, kernel);

  std::vector<Key> out_keys;
  std::vector<Dims> shapes;
  for_each_meeting(left, right, on, [&](const Key& out, const Key& l, const Key& r) {
    out_keys.push_back(out);
    shapes.push_back(kernels::table::result_shape(kernel, {left.array_shape(l), right.array_shape(r)}));
  });
  Dims preferred(shapes.empty() ? 0 : shapes[0].size(), Axis::kUnlinked);
  for (size_t a = 0; a < std::min(preferred.size(), left_axes.size()); ++a) preferred[a] = left_axes[a].key_dim;
  auto axes = fit_axes(who, frontier, out_keys, shapes, preferred);
  return with_entries(RelationType::make(who, dtype, frontier, std::move(axes), keys), left, right, kernel);
}

}  // namespace joinsum::relation
