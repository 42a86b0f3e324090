#include "relation/kernel_axes.h"

#include <map>

namespace joinsum::relation {
KeySource source_of(const std::string& who, const Dims& frontier, std::shared_ptr<const std::vector<Key>> keys) {
  return [=](const KeyVisitor& visit) {
    if (keys != nullptr) {
      for (const Key& key : *keys) {
        if (!visit(key)) return;
      }
      return;
    }
    check_enumerable(who, Box::below(frontier).count());
    bool more = true;
    for_each_key(Box::below(frontier), [&](const Key& key) { more = more && visit(key); });
  };
}

std::optional<int64_t> uniform_extent(const Axis& axis) {
  if (!axis.linked()) return axis.extent;
  if (axis.cuts.size() < 2) return std::nullopt;
  for (size_t i = 2; i < axis.cuts.size(); ++i) {
    if (axis.cuts[i] - axis.cuts[i - 1] != axis.cuts[1]) return std::nullopt;
  }
  return axis.cuts[1];
}

namespace {

/// The axis that two operand axes of one letter share. It is the leftmost linked one.
Axis combine(const KernelUse& use, const Axis& a, const Axis& b, bool broadcast) {
  if (a == b) return a;
  const auto uniform_a = uniform_extent(a);
  const auto uniform_b = uniform_extent(b);
  if (uniform_a && uniform_a == uniform_b) return a.linked() ? a : b;
  if (broadcast && uniform_a == 1) return b;
  if (broadcast && uniform_b == 1) return a;
  use.keys([&](const Key& key) {
    JOINSUM_USER_CHECK(a.extent_at(key) == b.extent_at(key), use.who,
                       ": array extents do not match: kernel=", use.kernel.text(), ", key=", key_text(key),
                       ", extents=", a.extent_at(key), " and ", b.extent_at(key));
    return true;
  });
  return a.linked() ? a : b;
}

std::vector<Axis> elementwise_axes(const KernelUse& use, const std::vector<std::vector<Axis>>& operands) {
  std::vector<Axis> out = operands[0];
  if (operands.size() == 1) return out;
  std::vector<Axis> other = operands[1];
  if (out.size() < other.size()) out.insert(out.begin(), other.size() - out.size(), Axis::whole(1));
  if (other.size() < out.size()) other.insert(other.begin(), out.size() - other.size(), Axis::whole(1));
  for (size_t a = 0; a < out.size(); ++a) out[a] = combine(use, out[a], other[a], true);
  return out;
}

std::vector<Axis> labelled_axes(const KernelUse& use, const kernels::table::Subscripts& labels,
                                const std::vector<std::vector<Axis>>& operands) {
  std::map<char, Axis> letters;
  for (size_t i = 0; i < operands.size(); ++i) {
    JOINSUM_USER_CHECK(labels.operands[i].size() == operands[i].size(), use.who,
                       ": operand has the wrong rank: kernel=", use.kernel.text(), ", operand=", i,
                       ", rank=", operands[i].size(), ", wanted=", labels.operands[i]);
    for (size_t a = 0; a < operands[i].size(); ++a) {
      const char letter = labels.operands[i][a];
      const auto [at, fresh] = letters.try_emplace(letter, operands[i][a]);
      if (!fresh) at->second = combine(use, at->second, operands[i][a], false);
    }
  }
  std::vector<Axis> out;
  for (const char letter : labels.result) out.push_back(letters.at(letter));
  return out;
}

std::vector<Axis> inserted_axes(const KernelUse& use, std::vector<Axis> out) {
  const int64_t at = use.kernel.integer(0);
  JOINSUM_USER_CHECK(at >= 0 && at <= static_cast<int64_t>(out.size()), use.who, ": axis out of range: axis=", at,
                     ", rank=", out.size());
  const int64_t extent = kernels::table::inserted_extent(use.kernel);
  JOINSUM_USER_CHECK(extent >= 0, use.who, ": an axis has no negative extent: extent=", extent);
  out.insert(out.begin() + at, Axis::whole(extent));
  return out;
}

std::vector<Axis> embedded_axes(const KernelUse& use, std::vector<Axis> out) {
  const auto rank = static_cast<int64_t>(out.size());
  const int64_t at = use.kernel.integer(0), axis = use.kernel.integer(1);
  JOINSUM_USER_CHECK(at >= 0 && at <= rank && axis >= 0 && axis < rank, use.who,
                     ": axis out of range: kernel=", use.kernel.text(), ", rank=", rank);
  const Axis copied = out[axis];
  out.insert(out.begin() + at, copied);
  return out;
}

}  // namespace

std::optional<std::vector<Axis>> symbolic_axes(const KernelUse& use, const std::vector<std::vector<Axis>>& operands) {
  const kernels::table::Row& row = kernels::table::row_of(use.kernel);
  switch (row.form) {
    case kernels::table::Form::kElementwise:
      return elementwise_axes(use, operands);
    case kernels::table::Form::kLabelled:
      return labelled_axes(use, row.labels(use.kernel), operands);
    case kernels::table::Form::kDuplicate:
      return operands[0];
    case kernels::table::Form::kInsertAxis:
      return inserted_axes(use, operands[0]);
    case kernels::table::Form::kEmbed:
      return embedded_axes(use, operands[0]);
    default:
      return std::nullopt;
  }
}

void check_operands(const std::string& who, const kernels::table::Kernel& kernel, int64_t operands) {
  const int64_t own = kernels::table::operands_of(kernel);
  JOINSUM_USER_CHECK(own == operands, who, ": kernel has the wrong number of operands: kernel=", kernel.text(),
                     ", operands=", own, ", wanted=", operands);
}

}  // namespace joinsum::relation
