#include "runtime/execution/local/tiled_recomputation.h"

#include <algorithm>
#include <array>
#include <map>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include "kernels/dense/dense.h"
#include "kernels/dense/loops.h"
#include "kernels/pairs/parallel.h"
#include "kernels/table/rows.h"
#include "relation/typing.h"

namespace joinsum::runtime::execution::local {
namespace {

using ia::Node;
using kernels::table::Form;
using kernels::table::Kernel;
using kernels::table::Row;
using kernels::table::Subscripts;

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

/// What a run gives a program: its arrays, contiguous, and the scalars that kernels read.
struct ProgramInputs {
  std::vector<at::Tensor> arrays;
  const kernels::table::Scalars& scalars;
};

/// A tuple of a materialized value that a program reads.
struct ReadTuple {
  const Node* node;
  Key key;
};

/// How the arrays of one tuple of a reduction are computed: steps in order, the last ones being what is reduced.
class Program {
 public:
  explicit Program(Kernel reduction)
      : reduction_(std::move(reduction)),
        row_(&kernels::table::row_of(reduction_)),
        labels_(row_->labels(reduction_)) {}

  const Subscripts& labels() const { return labels_; }
  const std::vector<ReadTuple>& reads() const { return reads_; }

  size_t add_array(std::string letters, ReadTuple tuple) {
    const relation::RelationType& type = tuple.node->type().relation;
    steps_.push_back({{}, {}, std::move(letters), type.array_shape(tuple.key), reads_.size(), type.dtype});
    reads_.push_back(std::move(tuple));
    return steps_.size() - 1;
  }

  /// What `kernel` computes of earlier steps.
  size_t add(const Kernel& kernel, std::vector<size_t> operands, std::string letters, Dims shape) {
    const DType dtype = kernels::table::result_dtype(kernel, dtypes_of(operands));
    steps_.push_back({kernel, std::move(operands), std::move(letters), std::move(shape), std::nullopt, dtype});
    return steps_.size() - 1;
  }

  void reduce(std::vector<size_t> operands) {
    reduced_ = std::move(operands);
    for (const auto& [letter, extent] : kernels::table::letter_extents(reduction_.name, labels_, shapes_of(reduced_))) {
      all_[letter] = {0, extent};
    }
  }

  Dims result_shape() const {
    Dims shape;
    for (const char letter : labels_.result) shape.push_back(all_.at(letter).count);
    return shape;
  }

  /// Floats of half width are accumulated in single precision.
  at::ScalarType result_type() const {
    const auto type = kernels::dense::scalar_type(kernels::table::result_dtype(reduction_, dtypes_of(reduced_)));
    return type == at::kHalf || type == at::kBFloat16 ? at::kFloat : type;
  }

  int64_t flops() const {
    int64_t sum = kernels::table::flops(reduction_, shapes_of(reduced_));
    for (const Step& step : steps_) {
      if (!step.read) sum += kernels::table::flops(step.kernel, shapes_of(step.operands));
    }
    return sum;
  }

  /// Writes the reduction to `out`, or reduces it into `out` with `accumulate`.
  void run(const ProgramInputs& inputs, const at::Tensor& out, bool accumulate) const {
    const std::string& letters = labels_.result;
    const int64_t threads = out.is_cpu() ? at::get_num_threads() : 1;
    const auto longest = std::max_element(letters.begin(), letters.end(),
                                          [&](char a, char b) { return all_.at(a).count < all_.at(b).count; });
    if (longest == letters.end() || all_.at(*longest).count < threads) return blocks(inputs, all_, out, accumulate);
    const int64_t extent = all_.at(*longest).count, axis = longest - letters.begin();
    kernels::pairs::for_each_range(threads, [&](int64_t first, int64_t last) {
      const c10::NoGradGuard no_grad;
      Parts parts = all_;
      const int64_t begin = extent * first / threads, end = extent * last / threads;
      parts[*longest] = {begin, end - begin};
      blocks(inputs, parts, out.narrow(axis, begin, end - begin), accumulate);
    });
  }

 private:
  struct Step {
    Kernel kernel;
    std::vector<size_t> operands;
    std::string letters;
    Dims shape;
    std::optional<size_t> read;  ///< position in the arrays of a run, of a step that computes nothing
    DType dtype;
  };

