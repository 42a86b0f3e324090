#pragma once

#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "sparse/tensor/tensor.h"

namespace joinsum::sparse::tensor {

/// Values of a dtype from numbers.
inline Values values_of(DType dtype, const std::vector<double>& numbers) {
  std::vector<std::byte> bytes(numbers.size() * static_cast<size_t>(byte_size(dtype)));
  const auto put = [&](auto zero) {
    using T = decltype(zero);
    for (size_t i = 0; i < numbers.size(); ++i) {
      const T value = static_cast<T>(numbers[i]);
      std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
    }
  };
  if (dtype == DType::kFloat32) put(float{});
  if (dtype == DType::kFloat64) put(double{});
  if (dtype == DType::kInt32) put(int32_t{});
  if (dtype == DType::kInt64) put(int64_t{});
  if (dtype == DType::kUInt8 || dtype == DType::kBool) put(uint8_t{});
  return {dtype, Array<std::byte>(std::move(bytes))};
}

inline double number_at(const Values& values, int64_t place) {
  switch (values.dtype) {
    case DType::kFloat32:
      return static_cast<double>(values.as<float>()[place]);
    case DType::kInt32:
      return values.as<int32_t>()[place];
    case DType::kInt64:
      return static_cast<double>(values.as<int64_t>()[place]);
    case DType::kFloat64:
      return values.as<double>()[place];
    default:
      return values.as<uint8_t>()[place];
  }
}

/// Stored elements by coordinate.
using Elements = std::map<Dims, double>;

inline Elements elements_of(const Coordinates& coordinates) {
  Elements out;
  for (int64_t e = 0; e < coordinates.count(); ++e) {
    Dims at;
    for (const Array<int64_t>& axis : coordinates.axes) at.push_back(axis[e]);
    out[at] = number_at(coordinates.values, e);
  }
  return out;
}

inline Coordinates coordinates_of(const Dims& shape, DType dtype,
                                  const std::vector<std::pair<Dims, double>>& elements) {
  std::vector<std::vector<int64_t>> axes(shape.size());
  std::vector<double> numbers;
  for (const auto& [at, number] : elements) {
    for (size_t a = 0; a < shape.size(); ++a) axes[a].push_back(at[a]);
    numbers.push_back(number);
  }
  Coordinates out{.shape = shape, .values = values_of(dtype, numbers)};
  for (std::vector<int64_t>& axis : axes) out.axes.emplace_back(std::move(axis));
  return out;
}

/// The value at a coordinate as the levels say, none where it is not stored. Reads each format in its own way: hash
/// levels by their table only.
inline std::optional<double> element_at(const Tensor& tensor, const Dims& at) {
  int64_t entry = 0;
  for (size_t l = 0; l < tensor.levels.size(); ++l) {
    const Level& level = tensor.levels[l];
    const int64_t c = at[tensor.axes[l]];
    int64_t found = -1;
    if (level.format == LevelFormat::kDense) found = entry * level.size + c;
    if (level.format == LevelFormat::kBytemap && level.stored[entry * level.size + c] != 0) {
      found = entry * level.size + c;
    }
    if (level.format == LevelFormat::kSortedList) {
      for (int64_t e = level.offsets[entry]; e < level.offsets[entry + 1]; ++e) {
        if (level.coordinates[e] == c) found = e;
      }
    }
    if (level.format == LevelFormat::kHash) {
      const std::vector<int64_t>& slots = level.table->slots();
      const uint64_t mask = slots.size() - 1;
      for (uint64_t s = hash_of_coordinate(entry, c) & mask; slots[s] >= 0; s = (s + 1) & mask) {
        if (level.table->parents()[slots[s]] == entry && level.coordinates[slots[s]] == c) found = slots[s];
      }
    }
    if (found < 0) return std::nullopt;
    entry = found;
  }
  return number_at(tensor.values, entry);
}

/// The message of the PlanError that `make` raises.
template <class Make>
std::string error_of(const Make& make) {
  try {
    make();
  } catch (const PlanError& error) {
    return error.what();
  }
  return "no error";
}

class RandomTensors {
 public:
  explicit RandomTensors(uint64_t seed) : random_(seed) {}

  int64_t below(int64_t bound) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(bound)); }

  Dims shape(int64_t rank, int64_t largest) {
    Dims out;
    for (int64_t a = 0; a < rank; ++a) out.push_back(below(8) == 0 ? 0 : 1 + below(largest));
    return out;
  }

  std::vector<int64_t> order(int64_t rank) {
    std::vector<int64_t> out = all_dims(rank);
    for (int64_t a = rank - 1; a > 0; --a) std::swap(out[a], out[below(a + 1)]);
    return out;
  }

  /// Elements at random coordinates of small numbers that every dtype has.
  std::vector<std::pair<Dims, double>> elements(const Dims& shape, int64_t count, bool truths) {
    std::vector<std::pair<Dims, double>> out;
    for (const int64_t size : shape) {
      if (size == 0) return out;
    }
    for (int64_t e = 0; e < count; ++e) {
      Dims at;
      for (const int64_t size : shape) at.push_back(below(size));
      out.emplace_back(at, static_cast<double>(below(truths ? 2 : 4)));
    }
    return out;
  }

 private:
  std::mt19937_64 random_;
};

/// All nestings of the four formats of a rank.
inline std::vector<std::vector<LevelFormat>> nestings(int64_t rank) {
  std::vector<std::vector<LevelFormat>> out{{}};
  for (int64_t l = 0; l < rank; ++l) {
    std::vector<std::vector<LevelFormat>> longer;
    for (const std::vector<LevelFormat>& nesting : out) {
      for (int format = 0; format < 4; ++format) {
        longer.push_back(nesting);
        longer.back().push_back(static_cast<LevelFormat>(format));
      }
    }
    out = std::move(longer);
  }
  return out;
}

inline const std::vector<DType>& element_types() {
  static const std::vector<DType> types{DType::kFloat32, DType::kFloat64, DType::kInt32,
                                        DType::kInt64,   DType::kUInt8,   DType::kBool};
  return types;
}

}  // namespace joinsum::sparse::tensor
