#include "runtime/execution/executable.h"

#include <algorithm>
#include <set>
#include <sstream>

#include "ia/text.h"
#include "runtime/execution/local/tiled_recomputation.h"

namespace joinsum::runtime::execution {

using ia::Node;
using ia::NodePtr;

Executable::Executable(const ia::Plan& plan, const std::vector<int64_t>& local_sites, int64_t most_joined_bytes,
                       const ia::analysis::SecondsOf& seconds_of)
    : plan_(plan), plan_text_(plan.text()), materialization_(plan, most_joined_bytes) {
  add_values(local_sites);
  add_steps(local_sites);
  add_tasks(seconds_of);
  add_liveness();
  add_results();
  hash_ = hash_text(common_text());
}

bool Executable::is_of(const ia::Plan& other) const {
  return std::equal(plan_.outputs().begin(), plan_.outputs().end(), other.outputs().begin(), other.outputs().end(),
                    [](const auto& a, const auto& b) {
                      return a.node == b.node && a.name == b.name && a.tied_input == b.tied_input;
                    });
}

void Executable::add_values(const std::vector<int64_t>& local_sites) {
  const auto names = ia::node_names(plan_);
  for (const NodePtr& node : plan_.order()) {
    if (!materialization_.materialized(*node)) continue;
    Value value{node.get(), ia::shared(node->type()), names.at(node.get()), {}};
    if (const auto* input = node->as<ia::Input>()) value.input = input->name;
    for (const int64_t site : local_sites) value.boxes.emplace(site, node->type().stored(site));
    position_.emplace(node.get(), values_.size());
    values_.push_back(std::move(value));
  }
}

void Executable::add_steps(const std::vector<int64_t>& local_sites) {
  std::set<std::string> scalars;
  for (const NodePtr& node : plan_.order()) {
    for (const std::string& name : ia::scalars_of(node->operation())) {
      if (scalars.insert(name).second) scalars_.emplace_back(name, ia::operation_text(node->operation(), node->type()));
    }
    if (!materialization_.materialized(*node)) continue;
    const size_t own = position_.at(node.get());
    Step step{ia::operation_text(node->operation(), node->type()),
              ia::operator_name(node->operation()) + " " + values_[own].name,
              {},
              {},
              {own},
              ReadInput{}};
    for (const Node* operand : materialization_.operands(*node)) step.operands.push_back(position_.at(operand));
    step.action = action_of(*node, step.label, local_sites);
    steps_.push_back(std::move(step));
  }
  leave_winners();
  for (Step& step : steps_) add_parts(step);
  // Steps are the values' own, in their order.
  for (Step& step : steps_) {
    for (const Node* further : materialization_.results_beside(*values_[step.results.front()].node)) {
      step.results.push_back(position_.at(further));
    }
  }
}

void Executable::add_parts(Step& step) const {
  auto* compute = std::get_if<ComputeLocally>(&step.action);
  if (compute == nullptr || compute->operation == nullptr || !compute->boxes.empty()) return;
  const Value& result = values_[step.results.front()];
  for (const auto& [site, boxes] : result.boxes) {
    std::vector<Box> operands;
    for (const size_t operand : step.operands) {
      const std::vector<Box>& stored = values_[operand].boxes.at(site);
      if (stored.size() == 1) operands.push_back(stored.front());
    }
    if (boxes.size() != 1 || operands.size() != step.operands.size()) continue;
    if (result.node->type().relation.elements_over(boxes.front()) == 0) continue;
    if (local::OnePart part = compute->operation->on(operands, boxes.front())) {
      compute->parts.emplace(site, std::move(part));
    }
  }
}

/// Contractions to an extreme that later steps compare with leave them what they would look for.
void Executable::leave_winners() {
  std::set<local::ExtremeName> names;
  for (const Step& step : steps_) {
    const auto* compute = std::get_if<ComputeLocally>(&step.action);
    if (compute == nullptr || compute->operation == nullptr) continue;
    for (auto& name : local::compared_extremes(*compute->operation)) names.insert(std::move(name));
  }
  for (const local::ExtremeName& name : names) {
    const Node& node = *std::get<0>(name.extreme);
    const auto found = position_.find(&node);
    auto* compute = found == position_.end() ? nullptr : std::get_if<ComputeLocally>(&steps_[found->second].action);
    if (compute == nullptr || compute->operation == nullptr) continue;
    compute->operation = local::with_winners(node, name, std::move(compute->operation));
  }
}

Action Executable::action_of(const Node& node, const std::string& label,
                             const std::vector<int64_t>& local_sites) const {
  if (const auto* input = node.as<ia::Input>()) return ReadInput{input->name};
  if (materialization_.further_result(node)) return ComputedBefore{};
  if (node.as<ia::Broadcast>() != nullptr || node.as<ia::Shuffle>() != nullptr) {
    return std::make_unique<const communication::moves::PreparedMove>(label, node.input(0)->type(), node.type(),
                                                                      local_sites);
  }
  ComputeLocally compute;
  const auto* op = node.as<ia::LocalCall>();
  if (op != nullptr && materialization_.added_by(node) == nullptr) {
    std::vector<const relation::RelationType*> types;
    for (const NodePtr& input : node.inputs()) types.push_back(&input->type().relation);
    std::map<int64_t, std::vector<Box>> boxes;
    for (const int64_t site : local_sites) {
      if (values_[position_.at(&node)].boxes.at(site).empty()) continue;
      for (const NodePtr& input : node.inputs()) {
        const std::vector<Box>& stored = values_[position_.at(input.get())].boxes.at(site);
        JOINSUM_CHECK(stored.size() == 1, label, " reads ", stored.size(), " boxes of one operand");
        boxes[site].push_back(stored.front());
      }
    }
    compute.call = std::make_unique<const local::CallOperator>(op->call, types, boxes);
    return compute;
  }
  if (materialization_.reduces_recomputed(node)) {
    const Node& reduced = node.as<ia::LocalAggregate>() != nullptr ? *node.input(0) : node;
    for (const int64_t site : local_sites) compute.boxes.emplace(site, reduced.type().stored(site));
    compute.operation = local::prepare_tiled_recomputation(materialization_, node, local_sites);
  } else {
    compute.operation = operator_of(node);
  }
  return compute;
}

local::LocalOperatorPtr Executable::operator_of(const Node& node) const {
  const relation::RelationType& first = node.input(0)->type().relation;
  if (const auto* op = node.as<ia::LocalJoin>()) return local::prepare_join(*op, first, node.input(1)->type().relation);
  if (const auto* op = node.as<ia::LocalFilter>()) return local::prepare_filter(*op, first);
  if (const auto* op = node.as<ia::LocalMap>()) return local::prepare_map(*op, first);
  if (node.as<ia::LocalUpsert>() != nullptr) {
    return local::prepare_upsert(first, node.input(1)->type().relation, node.type().relation);
  }
  const Node* added = materialization_.added_by(node);
  const Node& reduction = added != nullptr ? *added : node;
  const auto& op = *reduction.as<ia::LocalAggregate>();
  const Node& operand = *reduction.input(0);
  const relation::RelationType& reduced = operand.type().relation;
  if (!materialization_.fused(operand)) return local::prepare_aggregate(op, reduced);
  if (const auto* map = operand.as<ia::LocalMap>()) {
    return local::prepare_reduction(*map, op, operand.input(0)->type().relation, reduced);
  }
  const auto prepare = added != nullptr ? local::prepare_added_contraction : local::prepare_contraction;
  return prepare(*operand.as<ia::LocalJoin>(), op, operand.input(0)->type().relation, operand.input(1)->type().relation,
                 reduced);
}

void Executable::add_tasks(const ia::analysis::SecondsOf& seconds_of) {
  const ia::analysis::Schedule schedule(plan_, materialization_, seconds_of);
  for (const ia::analysis::MoveGroup& moves : schedule.groups()) {
    std::vector<size_t>& group = groups_.emplace_back();
    for (const Node* move : moves) group.push_back(position_.at(move));
  }
  for (const ia::analysis::Task& task : schedule.tasks()) {
    tasks_.push_back({task.kind, task.node != nullptr ? position_.at(task.node) : task.group, {}});
  }
}

std::string Executable::schedule_text() const {
  std::ostringstream out;
  for (const Task& task : tasks_) {
    if (task.kind != Task::Kind::kStart && task.kind != Task::Kind::kAdvance) continue;
    out << (task.kind == Task::Kind::kStart ? "start" : "advance");
    for (const size_t step : groups_[task.number]) out << " " << values_[steps_[step].results.front()].name;
    out << "\n";
  }
  return out.str();
}

std::vector<size_t> Executable::reads(const Task& task) const {
  if (task.kind == Task::Kind::kCompute) return steps_[task.number].operands;
  std::vector<size_t> read;
  if (task.kind == Task::Kind::kFinish) {
    for (const size_t step : groups_[task.number]) read.push_back(steps_[step].operands.front());
  }
  return read;
}

/// A value dies with the task that reads it last; results of the run never do. Of inputs only the tied ones may be
/// overwritten.
void Executable::add_liveness() {
  std::set<std::string> tied;
  for (const auto& output : plan_.outputs()) {
    if (output.tied_input) tied.insert(*output.tied_input);
  }
  std::vector<int64_t> left(values_.size(), 0);
  for (const Task& task : tasks_) {
    for (const size_t value : reads(task)) ++left[value];
  }
  for (const auto& output : plan_.outputs()) ++left[position_.at(output.node.get())];
  for (Task& task : tasks_) {
    const std::vector<size_t> read = reads(task);
    for (const size_t value : read) {
      if (--left[value] == 0) task.last_reads.push_back(value);
    }
    if (task.kind == Task::Kind::kStart) {
      for (const size_t step : groups_[task.number]) {
        const size_t moved = steps_[step].operands.front();
        steps_[step].overwritable = {left[moved] == 1 && !values_[moved].input};
      }
    }
    if (task.kind != Task::Kind::kCompute) continue;
    for (const size_t value : read) {
      const std::optional<std::string>& input = values_[value].input;
      steps_[task.number].overwritable.push_back(left[value] == 0 && (!input || tied.contains(*input)));
    }
  }
}

void Executable::share_type_of_input(Value& value, const std::string& input) const {
  for (const Value& other : values_) {
    if (other.input == input && *other.type == *value.type) value.type = other.type;
  }
}

void Executable::add_results() {
  std::set<size_t> returned;
  for (const auto& output : plan_.outputs()) {
    const size_t value = position_.at(output.node.get());
    const bool repeated = !returned.insert(value).second;
    if (output.tied_input) share_type_of_input(values_[value], *output.tied_input);
    results_.push_back({output.name, value, repeated || values_[value].input.has_value()});
  }
}

namespace {

struct ActionText {
  std::string operator()(const ReadInput&) const { return "input"; }
  std::string operator()(const ComputedBefore&) const { return "computed before"; }
  std::string operator()(const ComputeLocally& compute) const {
    return compute.call != nullptr ? "call" : compute.operation->text();
  }
  std::string operator()(const std::unique_ptr<const communication::moves::PreparedMove>& move) const {
    std::ostringstream out;
    const std::pair<const char*, const communication::moves::Stage*> stages[] = {
        {"reduce", &move->reduce}, {"gather", &move->gather}, {"copy", &move->copy}};
    for (const auto& [name, stage] : stages) {
      if (stage->messages.empty()) continue;
      int64_t bytes = 0;
      for (const communication::Message& message : stage->messages) bytes += message.bytes;
      out << (out.tellp() > 0 ? ", " : "") << name << ": " << stage->messages.size() << " messages, " << bytes << " B";
    }
    return out.tellp() > 0 ? out.str() : "no messages";
  }
};

std::string names_of(const std::vector<size_t>& values, const std::vector<Value>& all) {
  std::string text;
  for (const size_t value : values) text += (text.empty() ? "" : ", ") + all[value].name;
  return text;
}

}  // namespace

std::string Executable::text() const {
  std::ostringstream out;
  const auto write_step = [&](const Step& step) {
    out << names_of(step.results, values_) << " = " << step.operation;
    if (!step.operands.empty()) out << "(" << names_of(step.operands, values_) << ")";
    out << "; " << std::visit(ActionText{}, step.action);
  };
  for (size_t i = 0; i < tasks_.size(); ++i) {
    const Task& task = tasks_[i];
    if (task.kind == Task::Kind::kAdvance) continue;
    const auto steps = task.kind == Task::Kind::kCompute ? std::vector<size_t>{task.number} : groups_[task.number];
    for (const size_t step : steps) {
      if (task.kind == Task::Kind::kFinish) {
        out << names_of(steps_[step].results, values_) << " arrives";
      } else {
        write_step(steps_[step]);
      }
      if (step == steps.back() && !task.last_reads.empty()) out << "; frees " << names_of(task.last_reads, values_);
      out << "\n";
    }
  }
  return out.str();
}

}  // namespace joinsum::runtime::execution
