#include "kernels/fusion/program.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <sstream>

#include <ATen/ExpandUtils.h>

#include "base/check.h"
#include "kernels/processor/instructions.h"
#include "kernels/threads/parallel.h"

namespace joinsum::kernels::fusion {
namespace {

constexpr size_t kCachedPrograms = 4'096;
constexpr int64_t kLeastTile = 64;
constexpr int64_t kMostTile = 1'024;
constexpr int64_t kTileBytes = 24 << 10;  ///< what a tile of all arrays may take: the caches closest to a core have 32
constexpr int64_t kFunctionsPerThread = 100'000;  ///< that are worth a thread, on one element each

template <class T>
const Loops<T>& loops_of() {
  static const Loops<T> chosen = processor::widest(avx512_loops<T>, avx2_loops<T>, portable_loops<T>,
                                                   [](const Loops<T>& loops) { return loops.front() != nullptr; });
  return chosen;
}

Source source_of(const at::Tensor& x, at::IntArrayRef shape, bool channels_last) {
  Source out{x.const_data_ptr(), x.scalar_type() == at::kBool, {}};
  const auto rank = static_cast<int64_t>(shape.size());
  for (int64_t place = 0; place < rank; ++place) {
    const int64_t of_results = !channels_last || place == 0 ? place : place == rank - 1 ? 1 : place + 1;
    const int64_t own = of_results - (rank - x.dim());
    const bool repeated = own < 0 || x.size(own) == 1;
    const Axis axis{shape[static_cast<size_t>(of_results)], repeated ? 0 : x.stride(own)};
    if (axis.extent == 1) continue;
    if (!out.axes.empty() && out.axes.back().stride == axis.stride * axis.extent) {
      out.axes.back() = {out.axes.back().extent * axis.extent, axis.stride};
    } else {
      out.axes.push_back(axis);
    }
  }
  if (out.axes.size() == 1 && out.axes.front().stride == 0) out.axes.clear();
  return out;
}

template <class T, class From>
void copy_run(const From* from, int64_t stride, int64_t count, T* to) {
  if (stride == 1 && std::is_same_v<T, From> && count > 16) {
    std::memcpy(to, from, sizeof(T) * static_cast<size_t>(count));
  } else if (stride == 0) {
    const auto value = static_cast<T>(*from);
    for (int64_t i = 0; i < count; ++i) to[i] = value;
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(from[i * stride]);
  }
}

/// Elements `begin` to `begin + count` of a source.
template <class T, class From>
void load(const Source& source, const From* data, int64_t begin, int64_t count, T* to) {
  const auto& axes = source.axes;
  const Axis& last = axes.back();
  c10::SmallVector<int64_t, 8> at(axes.size());
  int64_t offset = 0;
  for (size_t i = axes.size(); i-- > 0;) {
    at[i] = begin % axes[i].extent;
    begin /= axes[i].extent;
    offset += at[i] * axes[i].stride;
  }
  const size_t inner = axes.size() - 1;
  const bool repeats = inner > 0 && axes[inner - 1].stride == 0;
  while (count > 0) {
    const int64_t run = std::min(count, last.extent - at[inner]);
    copy_run(data + offset, last.stride, run, to);
    if (repeats && run == last.extent) {
      // The row comes again: twice what is there, as often as it takes. The last time is counted below.
      const int64_t times = std::min(count / run, axes[inner - 1].extent - at[inner - 1]);
      for (int64_t have = 1; have < times; have *= 2) {
        std::memcpy(to + have * run, to, sizeof(T) * static_cast<size_t>(std::min(have, times - have) * run));
      }
      to += (times - 1) * run;
      count -= (times - 1) * run;
      at[inner - 1] += times - 1;
    }
    to += run;
    count -= run;
    offset += run * last.stride;
    at[inner] += run;
    for (size_t i = inner; i > 0 && at[i] == axes[i].extent; --i) {
      offset += axes[i - 1].stride - axes[i].extent * axes[i].stride;
      at[i] = 0;
      ++at[i - 1];
    }
  }
}

template <class T>
void load(const Source& source, int64_t begin, int64_t count, T* to) {
  if (source.truth) return load(source, static_cast<const bool*>(source.data), begin, count, to);
  load(source, static_cast<const T*>(source.data), begin, count, to);
}

template <class T>
double sum(const T* x, int64_t count) {
  constexpr int64_t kSums = 8;  // so that no addition waits for the one before
  std::array<double, kSums> sums{};
  int64_t at = 0;
  for (; at + kSums <= count; at += kSums) {
    for (int64_t i = 0; i < kSums; ++i) sums[static_cast<size_t>(i)] += x[at + i];
  }
  for (; at < count; ++at) sums[0] += x[at];
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

template <class T>
bool all_between_0_and_1(const T* x, int64_t count) {
  bool all = true;
  for (int64_t i = 0; i < count; ++i) all &= x[i] >= 0 && x[i] <= 1;
  return all;
}

/// The dtype that functions are computed in: that of operands with axes, if one of them is no truth value.
at::ScalarType dtype_of(at::TensorList operands) {
  at::ScalarType found = at::kBool;
  for (const bool axes : {true, false}) {
    for (const at::Tensor& x : operands) {
      if (found == at::kBool && (x.dim() > 0) == axes && x.is_floating_point()) found = x.scalar_type();
    }
  }
  JOINSUM_KERNEL_CHECK(found == at::kFloat || found == at::kDouble,
                       "fused: operands are float32 or float64: dtype=", toString(found));
  for (const at::Tensor& x : operands) {
    JOINSUM_KERNEL_CHECK(x.is_cpu() && (x.dim() == 0 || x.scalar_type() == found || x.scalar_type() == at::kBool),
                         "fused: operands of one dtype on the CPU: wanted=", toString(found),
                         ", given=", toString(x.scalar_type()), " on ", x.device().str());
  }
  return found;
}

[[noreturn]] void fail(const std::string& what, const std::string& text) {
  throw KernelError("fused: " + what + "\n  " + text);
}

int32_t number_after(const std::string& token, const std::string& text) {
  int32_t number = -1;
  const auto [end, error] = std::from_chars(token.data() + 1, token.data() + token.size(), number);
  if (error != std::errc() || number < 0) fail("no such value: " + token, text);
  return number;
}

}  // namespace

std::shared_ptr<const Program> Program::of(std::string_view text) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<const Program>, std::less<>> known;
  const std::lock_guard lock(mutex);
  const auto found = known.find(text);
  if (found != known.end()) return found->second;
  std::shared_ptr<const Program> made(new Program(std::string(text)));
  if (known.size() == kCachedPrograms) known.clear();
  known.emplace(text, made);
  return made;
}

Program::Program(const std::string& text) {
  const size_t arrow = text.find("->");
  if (arrow == std::string::npos) fail("expected `->` and the results", text);
  // Operands, numbers and results have places of their own until all are counted.
  struct Read {
    char kind;
    int32_t place;
  };
  std::vector<std::array<Read, 3>> read;
  std::istringstream statements(text.substr(0, arrow));
  for (std::string statement; std::getline(statements, statement, ';');) {
    std::istringstream words(statement);
    std::string name;
    if (!(words >> name)) continue;
    const auto* const row = std::find_if(kFunctionRows.begin(), kFunctionRows.end(),
                                         [&](const FunctionRow& each) { return each.name == name; });
    if (row == kFunctionRows.end()) fail("no such function: " + name, text);
    std::array<Read, 3> arguments{};
    int given = 0;
    for (std::string word; words >> word; ++given) {
      if (given == row->arguments) fail("too many arguments: " + statement, text);
      Read& argument = arguments[static_cast<size_t>(given)];
      argument = {word[0], 0};
      if (word[0] == 'x' || word[0] == 't') {
        argument.place = number_after(word, text);
        if (word[0] == 'x') operands_ = std::max(operands_, argument.place + 1);
        if (word[0] == 't' && argument.place >= static_cast<int32_t>(read.size())) fail("no result yet: " + word, text);
      } else {
        double number = 0;
        const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
        if (error != std::errc() || end != word.data() + word.size()) fail("no number: " + word, text);
        argument = {'n', static_cast<int32_t>(numbers_.size())};
        numbers_.push_back(number);
      }
    }
    if (given != row->arguments) fail("too few arguments: " + statement, text);
    for (int i = given; i < 3; ++i) arguments[static_cast<size_t>(i)] = arguments[0];
    read.push_back(arguments);
    steps_.push_back({static_cast<Function>(row - kFunctionRows.begin()), {}});
  }
  const auto numbers = static_cast<int32_t>(numbers_.size());
  for (size_t i = 0; i < read.size(); ++i) {
    for (size_t k = 0; k < 3; ++k) {
      const auto [kind, place] = read[i][k];
      steps_[i].arguments[k] = place + (kind == 'x' ? 0 : kind == 'n' ? operands_ : operands_ + numbers);
    }
  }
  std::istringstream outputs(text.substr(arrow + 2));
  for (std::string word; outputs >> word;) {
    const size_t colon = word.find(':');
    const std::string name = word.substr(0, colon);
    const std::string as = colon == std::string::npos ? "" : word.substr(colon + 1);
    static const std::map<std::string, Kind> kinds{
        {"", Kind::kEach}, {"bool", Kind::kTruth}, {"sum", Kind::kSum}, {"mean", Kind::kMean}};
    const auto kind = kinds.find(as);
    if (kind == kinds.end()) fail("no such result: " + word, text);
    const int32_t place = name[0] == 't' ? number_after(name, text) : -1;
    if (place < 0 || place >= static_cast<int32_t>(steps_.size())) fail("no such result: " + word, text);
    outputs_.push_back({operands_ + numbers + place, kind->second});
  }
  if (outputs_.empty()) fail("no results", text);

  const size_t before = static_cast<size_t>(operands_ + numbers);
  last_read_.assign(before + steps_.size(), -1);
  for (size_t i = 0; i < steps_.size(); ++i) {
    for (const int32_t argument : steps_[i].arguments)
      last_read_[static_cast<size_t>(argument)] = static_cast<int32_t>(i);
  }
  std::vector<bool> is_output(last_read_.size(), false);
  for (const Output& output : outputs_) is_output[static_cast<size_t>(output.value)] = true;
  std::vector<int32_t> unused;
  for (size_t i = 0; i < steps_.size(); ++i) {
    auto arguments = steps_[i].arguments;
    std::sort(arguments.begin(), arguments.end());
    const auto* const end = std::unique(arguments.begin(), arguments.end());
    for (const auto* each = arguments.begin(); each != end; ++each) {
      const auto value = static_cast<size_t>(*each);
      if (value < before || is_output[value] || last_read_[value] != static_cast<int32_t>(i)) continue;
      unused.push_back(buffer_[value - before]);
    }
    if (unused.empty()) unused.push_back(buffers_++);
    buffer_.push_back(unused.back());
    unused.pop_back();
  }
}

std::vector<at::Tensor> Program::run(at::TensorList operands, bool channels_last, at::IntArrayRef overwritten) const {
  return run(operands, channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous, overwritten, {});
}

void Program::run_into(at::TensorList operands, at::TensorList results) const {
  JOINSUM_KERNEL_CHECK(results.size() == outputs_.size(), "fused: another number of results: wanted=", outputs_.size(),
                       ", given=", results.size());
  std::vector<at::Tensor> into = results.vec();
  c10::SmallVector<int64_t, 8> overwritten;
  for (size_t number = 0; number < into.size(); ++number) {
    at::Tensor& result = into[number];
    c10::SmallVector<int64_t, 2> aliases;
    for (size_t i = 0; i < operands.size(); ++i) {
      if (operands[i].is_alias_of(result)) aliases.push_back(static_cast<int64_t>(i));
    }
    const auto is_operand = [&](int64_t i) {
      const at::Tensor& operand = operands[static_cast<size_t>(i)];
      return operand.const_data_ptr() == result.const_data_ptr() && operand.sizes() == result.sizes() &&
             operand.strides() == result.strides();
    };
    // A result whose memory is read by two operands, or in another layout, is computed elsewhere and copied at the end.
    // Truth values are written when their tile has been read.
    const bool tile_by_tile = aliases.size() == 1 && is_operand(aliases.front());
    if (!aliases.empty() && !tile_by_tile) result = at::empty_like(result);
    overwritten.push_back(tile_by_tile && outputs_[number].kind == Kind::kEach ? aliases.front() : -1);
  }
  run(operands, at::MemoryFormat::Contiguous, overwritten, into);
  for (size_t i = 0; i < into.size(); ++i) {
    if (!into[i].is_same(results[i])) results[i].copy_(into[i]);
  }
}

/// Results that overwrite no operand are new, or computed `into` arrays where these are given.
std::vector<at::Tensor> Program::run(at::TensorList operands, at::MemoryFormat format, at::IntArrayRef overwritten,
                                     at::TensorList into) const {
  JOINSUM_KERNEL_CHECK(static_cast<int32_t>(operands.size()) == operands_,
                       "fused: another number of operands: wanted=", operands_, ", given=", operands.size());
  JOINSUM_KERNEL_CHECK(overwritten.empty() || overwritten.size() == outputs_.size(),
                       "fused: operands that are overwritten: wanted=", outputs_.size(),
                       ", given=", overwritten.size());
  const at::ScalarType dtype = dtype_of(operands);
  const bool channels_last = format == at::MemoryFormat::ChannelsLast;
  at::DimVector shape;
  for (const at::Tensor& x : operands) shape = at::infer_size_dimvector(shape, x.sizes());
  JOINSUM_KERNEL_CHECK(!channels_last || shape.size() == 4,
                       "fused: channels last are of four axes: given=", shape.size());
  std::vector<at::Tensor> results;
  results.reserve(outputs_.size());
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const int64_t over = overwritten.empty() ? -1 : overwritten[i];
    if (over < 0) {
      const auto options = operands[0].options().dtype(outputs_[i].kind == Kind::kTruth ? at::kBool : dtype);
      const at::IntArrayRef own = outputs_[i].reduces() ? at::IntArrayRef() : at::IntArrayRef(shape);
      if (into.empty()) {
        results.push_back(own.empty() ? at::empty(own, options) : at::empty(own, options, format));
        continue;
      }
      const at::Tensor& given = into[i];
      JOINSUM_KERNEL_CHECK(given.sizes() == own && given.dtype() == options.dtype() && given.is_contiguous(format),
                           "fused: a result is of another shape, dtype or layout: number=", i);
      results.push_back(given);
      continue;
    }
    JOINSUM_KERNEL_CHECK(over < operands_ && outputs_[i].kind == Kind::kEach,
                         "fused: no operand to overwrite: number=", over);
    const at::Tensor& x = operands[static_cast<size_t>(over)];
    JOINSUM_KERNEL_CHECK(x.sizes() == at::IntArrayRef(shape) && x.scalar_type() == dtype,
                         "fused: an operand that is overwritten has the results' shape and dtype");
    x.unsafeGetTensorImpl()->bump_version();
    // An operand of another memory layout gets the result in the end.
    results.push_back(x.is_contiguous(format) ? x : at::empty(shape, x.options(), format));
  }
  c10::SmallVector<at::Tensor, 4> converted;  // of one element, whose dtype is another one
  Sources sources;
  for (const at::Tensor& x : operands) {
    const bool other = x.scalar_type() != dtype && x.scalar_type() != at::kBool;
    sources.push_back(source_of(other ? converted.emplace_back(x.to(dtype)) : x, shape, channels_last));
  }
  const int64_t elements = c10::multiply_integers(shape);
  if (dtype == at::kFloat) {
    compute<float>(sources, elements, results, overwritten);
  } else {
    compute<double>(sources, elements, results, overwritten);
  }
  for (size_t i = 0; i < overwritten.size(); ++i) {
    if (overwritten[i] < 0) continue;
    const at::Tensor& x = operands[static_cast<size_t>(overwritten[i])];
    if (!results[i].is_same(x)) results[i] = x.copy_(results[i]);
  }
  return results;
}

