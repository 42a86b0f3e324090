#include "runtime/streaming.h"

#include <algorithm>
#include <array>
#include <map>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include "kernels/dense.h"
#include "kernels/dense_parts.h"
#include "kernels/rows.h"
#include "kernels/typing.h"

namespace joinsum::runtime {
namespace {

using ia::Node;
using kernels::Form;
using kernels::Kernel;
using kernels::Labels;
using kernels::Row;

/// In the letters of an array: an axis of extent 1 that is there for all indices of the result's.
constexpr char kRepeats = ' ';

/// How much longer than others the axis of a block is along which vectors run.
constexpr int64_t kInnerFactor = 16;

/// Part of each letter's indices.
struct Part {
  int64_t begin;
  int64_t count;
};
using Parts = std::map<char, Part>;

int64_t points(const Parts& parts) {
  int64_t product = 1;
  for (const auto& [letter, part] : parts) product *= part.count;
  return product;
}

/// The part of `array` that those parts of its letters are.
at::Tensor narrowed(at::Tensor array, const std::string& letters, const Parts& parts) {
  for (size_t axis = 0; axis < letters.size(); ++axis) {
    if (letters[axis] == kRepeats) continue;
    const Part& part = parts.at(letters[axis]);
    array = array.narrow(static_cast<int64_t>(axis), part.begin, part.count);
  }
  return array;
}

/// How the arrays of one tuple of a fold are worked out: steps in order, the last ones being what is folded.
class Program {
 public:
  Program(Kernel fold, const kernels::Scalars& scalars)
      : fold_(std::move(fold)), row_(kernels::row_of(fold_)), labels_(row_.labels(fold_)), scalars_(scalars) {}

  const Labels& labels() const { return labels_; }

  /// An array that is there. A copy of a view costs little beside what is worked out of it many times.
  size_t add_array(std::string letters, at::Tensor array) {
    array = array.contiguous();
    const Dims shape = array.sizes().vec();
    steps_.push_back({{}, {}, std::move(letters), shape, std::move(array)});
    return steps_.size() - 1;
  }

  /// What `kernel` computes of earlier steps.
  size_t add(const Kernel& kernel, std::vector<size_t> operands, std::string letters, Dims shape) {
    steps_.push_back({kernel, std::move(operands), std::move(letters), std::move(shape), {}});
    return steps_.size() - 1;
  }

  void fold(std::vector<size_t> operands) {
    folded_ = std::move(operands);
    for (const auto& [letter, extent] : kernels::letter_extents(fold_.name, labels_, shapes_of(folded_))) {
      all_[letter] = {0, extent};
    }
  }

  Dims result_shape() const {
    Dims shape;
    for (const char letter : labels_.result) shape.push_back(all_.at(letter).count);
    return shape;
  }

  /// Floats of half width are folded in single precision.
  at::ScalarType result_type() const {
    std::vector<DType> dtypes;
    for (const size_t step : folded_) dtypes.push_back(kernels::dtype_of(type_of(step)));
    const auto type = kernels::scalar_type(kernels::result_dtype(fold_, dtypes));
    return type == at::kHalf || type == at::kBFloat16 ? at::kFloat : type;
  }

  at::TensorOptions options() const {
    const auto leaf = std::find_if(steps_.begin(), steps_.end(), [](const Step& step) { return step.array.defined(); });
    return leaf->array.options().dtype(result_type());
  }

  int64_t flops() const {
    int64_t sum = kernels::flops(fold_, shapes_of(folded_));
    for (const Step& step : steps_) {
      if (!step.array.defined()) sum += kernels::flops(step.kernel, shapes_of(step.operands));
    }
    return sum;
  }

  /// Writes the fold to `out`, or folds it into `out` with `accumulate`.
  void run(const at::Tensor& out, bool accumulate) const {
    const std::string& kept = labels_.result;
    const int64_t threads = out.is_cpu() ? at::get_num_threads() : 1;
    const auto longest =
        std::max_element(kept.begin(), kept.end(), [&](char a, char b) { return all_.at(a).count < all_.at(b).count; });
    if (longest == kept.end() || all_.at(*longest).count < threads) return blocks(all_, out, accumulate);
    const int64_t extent = all_.at(*longest).count, axis = longest - kept.begin();
    kernels::dense_parts::for_each_range(threads, [&](int64_t first, int64_t last) {
      const c10::NoGradGuard no_grad;
      Parts parts = all_;
      const int64_t begin = extent * first / threads, end = extent * last / threads;
      parts[*longest] = {begin, end - begin};
      blocks(parts, out.narrow(axis, begin, end - begin), accumulate);
    });
  }

 private:
  struct Step {
    Kernel kernel;
    std::vector<size_t> operands;
    std::string letters;
    Dims shape;
    at::Tensor array;  ///< of a step that computes nothing
  };

  std::vector<Dims> shapes_of(const std::vector<size_t>& steps) const {
    std::vector<Dims> shapes;
    for (const size_t step : steps) shapes.push_back(steps_[step].shape);
    return shapes;
  }

