#include "tra/interpret.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "kernels/reference/reference.h"
#include "relation/typing.h"

namespace joinsum::tra {
namespace {

using kernels::reference::Array;
using kernels::table::Scalars;

void sort_by_key(Relation& relation) {
  std::stable_sort(relation.begin(), relation.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
}

/// The tuples of each group, ascending by key.
std::map<Key, Relation> groups_of(Relation relation, const Dims& group_by) {
  sort_by_key(relation);
  std::map<Key, Relation> groups;
  for (auto& [key, array] : relation) groups[project(key, group_by)].emplace_back(key, std::move(array));
  return groups;
}

Relation aggregate_groups(const Relation& input, const Dims& group_by, const Kernel& kernel, const Scalars& scalars) {
  Relation out;
  for (auto& [group, members] : groups_of(input, group_by)) {
    Array result = members[0].second;
    for (size_t i = 1; i < members.size(); ++i)
      result = kernels::reference::run(kernel.first(), {result, members[i].second}, scalars);
    for (const Kernel& next : kernel.epilogue) result = kernels::reference::run(next, {result}, scalars);
    out.emplace_back(group, std::move(result));
  }
  return out;
}

struct Interpret {
  const std::vector<const Relation*>& inputs;
  const Scalars& scalars;

  const Relation& input() const { return *inputs[0]; }

  Relation operator()(const Input&) const { return input(); }

  Relation operator()(const Aggregate& op) const { return aggregate_groups(input(), op.group_by, op.kernel, scalars); }

  Relation operator()(const Join& op) const {
    const relation::JoinKeys on{op.left_keys, op.right_keys};
    Relation out;
    for (const auto& [left_key, left] : *inputs[0]) {
      for (const auto& [right_key, right] : *inputs[1]) {
        if (project(left_key, op.left_keys) != project(right_key, op.right_keys)) continue;
        out.emplace_back(on.joined(left_key, right_key), kernels::reference::run(op.kernel, {left, right}, scalars));
      }
    }
    return out;
  }

  Relation operator()(const Rekey& op) const {
    Relation out;
    for (const auto& [key, array] : input()) out.emplace_back(op.key_map.evaluate(key), array);
    return out;
  }

  Relation operator()(const Filter& op) const {
    Relation out;
    for (const auto& tuple : input()) {
      if (op.predicate.evaluate(tuple.first) != 0) out.push_back(tuple);
    }
    return out;
  }

  Relation operator()(const Transform& op) const {
    Relation out;
    for (const auto& [key, array] : input())
      out.emplace_back(key, kernels::reference::run(op.kernel, {array}, scalars));
    return out;
  }

  Relation operator()(const Tile& op) const {
    Relation out;
    for (const auto& [key, array] : input()) {
      const int64_t pieces = std::max<int64_t>(1, ceil_div(array.shape[op.axis], op.size));
      for (int64_t piece = 0; piece < pieces; ++piece) {
        Key longer = key;
        longer.push_back(piece);
        out.emplace_back(std::move(longer),
                         kernels::reference::run({"tile", {op.axis, op.size}}, {array}, scalars, piece));
      }
    }
    return out;
  }

  Relation operator()(const Concat& op) const {
    const auto arity = input().empty() ? int64_t{0} : static_cast<int64_t>(input()[0].first.size());
    return aggregate_groups(input(), complement({op.key_dim}, arity), {"concat", {op.axis}}, scalars);
  }

  Relation operator()(const Upsert&) const {
    std::set<Key> written;
    Relation out = *inputs[1];
    for (const auto& [key, array] : out) written.insert(key);
    std::copy_if(inputs[0]->begin(), inputs[0]->end(), std::back_inserter(out),
                 [&](const auto& tuple) { return !written.contains(tuple.first); });
    return out;
  }

  Relation operator()(const Call& call) const { kernels::call::fail_to_interpret(call); }
};

}  // namespace

std::map<std::string, Relation> interpret(const Plan& plan, const std::map<std::string, Relation>& inputs,
                                          const Scalars& scalars) {
  const auto compute = [&](const Node& node, const std::vector<const Relation*>& operands) {
    if (const auto* input = node.as<Input>()) return relation::interpreted_input(input->name, inputs, node.type());
    Relation result = std::visit(Interpret{operands, scalars}, node.operation());
    sort_by_key(result);
    const std::string wrong = relation::misfit(result, node.type());
    JOINSUM_CHECK(wrong.empty(), "operator=", operator_name(node.operation()), ", ", wrong);
    return result;
  };
  auto outputs = evaluated<Relation>(plan, compute);
  for (auto& [name, result] : outputs) relation::sort_bag(result);
  return outputs;
}

}  // namespace joinsum::tra
