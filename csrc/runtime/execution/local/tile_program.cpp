#include "runtime/execution/local/tile_program.h"

#include <algorithm>

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include "kernels/dense/dense.h"
#include "kernels/dense/loops.h"
#include "kernels/threads/parallel.h"

namespace joinsum::runtime::execution::local {

using kernels::table::Kernel;

TileProgram::TileProgram(Kernel reduction)
    : reduction_(std::move(reduction)), row_(&kernels::table::row_of(reduction_)), labels_(row_->labels(reduction_)) {}

std::map<char, int64_t> TileProgram::extents() const {
  std::map<char, int64_t> extents;
  for (const auto& [letter, part] : all_) extents[letter] = part.count;
  return extents;
}

size_t TileProgram::add_array(std::string letters, ReadTuple tuple) {
  const relation::RelationType& type = tuple.node->type().relation;
  steps_.push_back({{}, {}, std::move(letters), type.array_shape(tuple.key), reads_.size(), type.dtype});
  reads_.push_back(std::move(tuple));
  return steps_.size() - 1;
}

size_t TileProgram::add(const Kernel& kernel, std::vector<size_t> operands, std::string letters, Dims shape) {
  const DType dtype = kernels::table::result_dtype(kernel, dtypes_of(operands));
  steps_.push_back({kernel, std::move(operands), std::move(letters), std::move(shape), std::nullopt, dtype});
  return steps_.size() - 1;
}

void TileProgram::reduce(std::vector<size_t> operands) {
  reduced_ = std::move(operands);
  for (const auto& [letter, extent] : kernels::table::letter_extents(reduction_.name, labels_, shapes_of(reduced_))) {
    all_[letter] = {0, extent};
  }
}

Dims TileProgram::result_shape() const {
  Dims shape;
  for (const char letter : labels_.result) shape.push_back(all_.at(letter).count);
  return shape;
}

at::ScalarType TileProgram::result_type() const {
  const auto type = kernels::dense::scalar_type(kernels::table::result_dtype(reduction_, dtypes_of(reduced_)));
  return type == at::kHalf || type == at::kBFloat16 ? at::kFloat : type;
}

int64_t TileProgram::flops() const {
  int64_t sum = kernels::table::flops(reduction_, shapes_of(reduced_));
  for (const Step& step : steps_) {
    if (!step.read) sum += kernels::table::flops(step.kernel, shapes_of(step.operands));
  }
  return sum;
}

int64_t TileProgram::points(const Parts& parts) {
  int64_t product = 1;
  for (const auto& [letter, part] : parts) product *= part.count;
  return product;
}

/// The part of `array` that those parts of its letters are.
at::Tensor TileProgram::narrowed(at::Tensor array, const std::string& letters, const Parts& parts) {
  for (size_t axis = 0; axis < letters.size(); ++axis) {
    if (letters[axis] == kRepeats) continue;
    const Part& part = parts.at(letters[axis]);
    array = array.narrow(static_cast<int64_t>(axis), part.begin, part.count);
  }
  return array;
}

std::vector<Dims> TileProgram::shapes_of(const std::vector<size_t>& steps) const {
  std::vector<Dims> shapes;
  for (const size_t step : steps) shapes.push_back(steps_[step].shape);
  return shapes;
}

std::vector<DType> TileProgram::dtypes_of(const std::vector<size_t>& steps) const {
  std::vector<DType> dtypes;
  for (const size_t step : steps) dtypes.push_back(steps_[step].dtype);
  return dtypes;
}

void TileProgram::run(const ProgramInputs& inputs, const at::Tensor& out, bool accumulate) const {
  const std::string& letters = labels_.result;
  const int64_t threads = out.is_cpu() ? at::get_num_threads() : 1;
  const auto longest = std::max_element(letters.begin(), letters.end(),
                                        [&](char a, char b) { return all_.at(a).count < all_.at(b).count; });
  if (longest == letters.end() || all_.at(*longest).count < threads) return blocks(inputs, all_, out, accumulate);
  const int64_t extent = all_.at(*longest).count, axis = longest - letters.begin();
  kernels::threads::for_each_range(threads, [&](int64_t first, int64_t last) {
    const c10::NoGradGuard no_grad;
    Parts parts = all_;
    const int64_t begin = extent * first / threads, end = extent * last / threads;
    parts[*longest] = {begin, end - begin};
    blocks(inputs, parts, out.narrow(axis, begin, end - begin), accumulate);
  });
}

/// Halves the longest letter until few points are left; `out` is the part of the result for `parts`.
void TileProgram::blocks(const ProgramInputs& inputs, const Parts& parts, const at::Tensor& out,
                         bool accumulate) const {
  const auto longest = std::max_element(parts.begin(), parts.end(),
                                        [](const auto& a, const auto& b) { return a.second.count < b.second.count; });
  if (points(parts) <= kernels::dense::block_elements(out) || longest->second.count == 1) {
    return block(inputs, parts, out, accumulate);
  }
  const auto [letter, whole] = *longest;
  const int64_t half = whole.count / 2;
  const size_t axis = labels_.result.find(letter);
  const bool in_result = axis != std::string::npos;
  for (const Part& part : {Part{whole.begin, half}, Part{whole.begin + half, whole.count - half}}) {
    Parts some = parts;
    some[letter] = part;
    const bool second = part.begin != whole.begin;
    const at::Tensor target =
        in_result ? out.narrow(static_cast<int64_t>(axis), part.begin - whole.begin, part.count) : out;
    blocks(inputs, some, target, accumulate || (second && !in_result));
  }
}

void TileProgram::block(const ProgramInputs& inputs, const Parts& parts, const at::Tensor& out, bool accumulate) const {
  std::vector<at::Tensor> values;
  const auto of = [&](const std::vector<size_t>& steps) {
    std::vector<at::Tensor> some;
    for (const size_t step : steps) some.push_back(values[step]);
    return some;
  };
  for (const Step& step : steps_) {
    values.push_back(step.read ? narrowed(inputs.arrays[*step.read], step.letters, parts)
                               : kernels::dense::run(step.kernel, of(step.operands), inputs.scalars));
  }
  const at::Tensor reduced = kernels::dense::run(reduction_, of(reduced_), inputs.scalars).to(out.scalar_type());
  if (accumulate) {
    kernels::dense::run({row_->reduction, {}}, {out, reduced}, {}, 0, 0, out);
  } else {
    at::Tensor(out).copy_(reduced);
  }
}

}  // namespace joinsum::runtime::execution::local