  at::ScalarType type_of(size_t step) const {
    const Step& at = steps_[step];
    if (at.array.defined()) return at.array.scalar_type();
    std::vector<DType> dtypes;
    for (const size_t operand : at.operands) dtypes.push_back(kernels::dtype_of(type_of(operand)));
    return kernels::scalar_type(kernels::result_dtype(at.kernel, dtypes));
  }

  /// Halves the longest letter until few points are left; `out` is the part of the result for `parts`.
  void blocks(const Parts& parts, const at::Tensor& out, bool accumulate) const {
    const auto longest = std::max_element(parts.begin(), parts.end(),
                                          [](const auto& a, const auto& b) { return a.second.count < b.second.count; });
    if (points(parts) <= kernels::dense_parts::block_elements(out) || longest->second.count == 1) {
      return block(parts, out, accumulate);
    }
    const auto [letter, whole] = *longest;
    const int64_t half = whole.count / 2;
    const size_t axis = labels_.result.find(letter);
    const bool kept = axis != std::string::npos;
    for (const Part& part : {Part{whole.begin, half}, Part{whole.begin + half, whole.count - half}}) {
      Parts some = parts;
      some[letter] = part;
      const bool second = part.begin != whole.begin;
      const at::Tensor target =
          kept ? out.narrow(static_cast<int64_t>(axis), part.begin - whole.begin, part.count) : out;
      blocks(some, target, accumulate || (second && !kept));
    }
  }

  void block(const Parts& parts, const at::Tensor& out, bool accumulate) const {
    std::vector<at::Tensor> values;
    const auto of = [&](const std::vector<size_t>& steps) {
      std::vector<at::Tensor> some;
      for (const size_t step : steps) some.push_back(values[step]);
      return some;
    };
    for (const Step& step : steps_) {
      values.push_back(step.array.defined() ? narrowed(step.array, step.letters, parts)
                                            : kernels::dense(step.kernel, of(step.operands), scalars_));
    }
    const at::Tensor folded = kernels::dense(fold_, of(folded_), scalars_).to(out.scalar_type());
    if (accumulate) {
      kernels::dense({row_.fold, {}}, {out, folded}, {}, 0, 0, out);
    } else {
      at::Tensor(out).copy_(folded);
    }
  }

  Kernel fold_;
  const Row& row_;
  Labels labels_;
  const kernels::Scalars& scalars_;
  std::vector<Step> steps_;
  std::vector<size_t> folded_;
  Parts all_;
};

/// Adds the steps that work out streamed values to a program, for one tuple.
class Builder {
 public:
  Builder(const ia::Formation& formation, const std::unordered_map<const Node*, const Operand*>& given,
          Program& program)
      : formation_(formation), given_(given), program_(program) {}

  /// The steps of `node`, a join or a map that folds, for the tuple of `key`.
  void fold(const Node& node, const Key& key) {
    std::vector<size_t> operands;
    for (size_t i = 0; i < node.inputs().size(); ++i) {
      operands.push_back(value(*node.input(i), own_key(node, i, key), program_.labels().operands[i]));
    }
    program_.fold(std::move(operands));
  }

 private:
  /// The step that holds a node's array of one tuple, whose axes have `letters`.
  size_t value(const Node& node, const Key& key, const std::string& letters) {
    const auto known = known_.find({&node, key, letters});
    if (known != known_.end()) return known->second;
    const size_t step =
        formation_.formed(node) ? program_.add_array(letters, array_of(node, key)) : computed(node, key, letters);
    known_.emplace(std::tuple(&node, key, letters), step);
    return step;
  }

  /// The array of a value that is formed.
  at::Tensor array_of(const Node& node, const Key& key) const {
    const Operand& operand = *given_.at(&node);
    const Box box = Box::single(key);
    const Layout layout(operand.type);
    for (const Piece& piece : operand.pieces) {
      if (!piece.box.contains(key)) continue;
      return layout.slice(piece.array, piece.box, box).reshape(operand.type.array_shape(key));
    }
    JOINSUM_CHECK(false, "key=", key);
  }

  size_t computed(const Node& node, const Key& key, const std::string& letters) {
    const auto* join = node.as<ia::LocalJoin>();
    const Kernel& kernel = join != nullptr ? join->kernel : node.as<ia::LocalMap>()->array_map;
    std::string before = letters;
    std::vector<std::string> after;  // letters behind each kernel that follows the first
    for (size_t i = kernel.then.size(); i-- > 0;) {
      after.insert(after.begin(), before);
      before = letters_below(kernel.then[i], 0, before, rank_below(kernel.then[i], before));
    }
    std::vector<size_t> operands;
    std::vector<Dims> shapes;
    for (size_t i = 0; i < node.inputs().size(); ++i) {
      const Node& input = *node.input(i);
      const Key own = own_key(node, i, key);
      const Dims shape = input.type().relation.array_shape(own);
      std::string below = letters_below(kernel.first(), i, before, shape.size());
      operands.push_back(value(input, own, repeated(below, shape, letters, node.type().relation.array_shape(key))));
      shapes.push_back(shape);
    }
    Dims shape = kernels::result_shape(kernels::row_of(kernel.first()), kernel.first(), shapes, 0);
    size_t step = program_.add(kernel.first(), std::move(operands), before, shape);
    for (size_t i = 0; i < kernel.then.size(); ++i) {
      shape = kernels::result_shape(kernels::row_of(kernel.then[i]), kernel.then[i], {shape}, 0);
      step = program_.add(kernel.then[i], {step}, after[i], shape);
    }
    return step;
  }

