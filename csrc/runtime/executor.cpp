#include "runtime/executor.h"

#include <algorithm>
#include <chrono>
#include <set>

#include <c10/core/GradMode.h>

#include "ia/fusion.h"
#include "ia/text.h"
#include "kernels/dense.h"
#include "kernels/dense_call.h"
#include "runtime/kept_bytes.h"
#include "runtime/local_operators.h"
#include "runtime/moves.h"
#include "runtime/streaming.h"

namespace joinsum::runtime {

using ia::Node;
using ia::NodePtr;

struct PlanFacts {
  ia::Plan plan;  ///< keeps the nodes that the others point to
  std::string text;
  std::unordered_map<const Node*, std::string> names;
  std::unordered_map<const Node*, std::string> operations;
  ia::Formation formation;
  std::unordered_map<const Node*, int64_t> uses;
  std::unordered_map<const Node*, std::vector<const Node*>> other_results;  ///< by the first result of a call
  std::unordered_map<const Node*, kernels::PreparedCall> calls;             ///< of first results

  PlanFacts(const ia::Plan& of, int64_t most_joined_bytes)
      : plan(of), text(of.text()), names(ia::node_names(of)), formation(of, most_joined_bytes), uses(formation.uses()) {
    for (const NodePtr& node : of.order()) {
      operations[node.get()] = ia::operation_text(node->operation(), node->type());
    }
    prepare_calls();
  }

  /// Results of one call are computed with the first of them.
  void prepare_calls() {
    const auto further = ia::further_results(plan);
    for (const NodePtr& node : plan.order()) {
      const auto* op = node->as<ia::LocalCall>();
      if (op == nullptr) continue;
      const auto with = further.find(node.get());
      if (with == further.end()) {
        calls.emplace(node.get(), op->call);
      } else {
        other_results[with->second].push_back(node.get());
      }
    }
  }

  /// Whether `other` is the same plan in memory.
  bool are_of(const ia::Plan& other) const {
    return std::equal(plan.outputs().begin(), plan.outputs().end(), other.outputs().begin(), other.outputs().end(),
                      [](const auto& a, const auto& b) {
                        return a.node == b.node && a.name == b.name && a.tied_input == b.tied_input;
                      });
  }
};

namespace {

constexpr size_t kPlansKnown = 64;

const void* memory_of(const at::Tensor& array) { return array.storage().unsafeGetStorageImpl(); }

/// One run of one plan.
class Run {
 public:
  Run(const PlanFacts& facts, const std::map<std::string, StoredRelation>& inputs, const kernels::Scalars& scalars,
      Transport& transport, BlockStore& store, std::set<std::string>& overwritten)
      : facts_(facts),
        plan_(facts.plan),
        inputs_(inputs),
        scalars_(scalars),
        transport_(transport),
        store_(store),
        overwritten_(overwritten),
        names_(facts.names),
        formation_(facts.formation),
        uses_(facts.uses) {
    for (const auto& output : plan_.outputs()) {
      if (output.tied_input) tied_.insert(*output.tied_input);
    }
    find_shared_inputs();
  }

  RunResult run() {
    RunResult result;
    for (const auto& [name, relation] : inputs_) kept_.add(relation, store_);
    for (const NodePtr& node : plan_.order()) {
      if (!formation_.formed(*node)) continue;
      result.trace.push_back(traced(*node));
      release_inputs(*node);
    }
    std::set<const Node*> given;
    for (const auto& output : plan_.outputs()) {
      const Node* node = output.node.get();
      const bool shared = node->as<ia::Input>() != nullptr || !given.insert(node).second;
      result.outputs.emplace(output.name, shared ? with_own_blocks(values_.at(node)) : values_.at(node));
    }
    return result;
  }

 private:
  /// The same arrays under new handles, so that overwriting one relation is known to touch another.
  StoredRelation with_own_blocks(const StoredRelation& relation) {
    StoredRelation out{relation.type, {}};
    std::map<BlockHandle, BlockHandle> renewed;
    for (const auto& [site, blocks] : relation.sites) {
      auto& own_blocks = out.sites[site];
      for (const BlockHandle& block : blocks) {
        BlockHandle& own = renewed[block];
        if (own == nullptr) own = store_.put(Pin(store_, block).tensor());
        own_blocks.push_back(own);
      }
    }
    return out;
  }

