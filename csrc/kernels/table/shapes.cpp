#include <algorithm>
#include <cctype>
#include <cmath>
#include <utility>

#include "kernels/table/rows.h"

namespace joinsum::kernels::table {

namespace {

/// Shape that `a` and `b` broadcast to, by torch's rules; nothing when they do not.
std::optional<Dims> broadcast(const Dims& a, const Dims& b) {
  if (a.size() < b.size()) return broadcast(b, a);
  Dims out = a;
  const size_t lead = a.size() - b.size();
  for (size_t d = 0; d < b.size(); ++d) {
    int64_t& extent = out[lead + d];
    if (extent != b[d] && extent != 1 && b[d] != 1) return std::nullopt;
    if (extent == 1) extent = b[d];
  }
  return out;
}

Dims elementwise_shape(const Kernel& kernel, const std::vector<Dims>& operands) {
  Dims out;
  for (const Dims& operand : operands) {
    const auto both = broadcast(out, operand);
    JOINSUM_KERNEL_CHECK(both, kernel.name, ": shapes do not broadcast: kernel=", kernel.text(), ", shapes=", operands);
    out = *both;
  }
  return out;
}

Dims labelled_shape(const Row& row, const Kernel& kernel, const std::vector<Dims>& operands) {
  const Subscripts labels = row.labels(kernel);
  return extents_of(labels.result, letter_extents(kernel.name, labels, operands));
}

int64_t checked_axis(const Kernel& kernel, const Dims& shape, int64_t end) {
  const int64_t axis = kernel.integer(0);
  JOINSUM_KERNEL_CHECK(axis >= 0 && axis < end, kernel.name, ": axis out of range: axis=", axis, ", shape=", shape);
  return axis;
}

Dims inserted_shape(const Kernel& kernel, const Dims& operand) {
  const int64_t axis = checked_axis(kernel, operand, static_cast<int64_t>(operand.size()) + 1);
  const int64_t extent = inserted_extent(kernel);
  JOINSUM_KERNEL_CHECK(extent >= 0, kernel.name, ": an axis has no negative extent: extent=", extent);
  Dims out = operand;
  out.insert(out.begin() + axis, extent);
  return out;
}

Dims embedded_shape(const Kernel& kernel, const Dims& operand) {
  const int64_t position = checked_axis(kernel, operand, static_cast<int64_t>(operand.size()) + 1);
  const int64_t axis = kernel.integer(1);
  JOINSUM_KERNEL_CHECK(axis >= 0 && axis < static_cast<int64_t>(operand.size()), kernel.name,
                       ": axis out of range: axis=", axis, ", shape=", operand);
  Dims out = operand;
  out.insert(out.begin() + position, operand[axis]);
  return out;
}

Dims tile_shape(const Kernel& kernel, const Dims& operand, int64_t output) {
  const auto axis = static_cast<size_t>(checked_axis(kernel, operand, static_cast<int64_t>(operand.size())));
  const int64_t size = kernel.integer(1);
  JOINSUM_KERNEL_CHECK(size >= 1, "tile: tiles need a positive size: size=", size);
  const int64_t pieces = std::max<int64_t>(1, ceil_div(operand[axis], size));
  JOINSUM_KERNEL_CHECK(output < pieces, "tile: no such piece: output=", output, ", pieces=", pieces,
                       ", kernel=", kernel.text(), ", shape=", operand);
  Dims out = operand;
  out[axis] = std::min(size, operand[axis] - output * size);
  return out;
}

Dims concat_shape(const Kernel& kernel, const std::vector<Dims>& operands) {
  const auto axis = static_cast<size_t>(checked_axis(kernel, operands[0], static_cast<int64_t>(operands[0].size())));
  Dims out = operands[0];
  Dims rest = operands[1];
  const int64_t added = axis < rest.size() ? std::exchange(rest[axis], out[axis]) : 0;
  JOINSUM_KERNEL_CHECK(rest == out, "concat: arrays differ in another axis: axis=", axis, ", shapes=", operands);
  out[axis] += added;
  return out;
}

/// Whether all that a row does to elements is to choose among them.
bool orders(const Row& row) {
  const auto idempotent = [](const std::string& name) { return name.empty() || find_row(name)->facts.idempotent; };
  return row.facts.idempotent || (!row.reduction.empty() && idempotent(row.reduction) && idempotent(row.combine));
}

bool in_domain(const Row& row, DType dtype) {
  // Truth values are no numbers: they can be moved, cast and ordered (min and max are and, or).
  const bool moves = row.facts.moves_elements || row.form == Form::kConcat || row.form == Form::kEmbed;
  const bool truth = row.user || row.dtype || moves || orders(row);
  return (dtype != DType::kBool || truth) && contains(row.domain, dtype);
}

/// Raises where an array of integers would be multiplied by a fraction. Scalars are known, and checked, in the run.
void check_whole(const Row& row, const Kernel& kernel, DType dtype) {
  if (!is_integer(dtype) || row.user) return;
  for (const Parameter& parameter : kernel.parameters) {
    const auto* real = std::get_if<double>(&parameter);
    JOINSUM_KERNEL_CHECK(real == nullptr || *real == std::trunc(*real), kernel.name,
                         ": integers take whole parameters; cast the operand: kernel=", kernel.text(),
                         ", dtype=", name_of(dtype));
  }
}

}  // namespace

Subscripts Subscripts::parse(const std::string& text) {
  const size_t arrow = text.find("->");
  JOINSUM_KERNEL_CHECK(arrow != std::string::npos, "labels: no `->`: labels=", text);
  Subscripts labels{{""}, ""};
  for (size_t i = 0; i < text.size(); ++i) {
    if (i == arrow || i == arrow + 1 || text[i] == ' ') continue;
    if (text[i] == ',' && i < arrow) {
      labels.operands.emplace_back();
      continue;
    }
    JOINSUM_KERNEL_CHECK(std::isalpha(static_cast<unsigned char>(text[i])) != 0, "labels: not a letter: labels=", text,
                         ", character=", text[i]);
    (i < arrow ? labels.operands.back() : labels.result) += text[i];
  }
  for (size_t i = 0; i < labels.result.size(); ++i) {
    const char letter = labels.result[i];
    JOINSUM_KERNEL_CHECK(labels.result.find(letter, i + 1) == std::string::npos,
                         "labels: letter occurs twice in the result: labels=", text, ", letter=", letter);
    const bool given = std::any_of(labels.operands.begin(), labels.operands.end(), [&](const std::string& operand) {
      return operand.find(letter) != std::string::npos;
    });
    JOINSUM_KERNEL_CHECK(given, "labels: letter of the result is in no operand: labels=", text, ", letter=", letter);
  }
  return labels;
}

std::string Subscripts::text() const {
  std::string out;
  for (size_t i = 0; i < operands.size(); ++i) out += (i > 0 ? "," : "") + operands[i];
  return out + "->" + result;
}

std::map<char, int64_t> letter_extents(const std::string& kernel, const Subscripts& labels,
                                       const std::vector<Dims>& operands) {
  JOINSUM_KERNEL_CHECK(labels.operands.size() == operands.size(), kernel,
                       ": wrong number of operands: labels=", labels.text(), ", operands=", operands.size());
  std::map<char, int64_t> extents;
  for (size_t i = 0; i < operands.size(); ++i) {
    const std::string& letters = labels.operands[i];
    JOINSUM_KERNEL_CHECK(letters.size() == operands[i].size(), kernel, ": operand has the wrong rank: operand=", i,
                         ", labels=", letters, ", shape=", operands[i]);
    for (size_t a = 0; a < letters.size(); ++a) {
      const auto [known, fresh] = extents.try_emplace(letters[a], operands[i][a]);
      JOINSUM_KERNEL_CHECK(fresh || known->second == operands[i][a], kernel,
                           ": extents of a letter differ: letter=", letters[a], ", labels=", labels.text(),
                           ", shapes=", operands);
    }
  }
  return extents;
}

Dims extents_of(const std::string& letters, const std::map<char, int64_t>& extents) {
  Dims out;
  for (const char letter : letters) out.push_back(extents.at(letter));
  return out;
}

Dims result_shape(const Row& row, const Kernel& kernel, const std::vector<Dims>& operands, int64_t output) {
  const int64_t wanted = row.operands == 0 ? kernel.integer(0) : row.operands;
  JOINSUM_KERNEL_CHECK(static_cast<int64_t>(operands.size()) == wanted, kernel.name,
                       ": wrong number of operands: given=", operands.size(), ", wanted=", wanted);
  const bool several = row.form == Form::kTile || row.form == Form::kDuplicate;
  JOINSUM_KERNEL_CHECK(output == 0 || (several && output > 0), kernel.name, ": no such result: output=", output);
  switch (row.form) {
    case Form::kElementwise:
      return elementwise_shape(kernel, operands);
    case Form::kLabelled:
      return labelled_shape(row, kernel, operands);
    case Form::kInsertAxis:
      return inserted_shape(kernel, operands[0]);
    case Form::kEmbed:
      return embedded_shape(kernel, operands[0]);
    case Form::kTile:
      return tile_shape(kernel, operands[0], output);
    case Form::kDuplicate:
      return operands[0];
    case Form::kConcat:
      return concat_shape(kernel, operands);
    case Form::kOpaque:
      return row.shape(kernel, operands);
  }
  JOINSUM_CHECK(false, "form=", static_cast<int>(row.form));
}

Dims result_shape(const Kernel& kernel, const std::vector<Dims>& operands, int64_t output) {
  Dims shape = result_shape(row_of(kernel), kernel, operands, output);
  for (const Kernel& next : kernel.epilogue) shape = result_shape(row_of(next), next, {shape}, 0);
  return shape;
}

DType result_dtype(const Kernel& kernel, const std::vector<DType>& operands) {
  const Row& row = row_of(kernel);
  JOINSUM_KERNEL_CHECK(static_cast<int64_t>(operands.size()) == operands_of(kernel), kernel.name,
                       ": wrong number of operands: given=", operands.size(), ", wanted=", operands_of(kernel));
  std::vector<std::string> names;
  for (const DType dtype : operands) names.push_back(name_of(dtype));
  const DType dtype = operands[0];
  const bool equal = std::all_of(operands.begin(), operands.end(), [&](DType other) { return other == dtype; });
  JOINSUM_KERNEL_CHECK(equal, kernel.name, ": dtypes of the operands differ; cast one: dtypes=", names);
  JOINSUM_KERNEL_CHECK(in_domain(row, dtype), kernel.name,
                       ": not defined on this dtype; cast the operand: dtype=", name_of(dtype));
  check_whole(row, kernel, dtype);
  DType out = row.dtype ? row.dtype(kernel, dtype) : dtype;
  for (const Kernel& next : kernel.epilogue) out = result_dtype(next, {out});
  return out;
}

int64_t inserted_extent(const Kernel& kernel) { return kernel.parameters.size() > 1 ? kernel.integer(1) : 1; }

int64_t flops(const Kernel& kernel, const std::vector<Dims>& operands) {
  const Row& row = row_of(kernel);
  Dims factors = result_shape(row, kernel, operands, 0);
  if (row.form == Form::kLabelled) {
    factors.clear();
    for (const auto& [letter, extent] : letter_extents(kernel.name, row.labels(kernel), operands)) {
      factors.push_back(extent);
    }
  }
  factors.push_back(flops_per_element(kernel));
  int64_t count = checked_product(kernel.name, factors);
  Dims shape = result_shape(row, kernel, operands, 0);
  for (const Kernel& next : kernel.epilogue) {
    count += flops(next, {shape});
    shape = result_shape(next, {shape});
  }
  return count;
}

}  // namespace joinsum::kernels::table
