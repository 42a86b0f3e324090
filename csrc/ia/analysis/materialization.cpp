#include "ia/analysis/materialization.h"

#include <algorithm>

#include "kernels/call/first_results.h"
#include "kernels/table/table.h"

namespace joinsum::ia::analysis {
namespace {

using kernels::table::Form;
using kernels::table::Kernel;
using kernels::table::Row;
using kernels::table::Subscripts;

bool distinct(const std::string& letters) {
  return std::unordered_set<char>(letters.begin(), letters.end()).size() == letters.size();
}

/// Whether a labelled kernel reduces letters, and takes no diagonals.
bool reduces(const Kernel& kernel) {
  const Row& row = kernels::table::row_of(kernel);
  if (row.form != Form::kLabelled || row.user || row.reduction.empty()) return false;
  const Subscripts labels = row.labels(kernel);
  std::string all;
  for (const std::string& letters : labels.operands) all += letters;
  return std::all_of(labels.operands.begin(), labels.operands.end(), distinct) &&
         std::any_of(all.begin(), all.end(), [&](char c) { return labels.result.find(c) == std::string::npos; });
}

/// Whether each element of a kernel's result comes of one element of each operand, at a place that does not depend on
/// how far axes run.
bool elementwise(const Kernel& kernel) {
  const Row& row = kernels::table::row_of(kernel);
  if (row.user) return false;
  if (row.form == Form::kElementwise) return true;
  if (row.form == Form::kInsertAxis) return kernel.name == "insert_dim";
  if (row.form != Form::kLabelled || reduces(kernel)) return false;
  const Subscripts labels = row.labels(kernel);
  return std::all_of(labels.operands.begin(), labels.operands.end(), distinct);
}

/// The kernel of a join, or of a map that leaves keys as they are.
const Kernel* kernel_of(const Node& node) {
  if (const auto* join = node.as<LocalJoin>()) return &join->kernel;
  const auto* map = node.as<LocalMap>();
  if (map == nullptr || map->outputs != 1) return nullptr;
  return map->key_map.is_identity(node.input(0)->type().relation.arity()) ? &map->array_map : nullptr;
}

bool sparse(const Node& node) {
  return node.type().relation.sparse() ||
         std::any_of(node.inputs().begin(), node.inputs().end(),
                     [](const NodePtr& input) { return input->type().relation.sparse(); });
}

bool computes_elements(const Node& node) {
  const Kernel* kernel = kernel_of(node);
  if (kernel == nullptr || sparse(node) || !node.type().holding.regular()) return false;
  return elementwise(kernel->first()) && std::all_of(kernel->epilogue.begin(), kernel->epilogue.end(), elementwise);
}

bool reduces_elements(const Node& node) {
  const Kernel* kernel = kernel_of(node);
  return kernel != nullptr && !sparse(node) && node.type().holding.regular() && reduces(kernel->first());
}

/// Whether a local aggregate reduces, by the kernel of the map that it reads, the keys of axes that this reduces.
bool reduces_keys_of_its_map(const LocalAggregate& op, const Node& map) {
  const auto* mapped = map.as<LocalMap>();
  if (mapped == nullptr || !mapped->array_map.epilogue.empty() || !reduces_elements(map)) return false;
  const Row& row = kernels::table::row_of(mapped->array_map);
  if (op.kernel.first() != Kernel{row.reduction, {}} || !std::is_sorted(op.group_by.begin(), op.group_by.end())) {
    return false;
  }
  const Subscripts labels = row.labels(mapped->array_map);
  const relation::RelationType& input = map.input(0)->type().relation;
  const Dims reduced = complement(op.group_by, input.arity());
  return std::all_of(reduced.begin(), reduced.end(), [&](int64_t dim) {
    const Dims axes = input.axes_of(dim);
    return axes.size() == 1 && labels.result.find(labels.operands[0][axes[0]]) == std::string::npos;
  });
}

/// Whether `node` is `addcmul(x, y, number)` of operands of its own type.
bool adds_a_multiple(const Node& node) {
  const auto* op = node.as<LocalCall>();
  if (op == nullptr || op->call.function != "aten::addcmul" || op->call.arguments.size() != 3) return false;
  for (int64_t i = 0; i < 3; ++i) {
    const kernels::call::CallArgument& argument = op->call.arguments[i];
    if (argument.kind != kernels::call::CallArgument::Kind::kOperand || argument.integer != i) return false;
  }
  return op->call.operands[0] == op->call.operands[1] && op->call.operands[2].empty() &&
         op->call.arguments[0].groups == op->call.arguments[1].groups && node.input(0)->type() == node.type() &&
         node.input(1)->type() == node.type() && !node.type().placement.pending();
}

}  // namespace

std::unordered_set<const Node*> fused_joins(const Plan& plan) {
  const auto counts = use_counts(plan);
  std::unordered_set<const Node*> fused;
  for (const NodePtr& node : plan.order()) {
    const auto* aggregate = node->as<LocalAggregate>();
    if (aggregate == nullptr) continue;
    const Node* join = node->input(0).get();
    const auto* op = join->as<LocalJoin>();
    // Sparse results are added tuple by tuple.
    if (op == nullptr || counts.at(join) > 1 || join->type().relation.sparse()) continue;
    const Row& row = kernels::table::row_of(op->kernel);
    const bool contraction = row.form == Form::kLabelled && !row.user && op->kernel.epilogue.empty();
    const bool alike = contraction && !row.reduction.empty() && aggregate->kernel.first() == Kernel{row.reduction, {}};
    if (alike) fused.insert(join);
  }
  return fused;
}

std::unordered_map<const Node*, const Node*> further_results(const Plan& plan) {
  kernels::call::FirstResults<std::vector<NodePtr>, const Node*> results;
  std::unordered_map<const Node*, const Node*> further;
  for (const NodePtr& node : plan.order()) {
    const auto* op = node->as<LocalCall>();
    if (op == nullptr || op->call.results.size() == 1) continue;
    const Node* first = results.first(node->inputs(), op->call, node.get());
    if (first != node.get()) further.emplace(node.get(), first);
  }
  return further;
}

Materialization::Materialization(const Plan& plan, int64_t most_bytes)
    : plan_(plan), fused_(fused_joins(plan)), further_(further_results(plan)) {
  for (const NodePtr& node : plan.order()) {
    const auto found = further_.find(node.get());
    if (found != further_.end()) beside_[found->second].push_back(node.get());
  }
  find_recomputed(most_bytes);
  const auto counts = use_counts(plan);
  find_fused_maps(counts);
  find_added(counts);
}

void Materialization::find_recomputed(int64_t most_bytes) {
  std::unordered_set<const Node*> outputs;
  for (const auto& output : plan_.outputs()) outputs.insert(output.node.get());
  std::unordered_map<const Node*, std::vector<const Node*>> users;
  for (const NodePtr& node : plan_.order()) {
    for (const NodePtr& input : node->inputs()) users[input.get()].push_back(node.get());
    const bool large = computes_elements(*node) && node->type().most_bytes() > most_bytes;
    if (large && !outputs.contains(node.get()) && !fused_.contains(node.get())) recomputed_.insert(node.get());
  }
  const auto grows = [&](const Node& node) {
    return std::any_of(node.inputs().begin(), node.inputs().end(),
                       [&](const NodePtr& input) { return recomputed_.contains(input.get()); }) ||
           std::all_of(node.inputs().begin(), node.inputs().end(),
                       [&](const NodePtr& input) { return input->type().most_bytes() < node.type().most_bytes(); });
  };
  const auto is_reduced = [&](const Node& node) {
    const auto& all = users[&node];
    return std::all_of(all.begin(), all.end(),
                       [&](const Node* user) { return recomputed_.contains(user) || reduces_elements(*user); });
  };
  // A value that must be materialized may require the same of others, until nothing changes.
  const auto stays = [&](const Node* node) { return grows(*node) && is_reduced(*node); };
  while (std::erase_if(recomputed_, [&](const Node* node) { return !stays(node); }) > 0) continue;
}

void Materialization::find_fused_maps(const Counts& uses) {
  for (const NodePtr& node : plan_.order()) {
    const auto* op = node->as<LocalAggregate>();
    if (op == nullptr) continue;
    const Node& map = *node->input(0);
    const bool alone = uses.at(&map) == 1 && node->type().holding.regular() && !reduces_recomputed(map);
    if (alone && reduces_keys_of_its_map(*op, map)) fused_.insert(&map);
  }
}

void Materialization::find_added(const Counts& uses) {
  for (const NodePtr& node : plan_.order()) {
    if (!adds_a_multiple(*node)) continue;
    const Node& sum = *node->input(1);
    if (sum.as<LocalAggregate>() == nullptr || uses.at(&sum) > 1 || !fused_.contains(sum.input(0).get())) continue;
    const Node& join = *sum.input(0);
    const auto* op = join.as<LocalJoin>();
    const bool products = op != nullptr && kernels::table::row_of(op->kernel).facts.linear;
    const bool reads_others = std::all_of(join.inputs().begin(), join.inputs().end(), [&](const NodePtr& operand) {
      return !recomputed_.contains(operand.get()) && operand != node->input(0);
    });
    if (products && reads_others && sum.as<LocalAggregate>()->kernel.epilogue.empty()) added_.insert(&sum);
  }
}

const Node* Materialization::added_by(const Node& node) const {
  if (node.as<LocalCall>() == nullptr || node.inputs().size() != 3) return nullptr;
  const Node* second = node.input(1).get();
  return added_.contains(second) ? second : nullptr;
}

bool Materialization::reduces_recomputed(const Node& node) const {
  if (!materialized(node)) return false;
  return std::any_of(node.inputs().begin(), node.inputs().end(), [&](const NodePtr& input) {
    return recomputed(*input) ||
           (fused(*input) && std::any_of(input->inputs().begin(), input->inputs().end(),
                                         [&](const NodePtr& inner) { return recomputed(*inner); }));
  });
}

std::vector<const Node*> Materialization::operands(const Node& node) const {
  if (further_result(node)) return {};
  const bool once = reduces_recomputed(node);
  std::vector<const Node*> out;
  std::vector<const Node*> open{&node};
  std::unordered_set<const Node*> met;
  while (!open.empty()) {
    const Node* now = open.back();
    open.pop_back();
    for (const NodePtr& input : now->inputs()) {
      if (once && !met.insert(input.get()).second) continue;
      if (materialized(*input)) {
        out.push_back(input.get());
      } else {
        open.push_back(input.get());
      }
    }
  }
  return out;
}

const std::vector<const Node*>& Materialization::results_beside(const Node& node) const {
  static const std::vector<const Node*> none;
  const auto found = beside_.find(&node);
  return found == beside_.end() ? none : found->second;
}

std::unordered_map<const Node*, int64_t> Materialization::uses() const {
  std::unordered_map<const Node*, int64_t> counts;
  for (const NodePtr& node : plan_.order()) {
    if (!materialized(*node)) continue;
    for (const Node* operand : operands(*node)) ++counts[operand];
  }
  for (const auto& output : plan_.outputs()) ++counts[output.node.get()];
  return counts;
}

std::unordered_set<const Node*> Materialization::not_materialized() const {
  std::unordered_set<const Node*> out = fused_;
  out.insert(recomputed_.begin(), recomputed_.end());
  out.insert(added_.begin(), added_.end());
  return out;
}

}  // namespace joinsum::ia::analysis