  /// Inputs that share memory with another one are never overwritten.
  void find_shared_inputs() {
    std::map<const void*, std::string> owner;
    for (const auto& [name, relation] : inputs_) {
      for (const auto& [site, blocks] : relation.sites) {
        for (const BlockHandle& block : blocks) {
          const auto [at, fresh] = owner.emplace(memory_of(Pin(store_, block).tensor()), name);
          if (at->second == name) continue;
          shared_inputs_.insert(name);
          shared_inputs_.insert(at->second);
        }
      }
    }
  }

  NodeTrace traced(const Node& node) {
    NodeTrace trace{names_.at(&node), facts_.operations.at(&node)};
    const Counters before = transport_.counters();
    const int64_t calls = kernels::kernel_calls();
    store_.reset_peak();
    flops_ = 0;
    received_.clear();
    const auto start = std::chrono::steady_clock::now();
    values_.insert_or_assign(&node, evaluate(node));
    trace.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    trace.bytes_sent = transport_.counters().sent - before.sent;
    trace.bytes_received = transport_.counters().received - before.received;
    trace.kernel_calls = kernels::kernel_calls() - calls;
    trace.flops = flops_;
    trace.peak_bytes = store_.peak_bytes();
    if (!node.inputs().empty()) kept_.add(values_.at(&node), store_);
    trace.site_bytes = kept_.of_busiest_site(received_);
    return trace;
  }

  StoredRelation evaluate(const Node& node) {
    const std::string who = ia::operator_name(node.operation()) + " " + names_.at(&node);
    if (const auto* input = node.as<ia::Input>()) return inputs_.at(input->name);
    if (auto known = ready_.extract(&node)) return std::move(known.mapped());
    if (node.as<ia::Broadcast>() != nullptr || node.as<ia::Shuffle>() != nullptr) {
      return move(who, values_.at(node.input(0).get()), node.type(), transport_, store_, received_);
    }
    return evaluate_local(node);
  }

  /// Whether `operand` may be overwritten once its last user, the current node, has read it.
  bool dies_here(const Node& operand, size_t times_read) const {
    if (uses_.at(&operand) != static_cast<int64_t>(times_read)) return false;
    if (const auto* input = operand.as<ia::Input>())
      return tied_.contains(input->name) && !shared_inputs_.contains(input->name);
    return true;
  }

  /// Whether the arrays are seen by nobody but their block (and `pieces`): not by a view, another block or the user.
  static bool exclusive(const std::vector<Piece>& pieces) {
    return std::all_of(pieces.begin(), pieces.end(), [](const Piece& piece) {
      return piece.array.storage().use_count() == 1 && piece.array.use_count() <= 2;
    });
  }

  /// Runs a local operator once for each distinct set of blocks; sites that hold the same ones share the result.
  StoredRelation evaluate_local(const Node& node) {
    const auto operands = formation_.operands(node);
    struct Group {
      std::vector<std::vector<Piece>> pieces;
      std::vector<int64_t> sites;
    };
    std::map<std::vector<int64_t>, Group> groups;
    for (const int64_t site : transport_.local_sites()) {
      std::vector<int64_t> key;
      std::vector<std::vector<Piece>> pieces;
      for (const Node* operand : operands) {
        pieces.push_back(pieces_at(values_.at(operand), site, store_));
        const auto identity = identity_of(pieces.back());
        key.push_back(static_cast<int64_t>(identity.size()));
        key.insert(key.end(), identity.begin(), identity.end());
      }
      Group& group = groups[key];
      if (group.sites.empty()) group.pieces = std::move(pieces);
      group.sites.push_back(site);
    }
    std::map<const void*, int64_t> readers;
    for (const auto& [key, group] : groups) {
      std::set<const void*> read;
      for (const auto& pieces : group.pieces) {
        for (const Piece& piece : pieces) read.insert(memory_of(piece.array));
      }
      for (const void* memory : read) ++readers[memory];
    }
    const std::vector<const Node*> made = made_with(node);
    std::vector<StoredRelation> out;
    for (const Node* each : made) out.push_back({each->type(), {}});
    for (auto& [key, group] : groups) {
      const auto blocks = evaluate_group(made, operands, std::move(group.pieces), group.sites.front(), readers);
      for (size_t i = 0; i < made.size(); ++i) {
        for (const int64_t site : group.sites) out[i].sites[site] = blocks[i];
      }
    }
    for (size_t i = 1; i < made.size(); ++i) ready_.emplace(made[i], std::move(out[i]));
    return std::move(out.front());
  }