  static size_t rank_below(const Kernel& kernel, const std::string& letters) {
    return kernels::row_of(kernel).form == Form::kInsertAxis ? letters.size() - 1 : letters.size();
  }

  /// Letters of the axes of a kernel's operand i, whose rank is given, for those of its result.
  static std::string letters_below(const Kernel& kernel, size_t i, const std::string& letters, size_t rank) {
    const Row& row = kernels::row_of(kernel);
    if (row.form == Form::kElementwise) return letters.substr(letters.size() - rank);
    if (row.form == Form::kInsertAxis) return std::string(letters).erase(static_cast<size_t>(kernel.integer(0)), 1);
    const Labels labels = row.labels(kernel);
    std::string out;
    for (const char letter : labels.operands[i]) out += letters[labels.result.find(letter)];
    return out;
  }

  /// `below` where axes that have one element, of letters that have more in the result, repeat.
  static std::string repeated(std::string below, const Dims& shape, const std::string& letters, const Dims& result) {
    for (size_t axis = 0; axis < below.size(); ++axis) {
      const size_t above = letters.find(below[axis]);
      const bool known = below[axis] != kRepeats && above != std::string::npos;
      if (known && shape[axis] == 1 && result[above] != 1) below[axis] = kRepeats;
    }
    return below;
  }

  /// The key of operand i's tuple that the tuple of `key` is made of.
  static Key own_key(const Node& node, size_t i, const Key& key) {
    const auto* join = node.as<ia::LocalJoin>();
    if (join == nullptr) return key;
    const int64_t left = node.input(0)->type().relation.arity(), right = node.input(1)->type().relation.arity();
    if (i == 0) return project(key, all_dims(left));
    return project(key, kernels::JoinKeys{join->left_keys, join->right_keys}.right_position(left, right));
  }

  const ia::Formation& formation_;
  const std::unordered_map<const Node*, const Operand*>& given_;
  Program& program_;
  std::map<std::tuple<const Node*, Key, std::string>, size_t> known_;
};

}  // namespace

Streaming::Streaming(const ia::Formation& formation, const std::vector<const Node*>& operands,
                     const std::vector<Operand>& given, const kernels::Scalars& scalars, BlockStore& store,
                     int64_t& flops)
    : formation_(formation), scalars_(scalars), store_(store), flops_(flops) {
  for (size_t i = 0; i < operands.size(); ++i) given_[operands[i]] = &given[i];
}

namespace {

/// What a fold of streamed values gives before the kernels that follow it, and all its kernels.
std::pair<RelationType, Kernel> folded_by(const Node& node, const Node& work) {
  if (const auto* aggregate = node.as<ia::LocalAggregate>()) {
    const RelationType& joined = work.type().relation;
    return {kernels::aggregate_type("local_aggregate", joined, aggregate->group_by, aggregate->kernel.first()),
            aggregate->kernel};
  }
  const RelationType& first = work.input(0)->type().relation;
  if (const auto* join = work.as<ia::LocalJoin>()) {
    const kernels::JoinKeys keys{join->left_keys, join->right_keys};
    const RelationType& second = work.input(1)->type().relation;
    return {kernels::join_type("local_join", first, second, keys, join->kernel.first()), join->kernel};
  }
  const auto& map = *work.as<ia::LocalMap>();
  return {kernels::map_type("local_map", first, 1, map.key_map, map.array_map.first()), map.array_map};
}

}  // namespace

std::vector<Piece> Streaming::fold(const Node& node, int64_t site) const {
  const auto* aggregate = node.as<ia::LocalAggregate>();
  const Node& work = aggregate != nullptr ? *node.input(0) : node;
  const auto* join = work.as<ia::LocalJoin>();
  const Kernel kernel = (join != nullptr ? join->kernel : work.as<ia::LocalMap>()->array_map).first();
  std::map<Key, at::Tensor> folded;
  for (const Box& box : work.type().stored(site)) {
    for_each_key(box, [&](const Key& key) {
      Program program(kernel, scalars_);
      Builder(formation_, given_, program).fold(work, key);
      const auto [at, fresh] = folded.try_emplace(aggregate != nullptr ? project(key, aggregate->group_by) : key);
      if (fresh) at->second = store_.allocate(program.result_shape(), program.options());
      program.run(at->second, !fresh);
      flops_ += program.flops();
    });
  }
  const auto [type, all_kernels] = folded_by(node, work);
  const Layout layout(type);
  std::vector<Piece> pieces;
  for (const auto& [key, array] : folded) {
    const Box box = Box::single(key);
    pieces.push_back({box, array.to(kernels::scalar_type(type.dtype)).reshape(layout.shape(box))});
  }
  return LocalOperators(scalars_, store_, flops_).then(all_kernels, std::move(pieces), type);
}

}  // namespace joinsum::runtime
