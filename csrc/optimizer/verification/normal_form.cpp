#include "optimizer/verification/normal_form.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "optimizer/rules/families.h"
#include "tra/lower.h"

namespace joinsum::optimizer::verification {
namespace {

using ia::NodePtr;
using kernels::table::Kernel;

const Kernel kIdentity{"id", {}};

/// Rules of the table, each in the direction of the normal form. Their laws are tested; none undoes another.
std::vector<const rules::Rule*> directed_rules() {
  using rules::Normalization;
  std::vector<const rules::Rule*> out;
  for (const Normalization use : {Normalization::kSimplifies, Normalization::kDirects}) {
    for (const rules::Rule& rule : rules::all_rules()) {
      if (rule.normalization == use) out.push_back(&rule);
    }
  }
  return out;
}

// --- canonical operations ------------------------------------------------------------------------------------------

void collect_conjuncts(const relation::KeyExpression& predicate, std::map<std::string, relation::KeyExpression>& out) {
  if (predicate.op() == relation::KeyOperator::kAnd) {
    for (const relation::KeyExpression& operand : predicate.operands()) collect_conjuncts(operand, out);
  } else if (predicate.op() != relation::KeyOperator::kTrue) {
    out.emplace(predicate.text(), predicate);
  }
}

/// Conjuncts in the order of their texts, each once.
relation::KeyExpression sorted_conjuncts(const relation::KeyExpression& predicate) {
  std::map<std::string, relation::KeyExpression> conjuncts;
  collect_conjuncts(predicate, conjuncts);
  std::optional<relation::KeyExpression> out;
  for (const auto& [text, conjunct] : conjuncts) {
    out = out ? relation::KeyExpression::binary(relation::KeyOperator::kAnd, *out, conjunct) : conjunct;
  }
  return out.value_or(relation::KeyExpression::truth(true));
}

/// The first letters of the alphabet in the order in which `labels` use their own.
kernels::table::Subscripts renamed(kernels::table::Subscripts labels) {
  std::map<char, char> names;
  const auto rename = [&](std::string& letters) {
    for (char& letter : letters) {
      letter = names.emplace(letter, static_cast<char>('a' + names.size())).first->second;
    }
  };
  for (std::string& operand : labels.operands) rename(operand);
  rename(labels.result);
  return labels;
}

bool distinct(std::string letters) {
  std::sort(letters.begin(), letters.end());
  return std::adjacent_find(letters.begin(), letters.end()) == letters.end();
}

/// Letters of a built-in kernel that multiplies (two operands) or moves (one), and sums over letters that disappear.
std::optional<kernels::table::Subscripts> linear_letters(const Kernel& kernel) {
  const kernels::table::Row& row = kernels::table::row_of(kernel);
  if (row.form != kernels::table::Form::kLabelled || row.user || !row.facts.linear) return std::nullopt;
  kernels::table::Subscripts labels = row.labels(kernel);
  const bool plain = std::all_of(labels.operands.begin(), labels.operands.end(), distinct) && !labels.result.empty();
  return plain ? std::optional(std::move(labels)) : std::nullopt;
}

/// Letters of an elementwise product of arrays of one shape.
std::optional<kernels::table::Subscripts> product_letters(const Kernel& kernel, const NodePtr& left,
                                                          const NodePtr& right) {
  const kernels::table::Row& row = kernels::table::row_of(kernel);
  const auto shape = left->type().relation.uniform_shape();
  const bool multiplies =
      row.form == kernels::table::Form::kElementwise && !row.user && row.facts.annihilator == 0.0 && row.facts.linear;
  const bool fits = shape && shape == right->type().relation.uniform_shape() && !shape->empty() && shape->size() <= 20;
  if (!multiplies || !fits) return std::nullopt;
  std::string letters;
  for (size_t axis = 0; axis < shape->size(); ++axis) letters += static_cast<char>('a' + axis);
  return kernels::table::Subscripts{{letters, letters}, letters};
}

/// `labels`, then `next` on the result.
kernels::table::Subscripts composed(kernels::table::Subscripts labels, const kernels::table::Subscripts& next) {
  std::string result;
  for (const char letter : next.result) result += labels.result[next.operands[0].find(letter)];
  labels.result = result;
  return labels;
}

/// A product with the sums and transposes after it as one contraction; any other kernel as it is.
Kernel as_contraction(const Kernel& kernel, const NodePtr& left, const NodePtr& right) {
  auto labels = product_letters(kernel.first(), left, right);
  if (!labels) labels = linear_letters(kernel.first());
  if (!labels) return kernel;
  size_t taken = 0;
  for (; taken < kernel.epilogue.size(); ++taken) {
    const auto next = linear_letters(kernel.epilogue[taken]);
    if (!next || next->operands[0].size() != labels->result.size()) break;
    labels = composed(std::move(*labels), *next);
  }
  Kernel out{"contract", {renamed(*labels).text()}};
  out.epilogue.assign(kernel.epilogue.begin() + static_cast<int64_t>(taken), kernel.epilogue.end());
  return out;
}

/// Pairs of join keys in the order of the left ones.
ia::LocalJoin sorted_keys(ia::LocalJoin join) {
  std::vector<std::pair<int64_t, int64_t>> pairs;
  for (size_t i = 0; i < join.left_keys.size(); ++i) pairs.emplace_back(join.left_keys[i], join.right_keys[i]);
  std::sort(pairs.begin(), pairs.end());
  for (size_t i = 0; i < pairs.size(); ++i) std::tie(join.left_keys[i], join.right_keys[i]) = pairs[i];
  return join;
}

ia::Operation canonical(ia::Operation operation, const std::vector<NodePtr>& inputs) {
  if (auto* filter = std::get_if<ia::LocalFilter>(&operation)) {
    filter->predicate = sorted_conjuncts(filter->predicate);
  } else if (auto* join = std::get_if<ia::LocalJoin>(&operation)) {
    join->kernel = as_contraction(join->kernel, inputs[0], inputs[1]);
    return sorted_keys(*join);
  }
  return operation;
}

// --- laws beyond the table -------------------------------------------------------------------------------------------
// On one site they need no condition on placements. Each gives nullptr where it does not apply.

using Law = NodePtr (*)(const NodePtr&);

bool one_each(const ia::LocalMap* map) { return map != nullptr && map->outputs == 1; }

NodePtr filter_of_nothing(const NodePtr& node) {
  const auto* filter = node->as<ia::LocalFilter>();
  return filter != nullptr && filter->predicate.op() == relation::KeyOperator::kTrue ? node->input(0) : nullptr;
}

/// F[b](M[k, f] R) = M[k, f](F[b∘k] R)
NodePtr filter_below_key_map(const NodePtr& node) {
  const auto* filter = node->as<ia::LocalFilter>();
  const auto* map = filter == nullptr ? nullptr : node->input(0)->as<ia::LocalMap>();
  if (!one_each(map)) return nullptr;
  const ia::LocalFilter below{filter->predicate.substitute(map->key_map.components())};
  return ia::make(*map, {ia::make(below, {node->input(0)->input(0)})});
}

/// M[k, f](A[g, ⊕] R) = M[k, id](A[g, ⊕ | f] R)
NodePtr map_into_aggregate(const NodePtr& node) {
  const auto* map = node->as<ia::LocalMap>();
  const auto* aggregate = one_each(map) ? node->input(0)->as<ia::LocalAggregate>() : nullptr;
  if (aggregate == nullptr || map->array_map == kIdentity) return nullptr;
  const ia::LocalAggregate both{aggregate->group_by, aggregate->kernel.followed_by(map->array_map)};
  return ia::make(ia::LocalMap{1, map->key_map, kIdentity}, {ia::make(both, {node->input(0)->input(0)})});
}

/// A[g, ⊕ | f] R = A[g, ⊕](M[id, f] R) where f distributes over ⊕
NodePtr function_below_aggregate(const NodePtr& node) {
  const auto* aggregate = node->as<ia::LocalAggregate>();
  if (aggregate == nullptr || aggregate->kernel.epilogue.empty() || !aggregate->kernel.parameters.empty())
    return nullptr;
  const Kernel& function = aggregate->kernel.epilogue.front();
  if (!kernels::table::distributes(function, aggregate->kernel.name, 0)) return nullptr;
  ia::LocalAggregate rest = *aggregate;
  rest.kernel.epilogue.erase(rest.kernel.epilogue.begin());
  const NodePtr& input = node->input(0);
  const ia::LocalMap below{1, relation::KeyMap::identity(input->type().relation.arity()), function};
  return ia::make(rest, {ia::make(below, {input})});
}

/// A[h, ⊕ | f](A[g, ⊕] R) = A[g∘h, ⊕ | f] R
NodePtr aggregate_of_aggregate(const NodePtr& node) {
  const auto* outer = node->as<ia::LocalAggregate>();
  const auto* inner = outer == nullptr ? nullptr : node->input(0)->as<ia::LocalAggregate>();
  if (inner == nullptr || !(inner->kernel == outer->kernel.first()) ||
      !kernels::table::reduces_in_any_order(inner->kernel))
    return nullptr;
  return ia::make(ia::LocalAggregate{project(inner->group_by, outer->group_by), outer->kernel},
                  {node->input(0)->input(0)});
}

/// A[g, ⊕](M[k, f] R) = A[k(g), ⊕](M[id, f] R) where k copies the components g
NodePtr aggregate_of_key_map(const NodePtr& node) {
  const auto* aggregate = node->as<ia::LocalAggregate>();
  const auto* map = aggregate == nullptr ? nullptr : node->input(0)->as<ia::LocalMap>();
  if (!one_each(map) || rules::keeps_keys(node->input(0)) ||
      !kernels::table::reduces_in_any_order(aggregate->kernel.first()))
    return nullptr;
  const Dims group = project(map->key_map.copied_dims(), aggregate->group_by);
  const std::set<int64_t> distinct_dims(group.begin(), group.end());
  if (distinct_dims.contains(-1) || distinct_dims.size() != group.size()) return nullptr;
  const NodePtr& input = node->input(0)->input(0);
  const ia::LocalMap below{1, relation::KeyMap::identity(input->type().relation.arity()), map->array_map};
  return ia::make(ia::LocalAggregate{group, aggregate->kernel}, {ia::make(below, {input})});
}

/// The component of a map's keys that counts equal copies, if that is all the map adds to keys.
std::optional<int64_t> copy_component(const NodePtr& node) {
  const auto* map = node->as<ia::LocalMap>();
  if (map == nullptr || !(map->array_map == Kernel{"duplicate", {}})) return std::nullopt;
  std::optional<int64_t> found;
  for (int64_t d = 0; d < map->key_map.output_arity(); ++d) {
    const relation::KeyExpression& component = map->key_map.components()[d];
    if (!component.reads_output()) continue;
    if (found || component.op() != relation::KeyOperator::kOutput) return std::nullopt;
    found = d;
  }
  return found;
}

/// A map of copies as it would be without them.
NodePtr without_copies(const NodePtr& node, int64_t component) {
  auto components = node->as<ia::LocalMap>()->key_map.components();
  components.erase(components.begin() + component);
  return ia::make(ia::LocalMap{1, relation::KeyMap(std::move(components)), kIdentity}, node->inputs());
}

/// `dims` less one of them at `index`; those above `gone` move down by one.
Dims without(Dims dims, size_t index, std::optional<int64_t> gone) {
  dims.erase(dims.begin() + static_cast<int64_t>(index));
  for (int64_t& dim : dims) dim -= gone && dim > *gone ? 1 : 0;
  return dims;
}

/// J[.., d; .., e](L, copies of R) = J(L, R) where e counts the copies, of which there are enough for all keys d of L.
NodePtr join_without_right_copies(const NodePtr& node) {
  const auto* join = node->as<ia::LocalJoin>();
  const auto component = join == nullptr ? std::nullopt : copy_component(node->input(1));
  const auto at = component ? position_of(join->right_keys, *component) : std::nullopt;
  if (!at) return nullptr;
  const int64_t needed = node->input(0)->type().relation.frontier[join->left_keys[*at]];
  if (needed > node->input(1)->as<ia::LocalMap>()->outputs) return nullptr;
  const ia::LocalJoin rest{without(join->left_keys, *at, std::nullopt), without(join->right_keys, *at, component),
                           join->kernel};
  return ia::make(rest, {node->input(0), without_copies(node->input(1), *component)});
}

/// The same for copies of L; the component is then R's, and a key map puts it where it was.
NodePtr join_without_left_copies(const NodePtr& node) {
  const auto* join = node->as<ia::LocalJoin>();
  const auto component = join == nullptr ? std::nullopt : copy_component(node->input(0));
  const auto at = component ? position_of(join->left_keys, *component) : std::nullopt;
  if (!at) return nullptr;
  const int64_t partner = join->right_keys[*at];
  if (node->input(1)->type().relation.frontier[partner] > node->input(0)->as<ia::LocalMap>()->outputs) return nullptr;
  const ia::LocalJoin rest{without(join->left_keys, *at, component), without(join->right_keys, *at, std::nullopt),
                           join->kernel};
  const NodePtr joined = ia::make(rest, {without_copies(node->input(0), *component), node->input(1)});
  const int64_t right_arity = node->input(1)->type().relation.arity();
  const int64_t arity = node->input(0)->type().relation.arity() - 1;
  const Dims tail = complement(rest.right_keys, right_arity);
  const int64_t source = arity + *position_of(tail, partner);
  Dims keys = all_dims(joined->type().relation.arity());
  keys.erase(keys.begin() + source);
  keys.insert(keys.begin() + *component, source);
  return ia::make(ia::LocalMap{1, relation::KeyMap::projection(keys), kIdentity}, {joined});
}

/// A call that may run undecomposed, which it can on one site, does.
NodePtr call_at_once(const NodePtr& node) {
  const auto* op = node->as<ia::LocalCall>();
  if (op == nullptr || op->call.undecomposed.empty()) return nullptr;
  std::vector<NodePtr> operands;
  for (const int64_t operand : op->call.undecomposed_operands) operands.push_back(node->input(operand));
  return ia::make(ia::LocalCall{op->call.undecomposed.front()}, std::move(operands));
}

constexpr Law kLaws[] = {call_at_once,         filter_of_nothing,         filter_below_key_map,
                         map_into_aggregate,   function_below_aggregate,  aggregate_of_aggregate,
                         aggregate_of_key_map, join_without_right_copies, join_without_left_copies};

/// The node that the first applicable rule or law gives for `node`; null if there is none. One that would give another
/// type (of a relation without tuples, whose arrays have no shape) does not apply, because readers of the node rely on
/// the type.
NodePtr rewritten(const NodePtr& node) {
  static const std::vector<const rules::Rule*> directed = directed_rules();
  const auto same_type = [&](const NodePtr& other) { return other->type().relation == node->type().relation; };
  for (const rules::Rule* rule : directed) {
    const auto rewritten = rules::apply(*rule, node);
    if (!rewritten.empty() && same_type(rewritten.front())) return rewritten.front();
  }
  for (const Law law : kLaws) {
    try {
      const NodePtr rewritten = law(node);
      if (rewritten != nullptr && same_type(rewritten)) return rewritten;
    } catch (const PlanError&) {
    } catch (const KernelError&) {
    }
  }
  return nullptr;
}

}  // namespace

NodePtr NormalForm::make(ia::Operation operation, std::vector<NodePtr> inputs) {
  if (ia::is_move(operation)) return inputs[0];
  const NodePtr node = interner_.make(canonical(std::move(operation), inputs), inputs);
  if (const auto known = done_.find(node.get()); known != done_.end()) return known->second;
  const NodePtr better = rewritten(node);
  NodePtr out = better == nullptr ? node : normal(better);
  done_.emplace(node.get(), out);
  return out;
}

/// The recursion ends at nodes in normal form, a few levels below: a rewrite adds only few nodes above them.
NodePtr NormalForm::normal(const NodePtr& node) {
  if (const auto known = done_.find(node.get()); known != done_.end()) return known->second;
  std::vector<NodePtr> inputs;
  for (const NodePtr& input : node->inputs()) inputs.push_back(normal(input));
  NodePtr out;
  if (node->as<ia::Input>() != nullptr) {
    const ia::Grid one;
    const auto type = ia::PhysicalType::placed("input", node->type().relation, one, ia::Placement::replicated(one));
    out = interner_.intern(ia::make_input(node->as<ia::Input>()->name, type));
    done_.emplace(out.get(), out);
  } else {
    out = make(node->operation(), std::move(inputs));
  }
  alive_.push_back(node);
  done_.emplace(node.get(), out);
  return out;
}

std::vector<NodePtr> NormalForm::of(const ia::Plan& plan) {
  for (const NodePtr& node : plan.order()) normal(node);
  std::vector<NodePtr> out;
  for (const auto& output : plan.outputs()) out.push_back(done_.at(output.node.get()));
  return out;
}

std::vector<NodePtr> NormalForm::of(const tra::Plan& program) { return of(tra::lower(program, ia::Grid{})); }

}  // namespace joinsum::optimizer::verification