  /// The node, and further results of its call.
  std::vector<const Node*> made_with(const Node& node) const {
    std::vector<const Node*> out{&node};
    const auto others = facts_.other_results.find(&node);
    if (others != facts_.other_results.end()) out.insert(out.end(), others->second.begin(), others->second.end());
    return out;
  }

  /// The blocks of each of `made`, which are results of one operator.
  std::vector<std::vector<BlockHandle>> evaluate_group(const std::vector<const Node*>& made,
                                                       const std::vector<const Node*>& operands,
                                                       std::vector<std::vector<Piece>> pieces, int64_t site,
                                                       const std::map<const void*, int64_t>& readers) {
    std::vector<std::vector<BlockHandle>> out(made.size());
    const Node& node = *made.front();
    const auto boxes = node.type().stored(site);
    if (boxes.empty()) return out;
    std::vector<Operand> given;
    for (size_t i = 0; i < operands.size(); ++i) {
      const auto times = static_cast<size_t>(std::count(operands.begin(), operands.end(), operands[i]));
      const bool sole = std::all_of(pieces[i].begin(), pieces[i].end(),
                                    [&](const Piece& piece) { return readers.at(memory_of(piece.array)) == 1; });
      const bool reusable = dies_here(*operands[i], times) && sole && exclusive(pieces[i]);
      if (const auto* input = operands[i]->as<ia::Input>(); input != nullptr && reusable) {
        overwritten_.insert(input->name);
      }
      given.push_back({operands[i]->type().relation, std::move(pieces[i]), reusable});
    }
    at::TensorOptions options;
    for (const Operand& operand : given) {
      if (!operand.pieces.empty()) options = operand.pieces.front().array.options();
    }
    if (node.as<ia::LocalCall>() != nullptr) {
      const auto results = LocalOperators(scalars_, store_, flops_).call(facts_.calls.at(&node), given);
      for (size_t i = 0; i < made.size(); ++i)
        out[i] = {store_.put(results[made[i]->as<ia::LocalCall>()->call.output])};
      return out;
    }
    const auto result = formation_.folds_streamed(node)
                            ? Streaming(formation_, operands, given, scalars_, store_, flops_).fold(node, site)
                            : apply(node, given);
    if (!result.empty()) options = result.front().array.options();
    for (at::Tensor& array : assemble(node.type().relation, boxes, result, options))
      out.front().push_back(store_.put(std::move(array)));
    return out;
  }

  std::vector<Piece> apply(const Node& node, const std::vector<Operand>& given) {
    const LocalOperators operators(scalars_, store_, flops_);
    const RelationType& result = node.type().relation;
    if (const auto* op = node.as<ia::LocalJoin>()) return operators.join(*op, given[0], given[1], result);
    if (const auto* op = node.as<ia::LocalFilter>()) return operators.filter(*op, given[0]);
    if (const auto* op = node.as<ia::LocalMap>()) return operators.map(*op, given[0], result);
    const auto& op = *node.as<ia::LocalAggregate>();
    const Node& input = *node.input(0);
    if (!formation_.fused(input)) return operators.aggregate(op, given[0], result);
    return operators.contract(*input.as<ia::LocalJoin>(), op, given[0], given[1], input.type().relation);
  }

  void release_inputs(const Node& node) {
    for (const Node* operand : formation_.operands(node)) {
      if (--uses_[operand] > 0) continue;
      if (!operand->inputs().empty()) kept_.remove(values_.at(operand), store_);
      values_.erase(operand);
    }
  }

