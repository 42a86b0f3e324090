#include <algorithm>
#include <map>
#include <set>

#include "relation/kernel_axes.h"
#include "relation/typing.h"

namespace joinsum::relation {
namespace {

/// Groups of an irregular relation, whose members are all there; none of a regular one.
std::set<Key> concatenated_groups(const std::string& who, const RelationType& input, const Dims& group_by,
                                  int64_t dim) {
  std::set<Key> groups;
  if (input.regular()) return groups;
  const std::set<Key> present(input.keys->begin(), input.keys->end());
  for (const Key& key : *input.keys) {
    groups.insert(project(key, group_by));
    Key other = key;
    for (other[dim] = 0; other[dim] < input.frontier[dim]; ++other[dim]) {
      JOINSUM_USER_CHECK(present.contains(other), who, ": concat over a hole: missing key=", key_text(other));
    }
  }
  return groups;
}

RelationType concat_type(const std::string& who, const RelationType& input, const Dims& group_by,
                         const kernels::table::Kernel& kernel) {
  const Dims dropped = complement(group_by, input.arity());
  JOINSUM_USER_CHECK(dropped.size() == 1 && std::is_sorted(group_by.begin(), group_by.end()), who,
                     ": concat keeps all key dimensions but one, in order: keep=", group_by,
                     ", key arity=", input.arity());
  const int64_t dim = dropped[0];
  const int64_t at = kernel.integer(0);
  JOINSUM_USER_CHECK(at >= 0 && at < input.rank(), who, ": axis out of range: axis=", at, ", rank=", input.rank());
  const auto duplicate = input.first_duplicate();
  JOINSUM_USER_CHECK(!duplicate, who,
                     ": concat over a key that occurs twice: key=", key_text(duplicate.value_or(Key{})));
  const std::set<Key> groups = concatenated_groups(who, input, group_by, dim);
  std::vector<Axis> axes = input.axes;
  for (size_t a = 0; a < axes.size(); ++a) {
    Axis& axis = axes[a];
    const bool grown = static_cast<int64_t>(a) == at;
    if (axis.key_dim == dim) {
      const auto uniform = uniform_extent(axis);
      JOINSUM_USER_CHECK(grown || uniform || input.frontier[dim] <= 1, who,
                         ": arrays to concatenate differ in another axis: axis=", a, ", cuts=", axis.cuts);
      axis = Axis::whole(grown ? axis.extent : uniform.value_or(axis.extent));
    } else {
      if (grown) {
        axis.extent *= input.frontier[dim];
        for (int64_t& cut : axis.cuts) cut *= input.frontier[dim];
      }
      if (axis.linked() && axis.key_dim > dim) --axis.key_dim;
    }
  }
  Dims frontier = project(input.frontier, group_by);
  std::shared_ptr<const std::vector<Key>> keys;
  if (!input.regular() || input.frontier[dim] == 0)
    keys = std::make_shared<const std::vector<Key>>(groups.begin(), groups.end());
  return RelationType::make(who, input.dtype, std::move(frontier), std::move(axes), std::move(keys));
}

void check_aggregation(const std::string& who, const RelationType& input, const kernels::table::Kernel& kernel) {
  check_operands(who, kernel, 2);
  const DType dtype = kernels::table::result_dtype(kernel, {input.dtype, input.dtype});
  JOINSUM_USER_CHECK(dtype == input.dtype, who, ": an aggregation keeps the dtype: kernel=", kernel.text(),
                     ", dtype=", name_of(input.dtype), ", result=", name_of(dtype));
  if (const auto shape = input.uniform_shape()) {
    const Dims aggregated = kernels::table::result_shape(kernel, {*shape, *shape});
    JOINSUM_USER_CHECK(aggregated == *shape, who, ": an aggregation keeps the shape: kernel=", kernel.text(),
                       ", shape=", *shape, ", result=", aggregated);
  } else {
    JOINSUM_USER_CHECK(
        kernels::table::row_of(kernel).form == kernels::table::Form::kElementwise, who,
        ": arrays of different shapes are aggregated by elementwise kernels only: kernel=", kernel.text());
  }
  if (kernels::table::reduces_in_any_order(kernel)) return;
  const auto duplicate = input.first_duplicate();
  JOINSUM_USER_CHECK(!duplicate, who,
                     ": the result depends on the order of equal keys, and the kernel is not associative and ",
                     "commutative: kernel=", kernel.text(), ", key=", key_text(duplicate.value_or(Key{})));
}

/// Groups of an irregular relation, or of one whose parts differ along a dropped dimension.
RelationType enumerated_aggregate(const std::string& who, const RelationType& input, const Dims& group_by) {
  std::map<Key, std::pair<Key, Dims>> groups;
  for (const Key& key : input.all_keys()) {
    const Dims shape = input.array_shape(key);
    const auto [at, fresh] = groups.try_emplace(project(key, group_by), key, shape);
    JOINSUM_USER_CHECK(at->second.second == shape, who,
                       ": arrays of one group differ in shape: keys=", key_text(at->second.first), " and ",
                       key_text(key), ", shapes=", at->second.second, " and ", shape);
  }
  auto keys = std::make_shared<std::vector<Key>>();
  std::vector<Dims> shapes;
  for (const auto& [key, first] : groups) {
    keys->push_back(key);
    shapes.push_back(first.second);
  }
  Dims preferred;
  for (const Axis& axis : input.axes) {
    preferred.push_back(axis.linked() ? position_of(group_by, axis.key_dim).value_or(Axis::kUnlinked)
                                      : Axis::kUnlinked);
  }
  const Dims frontier = project(input.frontier, group_by);
  auto axes = fit_axes(who, frontier, *keys, shapes, preferred);
  return RelationType::make(who, input.dtype, frontier, std::move(axes), std::move(keys));
}

RelationType dense_aggregate_type(const std::string& who, const RelationType& input, const Dims& group_by,
                                  const kernels::table::Kernel& kernel) {
  check_dims(who, "keep", group_by, input.arity());
  if (kernels::table::row_of(kernel).form == kernels::table::Form::kConcat)
    return concat_type(who, input, group_by, kernel);
  check_aggregation(who, input, kernel);
  bool enumerate = !input.regular() || input.tuples() == 0;
  std::vector<Axis> axes = input.axes;
  for (Axis& axis : axes) {
    if (!axis.linked()) continue;
    const auto position = position_of(group_by, axis.key_dim);
    const auto uniform = uniform_extent(axis);
    if (position) {
      axis.key_dim = *position;
    } else if (uniform) {
      axis = Axis::whole(*uniform);
    } else {
      enumerate = true;
    }
  }
  if (enumerate) return enumerated_aggregate(who, input, group_by);
  return RelationType::make(who, input.dtype, project(input.frontier, group_by), std::move(axes));
}

}  // namespace

RelationType aggregate_type(const std::string& who, const RelationType& input, const Dims& group_by,
                            const kernels::table::Kernel& kernel) {
  if (!kernel.epilogue.empty()) return epilogue_type(who, aggregate_type(who, input, group_by, kernel.first()), kernel);
  if (!input.sparse()) return dense_aggregate_type(who, input, group_by, kernel);
  JOINSUM_USER_CHECK(kernel.name == "add", who,
                     ": arrays of a sparse relation are added; give a dense tensor for other aggregations: kernel=",
                     kernel.text(), ", type=", input.text());
  RelationType type = dense_aggregate_type(who, input, group_by, kernel);
  type.entries = std::min(*input.entries, type.elements());
  return type;
}

}  // namespace joinsum::relation
