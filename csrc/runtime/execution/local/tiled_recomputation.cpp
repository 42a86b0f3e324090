#include "runtime/execution/local/tiled_recomputation.h"

#include <algorithm>
#include <array>
#include <map>

#include <ATen/ATen.h>

#include "kernels/dense/dense.h"
#include "relation/typing.h"
#include "runtime/execution/local/pair_pattern.h"

namespace joinsum::runtime::execution::local {
namespace {

using ia::Node;
using kernels::table::Form;
using kernels::table::Kernel;
using kernels::table::Row;
using kernels::table::Subscripts;

/// Adds the steps that compute values which are not materialized to a program, for one tuple.
class Builder {
 public:
  Builder(const ia::analysis::Materialization& materialization, TileProgram& program)
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
  TileProgram& program_;
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

/// Runs a program in one pass by its pattern, or tile by tile.
void run_program(const TileProgram& program, const std::optional<PairPattern>& pattern, ProgramInputs inputs,
                 FoundWinners& winners, const at::Tensor& out, bool accumulate) {
  if (pattern && runs_pattern(*pattern, program, inputs.arrays, winners, out, accumulate)) return;
  // A copy of a view costs little beside what is computed from it many times.
  for (at::Tensor& array : inputs.arrays) array = array.contiguous();
  program.run(inputs, out, accumulate);
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
          if (!fresh) return;
          Builder(materialization, at->second).reduce(work, key);
          patterns_.emplace(key, pair_pattern(at->second));
        });
      }
    }
  }

  std::vector<PinnedPiece> run(const std::vector<PinnedOperand>& operands, const std::vector<Box>& boxes,
                               const RunContext& context) const override {
    std::map<Key, at::Tensor> reduced;
    for (const Box& box : boxes) {
      for_each_key(box, [&](const Key& key) {
        const TileProgram& program = programs_.at(key);
        std::vector<at::Tensor> arrays;
        for (const ReadTuple& read : program.reads()) arrays.push_back(array_of(read, operands));
        const auto [at, fresh] = reduced.try_emplace(aggregate_ != nullptr ? project(key, aggregate_->group_by) : key);
        if (fresh) {
          at->second =
              context.store.allocate(program.result_shape(), arrays.front().options().dtype(program.result_type()));
        }
        run_program(program, patterns_.at(key), {std::move(arrays), context.scalars}, context.winners, at->second,
                    !fresh);
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

  std::vector<ExtremeName> compared() const {
    std::vector<ExtremeName> names;
    for (const auto& [key, pattern] : patterns_) {
      if (pattern && pattern->compared && pattern->term != kernels::semiring::Term::kTied) {
        names.push_back(pattern->compared->name);
      }
    }
    return names;
  }

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
  std::map<Key, TileProgram> programs_;
  std::map<Key, std::optional<PairPattern>> patterns_;
  relation::RelationType type_;
  storage::Layout layout_;
  Epilogue epilogue_;
};

}  // namespace

std::vector<ExtremeName> compared_extremes(const LocalOperator& operation) {
  const auto* tiled = dynamic_cast<const TiledRecomputation*>(&operation);
  return tiled == nullptr ? std::vector<ExtremeName>{} : tiled->compared();
}

LocalOperatorPtr prepare_tiled_recomputation(const ia::analysis::Materialization& materialization, const Node& node,
                                             const std::vector<int64_t>& sites) {
  return std::make_unique<TiledRecomputation>(materialization, node, sites);
}

}  // namespace joinsum::runtime::execution::local