  const PlanFacts& facts_;
  const ia::Plan& plan_;
  const std::map<std::string, StoredRelation>& inputs_;
  const kernels::Scalars& scalars_;
  Transport& transport_;
  BlockStore& store_;
  std::set<std::string>& overwritten_;
  const std::unordered_map<const Node*, std::string>& names_;
  const ia::Formation& formation_;
  std::unordered_map<const Node*, int64_t> uses_;
  std::set<std::string> tied_;
  std::set<std::string> shared_inputs_;
  std::unordered_map<const Node*, StoredRelation> values_;
  std::unordered_map<const Node*, StoredRelation> ready_;  ///< results of calls that were computed with another one
  int64_t flops_ = 0;
  KeptBytes kept_;
  ReceivedBytes received_;
};

void check_inputs(const ia::Plan& plan, const std::map<std::string, StoredRelation>& inputs,
                  const kernels::Scalars& scalars) {
  for (const NodePtr& node : plan.inputs()) {
    const std::string& name = node->as<ia::Input>()->name;
    const auto given = inputs.find(name);
    JOINSUM_USER_CHECK(given != inputs.end(), "run: input is missing: input=", name);
    JOINSUM_USER_CHECK(given->second.type == node->type(), "run: input has another type: input=", name,
                       ", given=", given->second.type.text(), ", wanted=", node->type().text());
  }
  for (const auto& output : plan.outputs()) {
    JOINSUM_USER_CHECK(!output.node->type().placement.pending(),
                       "run: output is pending; broadcast or shuffle it first: output=", output.name,
                       ", type=", output.node->type().text());
  }
  for (const NodePtr& node : plan.order()) {
    for (const std::string& name : ia::scalars_of(node->operation())) {
      JOINSUM_USER_CHECK(scalars.contains(name), "run: scalar is not bound: scalar=", name,
                         ", operator=", ia::operation_text(node->operation(), node->type()));
    }
  }
}

/// What all sites must agree on: the plan with its input types, and the scalars.
std::string program_text(const PlanFacts& facts, const kernels::Scalars& scalars) {
  std::ostringstream out;
  out.precision(17);
  out << facts.text;
  for (const auto& [name, value] : scalars) out << "scalar " << name << " = " << value << "\n";
  return out.str();
}

/// Whether all sites are in this process, so that there is nobody to agree with.
bool whole(const Transport& transport) {
  return static_cast<int64_t>(transport.local_sites().size()) == transport.sites();
}

}  // namespace

Executor::Executor(std::shared_ptr<Transport> transport, std::shared_ptr<BlockStore> store, int64_t most_joined_bytes)
    : transport_(std::move(transport)), store_(std::move(store)), most_joined_bytes_(most_joined_bytes) {}

RunResult Executor::run(const ia::Plan& plan, const std::map<std::string, StoredRelation>& inputs,
                        const kernels::Scalars& scalars) {
  overwritten_.clear();
  JOINSUM_USER_CHECK(plan.grid().sites() == transport_->sites(),
                     "run: plan is made for another number of sites: plan=", plan.grid().sites(),
                     ", sites=", transport_->sites());
  const auto facts = facts_of(plan);
  if (!whole(*transport_)) transport_->agree("run", program_text(*facts, scalars));
  try {
    check_inputs(plan, inputs, scalars);
    const c10::NoGradGuard no_grad;
    return Run(*facts, inputs, scalars, *transport_, *store_, overwritten_).run();
  } catch (const TransportError&) {
    throw;
  } catch (const std::exception& e) {
    transport_->leave(e);
    throw;
  }
}

std::shared_ptr<const PlanFacts> Executor::facts_of(const ia::Plan& plan) {
  auto found = std::find_if(known_.begin(), known_.end(), [&](const auto& facts) { return facts->are_of(plan); });
  if (found == known_.end()) {
    if (known_.size() == kPlansKnown) known_.pop_back();
    found = known_.insert(known_.end(), std::make_shared<const PlanFacts>(plan, most_joined_bytes_));
  }
  std::rotate(known_.begin(), found, found + 1);
  return known_.front();
}

}  // namespace joinsum::runtime
