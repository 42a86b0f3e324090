#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <torch/csrc/utils/pybind.h>

#include "bindings/bindings.h"
#include "kernels/sparse/arrays.h"
#include "kernels/sparse/compressed_rows.h"
#include "sparse/tensor/elements.h"
#include "sparse/tensor/levels.h"
#include "sparse/tensor/tensor.h"

namespace joinsum::bindings {
namespace {

using kernels::sparse::array_of;
using kernels::sparse::tensor_of;
using kernels::sparse::values_of;
using sparse::tensor::Array;
using sparse::tensor::Level;
using sparse::tensor::LevelFormat;
using sparse::tensor::Tensor;

/// A level as Python passes it: its format, offsets, coordinates, and the marks of a bytemap.
using LevelArrays =
    std::tuple<std::string, std::optional<at::Tensor>, std::optional<at::Tensor>, std::optional<at::Tensor>>;

Array<int64_t> integers_of(const at::Tensor& array) {
  JOINSUM_CHECK(array.scalar_type() == at::kLong);
  return array_of<int64_t>(array);
}

std::vector<LevelFormat> formats_named(const std::vector<std::string>& names) {
  std::vector<LevelFormat> out;
  for (const std::string& name : names) out.push_back(sparse::tensor::level_format_named(name));
  return out;
}

std::vector<std::string> format_names(const Tensor& tensor) {
  std::vector<std::string> out;
  for (const Level& level : tensor.levels) out.push_back(name_of(level.format));
  return out;
}

sparse::operators::Operator fold_named(const std::string& name) {
  const auto fold = sparse::operators::operator_from_name(name);
  JOINSUM_USER_CHECK(fold.has_value(), "sparse tensor: no such operator: fold=", name);
  return *fold;
}

Tensor from_coordinates(Dims shape, const std::vector<at::Tensor>& coordinates, const at::Tensor& values,
                        const std::vector<int64_t>& axes, const std::vector<std::string>& formats, double fill,
                        const std::optional<std::string>& fold, int64_t largest) {
  sparse::tensor::Coordinates elements{.shape = std::move(shape), .values = values_of(values)};
  for (const at::Tensor& axis : coordinates) elements.axes.push_back(integers_of(axis));
  const auto op = fold ? std::optional(fold_named(*fold)) : std::nullopt;
  return sparse::tensor::from_coordinates(elements, axes, formats_named(formats), fill, op, largest);
}

/// Checks arrays and takes them as they are; adds the tables of hash levels. With `fold`, lists in any order are
/// sorted.
Tensor from_levels(Dims shape, std::vector<int64_t> axes, const std::vector<LevelArrays>& levels,
                   const at::Tensor& values, double fill, const std::optional<std::string>& fold) {
  Tensor out{.shape = std::move(shape), .axes = std::move(axes), .values = values_of(values), .fill = fill};
  std::vector<LevelFormat> formats;
  for (const auto& [name, offsets, coordinates, stored] : levels) {
    formats.push_back(sparse::tensor::level_format_named(name));
    Level level{.format = formats.back() == LevelFormat::kHash ? LevelFormat::kSortedList : formats.back()};
    if (offsets) level.offsets = integers_of(*offsets);
    if (coordinates) level.coordinates = integers_of(*coordinates);
    if (stored) level.stored = array_of<uint8_t>(*stored);
    out.levels.push_back(std::move(level));
  }
  for (size_t l = 0; l < levels.size(); ++l) out.levels[l].size = out.shape.at(out.axes.at(l));
  if (fold) {
    out = sparse::tensor::ascending(out, fold_named(*fold));
  } else {
    sparse::tensor::check(out);
  }
  for (Level& level : out.levels) level.single = sparse::tensor::has_single_entries(level);
  return sparse::tensor::reformatted(out, out.axes, formats);
}

/// All elements of a tensor, whose memory is shared where it is contiguous; of truth values those that are true, if
/// `marked`, so that the last level is a bytemap.
Tensor from_dense(const at::Tensor& elements, double fill, bool marked) {
  const at::Tensor flat = elements.contiguous().reshape({-1});
  Tensor out{.values = values_of(flat), .fill = fill};
  for (int64_t axis = 0; axis < elements.dim(); ++axis) {
    out.shape.push_back(elements.size(axis));
    out.axes.push_back(axis);
    out.levels.push_back({.format = LevelFormat::kDense, .size = elements.size(axis)});
  }
  if (marked && !out.levels.empty()) {
    JOINSUM_CHECK(flat.scalar_type() == at::kBool && fill == 0);
    out.levels.back().format = LevelFormat::kBytemap;
    out.levels.back().stored = array_of<uint8_t>(flat.view(at::kByte));
  }
  return out;
}

/// The same levels with other values, one for each entry of the last level.
Tensor with_values(const Tensor& tensor, const at::Tensor& values, double fill) {
  Tensor out = tensor;
  out.values = values_of(values);
  out.fill = sparse::tensor::fill_of(out.dtype(), fill);
  JOINSUM_USER_CHECK(out.values.count() == tensor.values.count(),
                     "sparse tensor: each entry of the last level needs one value: values=", out.values.count(),
                     ", entries=", tensor.values.count());
  sparse::tensor::check_truths(out.values);
  return out;
}

Tensor reformatted(const Tensor& tensor, const std::vector<int64_t>& axes, const std::vector<std::string>& formats,
                   int64_t largest) {
  return sparse::tensor::reformatted(tensor, axes, formats_named(formats), largest);
}

std::pair<std::vector<at::Tensor>, at::Tensor> to_coordinates(const Tensor& tensor, bool without_fill) {
  const sparse::tensor::Coordinates elements = sparse::tensor::to_coordinates(tensor, without_fill);
  std::vector<at::Tensor> axes;
  for (const Array<int64_t>& axis : elements.axes) axes.push_back(tensor_of(axis, at::kLong));
  return {std::move(axes), tensor_of(elements.values)};
}

std::vector<LevelArrays> level_arrays(const Tensor& tensor) {
  std::vector<LevelArrays> out;
  for (const Level& level : tensor.levels) {
    LevelArrays arrays{name_of(level.format), {}, {}, {}};
    if (level.format == LevelFormat::kSortedList || level.format == LevelFormat::kHash) {
      std::get<1>(arrays) = tensor_of(level.offsets, at::kLong);
      std::get<2>(arrays) = tensor_of(level.coordinates, at::kLong);
    }
    if (level.format == LevelFormat::kBytemap) std::get<3>(arrays) = tensor_of(level.stored, at::kByte);
    out.push_back(std::move(arrays));
  }
  return out;
}

std::optional<at::Tensor> defined_only(at::Tensor tensor) {
  return tensor.defined() ? std::optional(std::move(tensor)) : std::nullopt;
}

/// A matrix whose rows are the columns of another one, and its levels.
Tensor transposed(const Tensor& matrix) {
  Tensor out = matrix;
  std::swap(out.shape.at(0), out.shape.at(1));
  for (int64_t& axis : out.axes) axis = 1 - axis;
  return out;
}

Tensor joined(const kernels::sparse::CompressedRows& a, const kernels::sparse::CompressedRows& b,
              const std::string& join) {
  using kernels::sparse::ElementJoin;
  static const std::map<std::string, ElementJoin> known{{"add", ElementJoin::kAdd},
                                                        {"sub", ElementJoin::kSubtract},
                                                        {"max", ElementJoin::kMax},
                                                        {"min", ElementJoin::kMin}};
  return a.joined(b, known.at(join));
}

/// Matrices in compressed rows; results are SparseTensors.
void bind_compressed_rows(py::module_& module) {
  using kernels::sparse::CompressedRows;
  py::class_<CompressedRows>(module, "CompressedRows")
      .def(py::init([](const std::shared_ptr<Tensor>& matrix) { return CompressedRows(matrix); }), py::arg("matrix"))
      .def_static(
          "of", [](const std::shared_ptr<Tensor>& matrix) { return CompressedRows::of(matrix); }, py::arg("matrix"),
          WithoutGil())
      .def_static(
          "of_transposed", [](const std::shared_ptr<Tensor>& matrix) { return CompressedRows::of_transposed(matrix); },
          py::arg("matrix"), WithoutGil())
      .def(
          "times", [](const CompressedRows& self, const at::Tensor& dense) { return defined_only(self.times(dense)); },
          py::arg("dense"), WithoutGil())
      .def(
          "transposed_times",
          [](const CompressedRows& self, const at::Tensor& dense) {
            return defined_only(self.transposed_times(dense));
          },
          py::arg("dense"), WithoutGil())
      .def("sums", &CompressedRows::sums, WithoutGil())
      .def("column_sums", &CompressedRows::column_sums, WithoutGil())
      .def("extremes", &CompressedRows::extremes, py::arg("largest"), WithoutGil())
      .def("joined", &joined, py::arg("other"), py::arg("join"), WithoutGil())
      .def("times_elements", &CompressedRows::times_elements, py::arg("dense"), WithoutGil())
      .def("scaled_rows", &CompressedRows::scaled_rows, py::arg("factors"), WithoutGil())
      .def("scaled_columns", &CompressedRows::scaled_columns, py::arg("factors"), WithoutGil())
      .def("sampled", &CompressedRows::sampled, py::arg("x"), py::arg("y"), WithoutGil())
      .def("times_sparse", py::overload_cast<const CompressedRows&>(&CompressedRows::times, py::const_),
           py::arg("other"), WithoutGil())
      .def("expected_entries", &CompressedRows::expected_entries, py::arg("other"), WithoutGil())
      .def("times_at", &CompressedRows::times_at, py::arg("other"), py::arg("mask"), WithoutGil());
}

}  // namespace

void bind_sparse_tensor(py::module_& module) {
  const auto shape = py::arg("shape");
  const auto axes = py::arg("axes");
  const auto formats = py::arg("formats");
  const auto values = py::arg("values");
  const auto fill = py::arg("fill");
  const auto fold = py::arg("fold");
  const auto largest = py::arg("largest");
  py::class_<Tensor, std::shared_ptr<Tensor>>(module, "SparseTensor")
      .def_static("from_coordinates", &from_coordinates, shape, py::arg("coordinates"), values, axes, formats, fill,
                  fold, largest, WithoutGil())
      .def_static("from_levels", &from_levels, shape, axes, py::arg("levels"), values, fill, fold, WithoutGil())
      .def_static("from_dense", &from_dense, py::arg("elements"), fill, py::arg("marked") = false, WithoutGil())
      .def_readonly("shape", &Tensor::shape)
      .def_readonly("axes", &Tensor::axes)
      .def_readonly("fill", &Tensor::fill)
      .def_property_readonly("formats", &format_names)
      .def_property_readonly("dtype", [](const Tensor& tensor) { return name_of(tensor.dtype()); })
      .def_property_readonly("stored", &Tensor::stored)
      .def_property_readonly("all_finite", [](const Tensor& self) { return sparse::tensor::all_finite(self.values); })
      .def_property_readonly("bytes", &Tensor::bytes)
      .def_property_readonly("values", [](const Tensor& tensor) { return tensor_of(tensor.values); })
      .def_property_readonly("levels", &level_arrays)
      .def("to_coordinates", &to_coordinates, py::arg("without_fill"), WithoutGil())
      .def("with_values", &with_values, values, fill, WithoutGil())
      .def("transposed", &transposed)
      .def("reformatted", &reformatted, axes, formats, largest, WithoutGil());
  bind_compressed_rows(module);
}

}  // namespace joinsum::bindings