  std::vector<Dims> shapes_of(const std::vector<size_t>& steps) const {
    std::vector<Dims> shapes;
    for (const size_t step : steps) shapes.push_back(steps_[step].shape);
    return shapes;
  }

  std::vector<DType> dtypes_of(const std::vector<size_t>& steps) const {
    std::vector<DType> dtypes;
    for (const size_t step : steps) dtypes.push_back(steps_[step].dtype);
    return dtypes;
  }

  /// Halves the longest letter until few points are left; `out` is the part of the result for `parts`.
  void blocks(const ProgramInputs& inputs, const Parts& parts, const at::Tensor& out, bool accumulate) const {
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

  void block(const ProgramInputs& inputs, const Parts& parts, const at::Tensor& out, bool accumulate) const {
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

  Kernel reduction_;
  const Row* row_;
  Subscripts labels_;
  std::vector<Step> steps_;
  std::vector<ReadTuple> reads_;
  std::vector<size_t> reduced_;
  Parts all_;
};

/// Adds the steps that compute values which are not materialized to a program, for one tuple.
class Builder {
 public:
  Builder(const ia::analysis::Materialization& materialization, Program& program)
      : materialization_(materialization), program_(program) {}

  /// The steps of `node`, a join or a map that reduces, for the tuple of `key`.
  void reduce(const Node& node, const Key& key) {
    std::vector<size_t> operands;
    for (size_t i = 0; i < node.inputs().size(); ++i) {
      operands.push_back(value(*node.input(i), own_key(node, i, key), program_.labels().operands[i]));
    }
    program_.reduce(std::move(operands));
  }

 private:
  /// The step that holds a node's array of one tuple, whose axes have `letters`.
  size_t value(const Node& node, const Key& key, const std::string& letters) {
    const auto known = known_.find({&node, key, letters});
    if (known != known_.end()) return known->second;
    const size_t step =
        materialization_.materialized(node) ? program_.add_array(letters, {&node, key}) : computed(node, key, letters);
    known_.emplace(std::tuple(&node, key, letters), step);
    return step;
  }

  size_t computed(const Node& node, const Key& key, const std::string& letters) {
    const auto* join = node.as<ia::LocalJoin>();
    const Kernel& kernel = join != nullptr ? join->kernel : node.as<ia::LocalMap>()->array_map;
    std::string before = letters;
    std::vector<std::string> after;  // letters behind each kernel that follows the first
    for (size_t i = kernel.epilogue.size(); i-- > 0;) {
      after.insert(after.begin(), before);
      before = letters_below(kernel.epilogue[i], 0, before, rank_below(kernel.epilogue[i], before));
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
    Dims shape = kernels::table::result_shape(kernels::table::row_of(kernel.first()), kernel.first(), shapes, 0);
    size_t step = program_.add(kernel.first(), std::move(operands), before, shape);
    for (size_t i = 0; i < kernel.epilogue.size(); ++i) {
      shape = kernels::table::result_shape(kernels::table::row_of(kernel.epilogue[i]), kernel.epilogue[i], {shape}, 0);
      step = program_.add(kernel.epilogue[i], {step}, after[i], shape);
    }
    return step;
  }

  static size_t rank_below(const Kernel& kernel, const std::string& letters) {
    return kernels::table::row_of(kernel).form == Form::kInsertAxis ? letters.size() - 1 : letters.size();
  }

  /// Letters of the axes of a kernel's operand i, whose rank is given, for those of its result.
  static std::string letters_below(const Kernel& kernel, size_t i, const std::string& letters, size_t rank) {
    const Row& row = kernels::table::row_of(kernel);
    if (row.form == Form::kElementwise) return letters.substr(letters.size() - rank);
    if (row.form == Form::kInsertAxis) return std::string(letters).erase(static_cast<size_t>(kernel.integer(0)), 1);
    const Subscripts labels = row.labels(kernel);
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
    return project(key, relation::JoinKeys{join->left_keys, join->right_keys}.right_position(left, right));
  }

  const ia::analysis::Materialization& materialization_;
  Program& program_;
  std::map<std::tuple<const Node*, Key, std::string>, size_t> known_;
};

/// What a reduction of recomputed values gives before the kernels that follow it, and all its kernels.
std::pair<relation::RelationType, Kernel> reduced_by(const Node& node, const Node& work) {
  if (const auto* aggregate = node.as<ia::LocalAggregate>()) {
    const relation::RelationType& joined = work.type().relation;
    return {relation::aggregate_type("local_aggregate", joined, aggregate->group_by, aggregate->kernel.first()),
            aggregate->kernel};
  }
  const relation::RelationType& first = work.input(0)->type().relation;
  if (const auto* join = work.as<ia::LocalJoin>()) {
    const relation::JoinKeys keys{join->left_keys, join->right_keys};
    const relation::RelationType& second = work.input(1)->type().relation;
    return {relation::join_type("local_join", first, second, keys, join->kernel.first()), join->kernel};
  }
  const auto& map = *work.as<ia::LocalMap>();
  return {relation::map_type("local_map", first, 1, map.key_map, map.array_map.first()), map.array_map};
}

class TiledRecomputation final : public LocalOperator {
 public:
  TiledRecomputation(const ia::analysis::Materialization& materialization, const Node& node,
                     const std::vector<int64_t>& sites)
      : nodes_(materialization.operands(node)),
        aggregate_(node.as<ia::LocalAggregate>()),
        type_(reduced_by(node, work_of(node)).first),
        layout_(type_),
        epilogue_(reduced_by(node, work_of(node)).second, type_) {
    const Node& work = work_of(node);
    const Kernel kernel = kernel_of(work).first();
    for (const int64_t site : sites) {
      for (const Box& box : work.type().stored(site)) {
        for_each_key(box, [&](const Key& key) {
          const auto [at, fresh] = programs_.try_emplace(key, kernel);
          if (fresh) Builder(materialization, at->second).reduce(work, key);
        });
      }
    }
  }

  std::vector<PinnedPiece> run(const std::vector<PinnedOperand>& operands, const std::vector<Box>& boxes,
                               const RunContext& context) const override {
    std::map<Key, at::Tensor> reduced;
    for (const Box& box : boxes) {
      for_each_key(box, [&](const Key& key) {
        const Program& program = programs_.at(key);
        ProgramInputs inputs{{}, context.scalars};
        // A copy of a view costs little beside what is computed from it many times.
        for (const ReadTuple& read : program.reads()) inputs.arrays.push_back(array_of(read, operands).contiguous());
        const auto [at, fresh] = reduced.try_emplace(aggregate_ != nullptr ? project(key, aggregate_->group_by) : key);
        if (fresh) {
          at->second = context.store.allocate(program.result_shape(),
                                              inputs.arrays.front().options().dtype(program.result_type()));
        }
        program.run(inputs, at->second, !fresh);
        context.flops += program.flops();
      });
    }
    std::vector<PinnedPiece> pieces;
    for (const auto& [key, array] : reduced) {
      const Box box = Box::single(key);
      pieces.push_back({box, array.to(kernels::dense::scalar_type(type_.dtype)).reshape(layout_.shape(box))});
    }
    return epilogue_.run(std::move(pieces), context);
  }

  std::string text() const override { return "tiled recomputation"; }

 private:
  static const Kernel& kernel_of(const Node& work) {
    const auto* join = work.as<ia::LocalJoin>();
    return join != nullptr ? join->kernel : work.as<ia::LocalMap>()->array_map;
  }

  static const Node& work_of(const Node& node) {
    return node.as<ia::LocalAggregate>() != nullptr ? *node.input(0) : node;
  }

  at::Tensor array_of(const ReadTuple& read, const std::vector<PinnedOperand>& operands) const {
    const auto operand = std::find(nodes_.begin(), nodes_.end(), read.node) - nodes_.begin();
    const relation::RelationType& type = read.node->type().relation;
    const storage::Layout layout(type);
    for (const PinnedPiece& piece : operands[operand].pieces) {
      if (!piece.box.contains(read.key)) continue;
      return layout.slice(piece.array, piece.box, Box::single(read.key)).reshape(type.array_shape(read.key));
    }
    JOINSUM_CHECK(false, "key=", read.key);
  }

  std::vector<const Node*> nodes_;
  const ia::LocalAggregate* aggregate_;
  std::map<Key, Program> programs_;
  relation::RelationType type_;
  storage::Layout layout_;
  Epilogue epilogue_;
};

}  // namespace

LocalOperatorPtr prepare_tiled_recomputation(const ia::analysis::Materialization& materialization, const Node& node,
                                             const std::vector<int64_t>& sites) {
  return std::make_unique<TiledRecomputation>(materialization, node, sites);
}

}  // namespace joinsum::runtime::execution::local
