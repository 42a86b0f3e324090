#include "sparse/program/program.h"

#include <algorithm>
#include <set>

#include "sparse/tensor/elements.h"
#include "sparse/tensor/fills.h"

namespace joinsum::sparse::program {
namespace {

/// Gives aggregates new names for indices that are taken, and renames what they bind.
class Renaming {
 public:
  explicit Renaming(const std::vector<std::string>& reserved) : taken_(reserved.begin(), reserved.end()) {}

  ExpressionPtr apply(const ExpressionPtr& expression, const std::map<std::string, std::string>& names) {
    auto made = std::make_shared<Expression>(*expression);
    if (expression->kind == Expression::Kind::kInput) {
      for (std::string& index : made->indices) {
        if (const auto found = names.find(index); found != names.end()) index = found->second;
      }
      return made;
    }
    std::map<std::string, std::string> inner = names;
    if (expression->kind == Expression::Kind::kAggregate) {
      for (std::string& index : made->indices) {
        const std::string chosen = free_name(index);
        originals_[chosen] = index;
        inner[index] = chosen;
        index = chosen;
      }
    }
    for (ExpressionPtr& child : made->children) child = apply(child, inner);
    return made;
  }

  std::map<std::string, std::string> originals() && { return std::move(originals_); }

 private:
  std::string free_name(const std::string& name) {
    std::string chosen = name;
    for (int64_t i = 2; !taken_.insert(chosen).second; ++i) chosen = concatenate(name, "_", i);
    return chosen;
  }

  std::set<std::string> taken_;
  std::map<std::string, std::string> originals_;
};

void set_size(const std::string& who, std::map<std::string, int64_t>& sizes, const std::string& index, int64_t size,
              const std::string& place) {
  const auto [found, is_new] = sizes.emplace(index, size);
  JOINSUM_USER_CHECK(found->second == size, who, ": an index has two extents: index=", index, ", extents=[",
                     found->second, ", ", size, "], at=", place);
}

void collect_bound(const ExpressionPtr& expression, std::vector<std::string>& bound) {
  if (expression->kind == Expression::Kind::kAggregate) {
    bound.insert(bound.end(), expression->indices.begin(), expression->indices.end());
  }
  for (const ExpressionPtr& child : expression->children) collect_bound(child, bound);
}

void check_tensor(const std::string& name, const InputTensor& tensor) {
  for (const int64_t extent : tensor.shape) {
    JOINSUM_USER_CHECK(extent >= 0, "sparse program: negative extent: tensor=", name, ", shape=", tensor.shape);
  }
  double elements = 1;
  for (const int64_t extent : tensor.shape) elements *= static_cast<double>(extent);
  JOINSUM_USER_CHECK(tensor.nnz >= 0 && tensor.nnz <= elements,
                     "sparse program: more entries than elements, or less than none: tensor=", name,
                     ", nnz=", tensor.nnz, ", shape=", tensor.shape);
  const auto rank = static_cast<int64_t>(tensor.shape.size());
  for (const Degree& degree : tensor.degrees) {
    for (const auto* axes : {&degree.axes, &degree.given}) {
      for (const int64_t axis : *axes) {
        JOINSUM_USER_CHECK(axis >= 0 && axis < rank, "sparse program: a degree's axis is out of range: tensor=", name,
                           ", axis=", axis, ", rank=", rank);
      }
    }
    JOINSUM_USER_CHECK(degree.count >= 0, "sparse program: negative degree: tensor=", name, ", degree=", degree.count);
  }
}

DType dtype_of(const std::map<std::string, InputTensor>& tensors) {
  for (const auto& [name, tensor] : tensors) {
    if (tensor.entries != nullptr) return tensor.entries->dtype();
  }
  return DType::kFloat64;
}

}  // namespace

int64_t IndexSpace::id_of(const std::string& name) const {
  const auto found = std::ranges::find(names, name);
  JOINSUM_USER_CHECK(found != names.end(), "sparse program: unknown index: index=", name, ", indices=", names);
  return found - names.begin();
}

namespace {

/// Adds an index of the same extent.
void add_like(IndexSpace& space, int64_t index, std::string name) {
  while (std::ranges::find(space.names, name) != space.names.end()) name += "#";
  space.names.push_back(std::move(name));
  space.sizes.push_back(space.sizes[index]);
  space.originals.push_back(space.originals[index]);
}

}  // namespace

int64_t IndexSpace::path_of(int64_t index, int64_t path) {
  const auto [found, is_new] = paths.emplace(std::pair(index, path), count());
  if (!is_new) return found->second;
  add_like(*this, index, concatenate(names[index], "#", path));
  roots.push_back(roots[index]);
  return count() - 1;
}

int64_t IndexSpace::copy_of(int64_t index, int64_t copy) {
  const auto [found, is_new] = paths.emplace(std::pair(index, -copy), count());
  if (!is_new) return found->second;
  roots.push_back(count());
  add_like(*this, index, names[index] + std::string(copy, '\''));
  return count() - 1;
}

Distinct with_distinct_indices(const ExpressionPtr& expression, const std::vector<std::string>& reserved) {
  std::vector<std::string> taken = free_indices(expression);
  taken.insert(taken.end(), reserved.begin(), reserved.end());
  Renaming renaming(taken);
  ExpressionPtr distinct = renaming.apply(expression, {});
  auto originals = std::move(renaming).originals();
  for (const std::string& index : taken) originals[index] = index;
  return {std::move(distinct), std::move(originals)};
}

IndexSpace space_of(const std::string& who, const Distinct& distinct, const std::vector<std::string>& output,
                    const Readable& readable, const std::map<std::string, int64_t>& index_sizes, DType dtype) {
  JOINSUM_USER_CHECK(depth_of(distinct.expression) <= kDeepestExpression, who,
                     ": the expression is too deep: most levels=", kDeepestExpression);
  std::map<std::string, int64_t> sizes;
  for (const ExpressionPtr& input : inputs_of(distinct.expression)) {
    const auto found = readable.find(input->tensor);
    JOINSUM_USER_CHECK(found != readable.end(), who,
                       ": unknown tensor, or a query that is not earlier: tensor=", input->tensor);
    const Dims& shape = found->second.shape;
    JOINSUM_USER_CHECK(shape.size() == input->indices.size(), who, ": number of indices: tensor=", input->tensor,
                       ", indices=", input->indices, ", rank=", shape.size());
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      set_size(who, sizes, input->indices[axis], shape[axis], text_of(input));
    }
  }
  std::vector<std::string> all = free_indices(distinct.expression);
  collect_bound(distinct.expression, all);
  for (const std::string& index : output) {
    if (std::ranges::find(all, index) == all.end()) all.push_back(index);
  }
  IndexSpace space{.dtype = dtype};
  for (const std::string& index : all) {
    const std::string& original = distinct.originals.contains(index) ? distinct.originals.at(index) : index;
    if (const auto found = index_sizes.find(original); found != index_sizes.end()) {
      set_size(who, sizes, index, found->second, "index_sizes");
    }
    const auto found = sizes.find(index);
    JOINSUM_USER_CHECK(found != sizes.end(), who,
                       ": the extent of an index that no tensor has is missing in index_sizes: index=", original);
    space.names.push_back(index);
    space.sizes.push_back(found->second);
    space.originals.push_back(original);
    space.roots.push_back(space.count() - 1);
  }
  return space;
}

