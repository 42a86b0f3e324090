#include "optimizer/rules/rewrite.h"

namespace joinsum::optimizer::rules {
namespace {

using ia::Node;
using ia::NodePtr;

uint64_t hash_of(const ia::Operation& operation, const std::vector<NodePtr>& inputs) {
  uint64_t hash = ia::operation_hash(operation);
  for (const NodePtr& input : inputs) hash = hash_mix(hash, reinterpret_cast<uintptr_t>(input.get()));
  return hash;
}

bool same_output(const ia::Plan::Output& before, const NodePtr& after) {
  return !after->type().placement.pending() && after->type().relation == before.node->type().relation;
}

}  // namespace

NodePtr Interner::find(uint64_t hash, const ia::Operation& operation, const std::vector<NodePtr>& inputs,
                       const ia::PhysicalType* input_type) const {
  const auto found = by_hash_.find(hash);
  if (found == by_hash_.end()) return nullptr;
  for (const NodePtr& node : found->second) {
    const bool same_type = input_type == nullptr || node->type() == *input_type;
    if (node->operation() == operation && node->inputs() == inputs && same_type) return node;
  }
  return nullptr;
}

void Interner::hold(uint64_t hash, const NodePtr& node) {
  by_hash_[hash].push_back(node);
  held_.insert(node.get());
}

NodePtr Interner::make(const ia::Operation& operation, const std::vector<NodePtr>& inputs) {
  const uint64_t hash = hash_of(operation, inputs);
  if (NodePtr node = find(hash, operation, inputs, nullptr)) return node;
  NodePtr node = ia::make(operation, inputs);
  hold(hash, node);
  return node;
}

NodePtr Interner::intern(const NodePtr& root) {
  Done done;
  return intern(root, done);
}

NodePtr Interner::intern(const NodePtr& root, Done& done) {
  std::vector<NodePtr> stack{root};
  while (!stack.empty()) {
    const NodePtr node = stack.back();
    if (done.contains(node.get())) {
      stack.pop_back();
      continue;
    }
    if (held_.contains(node.get())) {
      done.emplace(node.get(), node);
      stack.pop_back();
      continue;
    }
    std::vector<NodePtr> inputs;
    bool ready = true;
    for (const NodePtr& input : node->inputs()) {
      const auto at = done.find(input.get());
      if (at == done.end()) {
        stack.push_back(input);
        ready = false;
      } else {
        inputs.push_back(at->second);
      }
    }
    if (!ready) continue;
    stack.pop_back();
    const uint64_t hash = hash_of(node->operation(), inputs);
    const bool is_input = node->as<ia::Input>() != nullptr;
    NodePtr known = find(hash, node->operation(), inputs, is_input ? &node->type() : nullptr);
    if (known == nullptr) {
      known = inputs == node->inputs() ? node : ia::make(node->operation(), inputs);
      hold(hash, known);
    }
    done.emplace(node.get(), known);
  }
  return done.at(root.get());
}

ia::Plan Interner::intern(const ia::Plan& plan) {
  Done done;
  std::vector<ia::Plan::Output> outputs;
  for (const auto& output : plan.outputs())
    outputs.push_back({output.name, intern(output.node, done), output.tied_input});
  return ia::Plan::make(std::move(outputs));
}

std::optional<ia::Plan> replaced(const ia::Plan& plan, const NodePtr& node, const NodePtr& fresh, Interner& interner) {
  std::unordered_map<const Node*, NodePtr> rebuilt{{node.get(), interner.intern(fresh)}};
  const auto now = [&](const NodePtr& input) {
    const auto at = rebuilt.find(input.get());
    return at == rebuilt.end() ? input : at->second;
  };
  try {
    for (const NodePtr& user : plan.order()) {
      if (user == node) continue;
      std::vector<NodePtr> inputs;
      for (const NodePtr& input : user->inputs()) inputs.push_back(now(input));
      if (inputs != user->inputs()) rebuilt[user.get()] = interner.make(user->operation(), inputs);
    }
    std::vector<ia::Plan::Output> outputs;
    for (const auto& output : plan.outputs()) {
      NodePtr result = now(output.node);
      if (!same_output(output, result)) return std::nullopt;
      outputs.push_back({output.name, std::move(result), output.tied_input});
    }
    return ia::Plan::make(std::move(outputs));
  } catch (const PlanError&) {
  } catch (const KernelError&) {
  }
  return std::nullopt;
}

std::vector<Rewrite> rewrites_at(const ia::Plan& plan, const NodePtr& node, const std::vector<const Rule*>& rules,
                                 Interner& interner) {
  std::vector<Rewrite> out;
  for (const Rule* rule : rules) {
    for (const NodePtr& fresh : apply(*rule, node)) {
      const NodePtr interned = interner.intern(fresh);
      if (interned == node) continue;
      if (auto rewritten = replaced(plan, node, interned, interner)) out.push_back({rule, node, std::move(*rewritten)});
    }
  }
  return out;
}

std::vector<Rewrite> rewrites(const ia::Plan& plan, const std::vector<const Rule*>& rules, Interner& interner) {
  std::vector<Rewrite> out;
  for (const NodePtr& node : plan.order()) {
    for (Rewrite& rewrite : rewrites_at(plan, node, rules, interner)) out.push_back(std::move(rewrite));
  }
  return out;
}

}  // namespace joinsum::optimizer::rules