template <class T>
void Program::compute(const Sources& sources, int64_t elements, const std::vector<at::Tensor>& results,
                      at::IntArrayRef overwritten) const {
  const auto before = static_cast<size_t>(operands_) + numbers_.size();
  const size_t scratch = before + static_cast<size_t>(buffers_);
  const auto arrays = static_cast<int64_t>(scratch + results.size());
  const int64_t fitting = kTileBytes / (arrays * static_cast<int64_t>(sizeof(T)));
  const int64_t tile = std::clamp(fitting / kLeastTile * kLeastTile, kLeastTile, kMostTile);

  // Results that functions write where they belong. Others are copied there when a tile is done.
  c10::SmallVector<T*, 32> into(steps_.size(), nullptr);
  c10::SmallVector<size_t, 4> copied;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const auto step = static_cast<size_t>(outputs_[i].value) - before;
    const int64_t over = overwritten.empty() ? -1 : overwritten[i];
    const bool read_later = over >= 0 && last_read_[static_cast<size_t>(over)] > static_cast<int32_t>(step);
    if (outputs_[i].kind != Kind::kEach || read_later || into[step] != nullptr) {
      copied.push_back(i);
    } else {
      into[step] = results[i].template mutable_data_ptr<T>();
    }
  }

  // Ranges of whole tiles, so that the sum of each tile is one of the same elements for any number of threads.
  const int64_t tiles = (elements + tile - 1) / tile;
  const int64_t grain = std::max<int64_t>(1, kFunctionsPerThread / static_cast<int64_t>(steps_.size()) / tile);
  std::vector<std::vector<double>> sums(outputs_.size());
  for (const size_t i : copied) {
    if (outputs_[i].reduces()) sums[i].resize(static_cast<size_t>(tiles));
  }
  const Loops<T>& loops = loops_of<T>();
  std::atomic<bool> beyond = false;
  threads::for_each_range(tiles, grain, [&](int64_t first, int64_t last) {
    const int64_t begin = first * tile;
    const int64_t end = std::min(last * tile, elements);
    thread_local std::vector<T> memory;
    const size_t wanted = scratch * static_cast<size_t>(tile);
    if (memory.size() < wanted) memory.resize(wanted);
    const auto own = [&](size_t i) { return memory.data() + i * static_cast<size_t>(tile); };
    c10::SmallVector<const T*, 64> values(last_read_.size());
    const int64_t filled = std::min(tile, end - begin);
    for (size_t i = 0; i < before; ++i) {
      values[i] = own(i);
      if (i >= sources.size()) {
        std::fill_n(own(i), filled, static_cast<T>(numbers_[i - sources.size()]));
      } else if (sources[i].axes.empty()) {
        const bool truth = sources[i].truth;
        const T value = truth ? static_cast<T>(*static_cast<const bool*>(sources[i].data))
                              : *static_cast<const T*>(sources[i].data);
        std::fill_n(own(i), filled, value);
      }
    }
    for (int64_t at = begin; at < end; at += tile) {
      const int64_t count = std::min(tile, end - at);
      for (size_t i = 0; i < sources.size(); ++i) {
        if (sources[i].adjacent()) {
          values[i] = static_cast<const T*>(sources[i].data) + at;
        } else if (!sources[i].axes.empty()) {
          load(sources[i], at, count, own(i));
        }
      }
      for (size_t i = 0; i < steps_.size(); ++i) {
        const auto& [function, arguments] = steps_[i];
        T* const to = into[i] != nullptr ? into[i] + at : own(before + static_cast<size_t>(buffer_[i]));
        loops[static_cast<size_t>(function)](values[static_cast<size_t>(arguments[0])],
                                             values[static_cast<size_t>(arguments[1])],
                                             values[static_cast<size_t>(arguments[2])], to, count);
        values[before + i] = to;
        if (function == Function::kUnit && !all_between_0_and_1(to, count)) beyond = true;
      }
      for (const size_t i : copied) {
        const T* const from = values[static_cast<size_t>(outputs_[i].value)];
        if (outputs_[i].reduces()) {
          sums[i][static_cast<size_t>(at / tile)] = sum(from, count);
        } else if (outputs_[i].kind == Kind::kTruth) {
          bool* const to = results[i].template mutable_data_ptr<bool>() + at;
          for (int64_t k = 0; k < count; ++k) to[k] = from[k] != 0;
        } else {
          std::memcpy(results[i].template mutable_data_ptr<T>() + at, from, sizeof(T) * static_cast<size_t>(count));
        }
      }
    }
  });
  TORCH_CHECK(!beyond, "all elements of input should be between 0 and 1");  // as binary_cross_entropy says it
  for (const size_t i : copied) {
    if (!outputs_[i].reduces()) continue;
    const double total = std::accumulate(sums[i].begin(), sums[i].end(), 0.0);
    const double divisor = outputs_[i].kind == Kind::kMean ? static_cast<double>(elements) : 1;
    *results[i].template mutable_data_ptr<T>() = static_cast<T>(total / divisor);
  }
}

}  // namespace joinsum::kernels::fusion