double fill_of(const ExpressionPtr& expression, const Readable& readable, const IndexSpace& space) {
  switch (expression->kind) {
    case Expression::Kind::kLiteral:
      return expression->value;
    case Expression::Kind::kInput:
      return readable.at(expression->tensor).fill;
    case Expression::Kind::kAggregate: {
      double range = 1;
      for (const std::string& index : expression->indices) {
        range *= static_cast<double>(space.sizes[space.id_of(index)]);
      }
      return tensor::fill_of_aggregate(space.dtype, expression->op, fill_of(expression->child(), readable, space),
                                       range);
    }
    case Expression::Kind::kMap:
      break;
  }
  std::vector<double> children;
  for (const ExpressionPtr& child : expression->children) children.push_back(fill_of(child, readable, space));
  return tensor::fill_of_map(space.dtype, expression->op, children);
}

Program::Program(std::map<std::string, int64_t> index_sizes, std::map<std::string, InputTensor> tensors,
                 std::vector<Query> queries, std::optional<DType> dtype)
    : index_sizes_(std::move(index_sizes)), tensors_(std::move(tensors)), dtype_(dtype.value_or(dtype_of(tensors_))) {
  for (const auto& [index, size] : index_sizes_) {
    JOINSUM_USER_CHECK(size >= 0, "sparse program: negative extent: index=", index, ", extent=", size);
  }
  for (const auto& [name, tensor] : tensors_) {
    check_tensor(name, tensor);
    results_[name] = {tensor.shape, tensor.fill};
  }
  JOINSUM_USER_CHECK(!queries.empty(), "sparse program: no query");
  for (Query& query : queries) add(std::move(query));
}

void Program::add(Query query) {
  const std::string who = "sparse program: query " + query.name;
  JOINSUM_USER_CHECK(!query.name.empty(), "sparse program: a query without a name");
  JOINSUM_USER_CHECK(!results_.contains(query.name), "sparse program: the name is taken: query=", query.name);
  const std::set<std::string> distinct_output(query.output.begin(), query.output.end());
  JOINSUM_USER_CHECK(distinct_output.size() == query.output.size(), who,
                     ": output names an index twice: output=", query.output);
  for (const std::string& index : free_indices(query.expression)) {
    JOINSUM_USER_CHECK(distinct_output.contains(index), who,
                       ": an index is neither aggregated nor in the output: index=", index);
  }
  std::vector<std::string> bound;
  collect_bound(query.expression, bound);
  for (const std::string& index : query.output) {
    JOINSUM_USER_CHECK(has_free_index(query.expression, index) || std::ranges::find(bound, index) == bound.end(), who,
                       ": an index of the output is aggregated: index=", index);
  }
  const Distinct distinct = with_distinct_indices(query.expression, query.output);
  IndexSpace space = space_of(who, distinct, query.output, results_, index_sizes_, dtype_);
  Result result;
  for (const std::string& index : query.output) result.shape.push_back(space.sizes[space.id_of(index)]);
  result.fill = fill_of(distinct.expression, results_, space);
  results_[query.name] = std::move(result);
  queries_.push_back({std::move(query.name), distinct.expression, std::move(query.output)});
  spaces_.push_back(std::move(space));
}

bool Program::all_finite() const {
  return std::ranges::all_of(tensors_, [](const auto& each) {
    return each.second.entries == nullptr || tensor::all_finite(each.second.entries);
  });
}

const Program::Result& Program::result(const std::string& name) const {
  const auto found = results_.find(name);
  JOINSUM_USER_CHECK(found != results_.end(), "sparse program: unknown tensor or query: name=", name);
  return found->second;
}

}  // namespace joinsum::sparse::program
