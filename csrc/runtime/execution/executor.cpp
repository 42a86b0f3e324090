#include "runtime/execution/executor.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <sstream>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>

#include "kernels/dense/dense.h"
#include "runtime/execution/local/pair_pattern.h"
#include "runtime/storage/resident_bytes.h"
#include "runtime/storage/torch_allocations.h"

namespace joinsum::runtime::execution {

using local::Operand;
using local::PartOperand;
using local::PinnedOperand;
using local::PinnedPiece;
using storage::Block;
using storage::Blocks;
using storage::Piece;
using storage::Pin;
using storage::StoredRelation;

namespace {

constexpr size_t kCachedPlans = 64;
constexpr size_t kFewSites = 16;  ///< of one process, which are compared one by one

/// One run of one executable.
class Run {
 public:
  Run(const Executable& executable, const RunInputs& inputs, const kernels::table::Scalars& scalars,
      communication::Transport& transport, storage::BlockStore& store, std::set<size_t>& overwritten)
      : executable_(executable),
        inputs_(inputs),
        transport_(transport),
        store_(store),
        overwritten_(overwritten),
        values_(executable.values().size()),
        context_{scalars, store, flops_, winners_} {
    find_shared_inputs();
  }

  /// The outputs; what the nodes did is added to `counts`.
  std::map<std::string, StoredRelation> run(std::vector<NodeCounts>& counts) {
    for (const auto& [name, relation] : inputs_) resident_.add(*relation);
    for (const Task& task : executable_.tasks()) {
      if (task.kind == Task::Kind::kFinish && !underway_.at(task.number)->arrived()) {
        late_.push_back(&task);
        continue;
      }
      finish_late(counts, [&](const Task& late) { return needs(task, late) || underway_.at(late.number)->arrived(); });
      perform(task, counts);
      free_after(task);
      transport_.progress();
    }
    finish_late(counts, [](const Task&) { return true; });
    std::map<std::string, StoredRelation> outputs;
    for (const Result& output : executable_.results()) {
      StoredRelation value = *values_[output.value];
      if (output.own_blocks) value = storage::with_own_blocks(value, store_);
      value.type = executable_.values()[output.value].type;
      outputs.emplace(output.name, std::move(value));
    }
    return outputs;
  }

  /// After an error: waits for what the others have sent to this process.
  void settle() noexcept {
    for (auto& [group, moves] : underway_) moves->settle();
  }

 private:
  /// Inputs that share memory with another one are never overwritten.
  void find_shared_inputs() {
    std::unordered_map<const void*, std::string_view> owner;
    for (const auto& [name, relation] : inputs_) {
      for (const auto& [site, blocks] : relation->sites) {
        for (const Block& block : blocks) {
          const auto [at, fresh] = owner.emplace(block.memory(), name);
          if (at->second == name) continue;
          shared_inputs_.insert(name);
          shared_inputs_.insert(at->second);
        }
      }
    }
  }

  /// Finishes groups of moves that were late, and for which `now` holds.
  template <typename Now>
  void finish_late(std::vector<NodeCounts>& counts, const Now& now) {
    std::erase_if(late_, [&](const Task* late) {
      if (!now(*late)) return false;
      perform(*late, counts);
      free_after(*late);
      return true;
    });
  }

  /// Whether a task reads what a group of moves brings.
  bool needs(const Task& task, const Task& late) const {
    const std::vector<size_t>& brought = executable_.groups()[late.number];
    const auto reads = [&](size_t step) {
      const auto& operands = executable_.steps()[step].operands;
      return std::any_of(operands.begin(), operands.end(), [&](size_t operand) {
        return std::any_of(brought.begin(), brought.end(),
                           [&](size_t move) { return executable_.steps()[move].results.front() == operand; });
      });
    };
    if (task.kind == Task::Kind::kCompute) return reads(task.number);
    const std::vector<size_t>& moves = executable_.groups()[task.number];
    return std::any_of(moves.begin(), moves.end(), reads);
  }

  /// Performs a task and adds what it did to the traces of its steps.
  void perform(const Task& task, std::vector<NodeCounts>& trace) {
    const communication::Counters before = transport_.counters();
    const int64_t calls = kernels::dense::kernel_calls();
    store_.reset_peak();
    flops_ = 0;
    at::RecordFunction profiled(at::RecordScope::USER_SCOPE);
    if (profiled.isActive()) profiled.before(name_of(task));
    const auto start = std::chrono::steady_clock::now();
    if (task.kind == Task::Kind::kCompute) {
      compute(executable_.steps()[task.number]);
    } else {
      move(task);
    }
    NodeCounts did;
    did.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    did.bytes_sent = transport_.counters().sent - before.sent;
    did.bytes_received = transport_.counters().received - before.received;
    did.kernel_calls = kernels::dense::kernel_calls() - calls;
    did.flops = flops_;
    did.peak_bytes = store_.peak_bytes();
    did.pooled_bytes = store_.pooled_bytes();
    if (task.kind == Task::Kind::kCompute) {
      add_to(trace[task.number], did, 1);
      hold(task.number, trace[task.number]);
    } else {
      add_to_group(task, did, trace);
    }
  }

  /// What torch.profiler calls a task: its node as the plan's text has it; of moves that travel together the first one
  /// and how many follow.
  std::string name_of(const Task& task) const {
    if (task.kind == Task::Kind::kCompute) return executable_.steps()[task.number].label;
    const std::vector<size_t>& moves = executable_.groups()[task.number];
    const std::string first = executable_.steps()[moves.front()].label;
    return moves.size() == 1 ? first : concatenate(first, " and ", moves.size() - 1, " more");
  }

  static void add_to(NodeCounts& node, const NodeCounts& did, size_t sharers) {
    node.bytes_sent += did.bytes_sent;
    node.bytes_received += did.bytes_received;
    node.kernel_calls += did.kernel_calls;
    node.flops += did.flops;
    node.seconds += did.seconds / static_cast<double>(sharers);
    node.peak_bytes = std::max(node.peak_bytes, did.peak_bytes);
    node.pooled_bytes = did.pooled_bytes;
  }

  /// The moves of a group share its seconds alike. Each has its own bytes; what was counted otherwise is the first
  /// one's.
  void add_to_group(const Task& task, const NodeCounts& did, std::vector<NodeCounts>& trace) {
    const std::vector<size_t>& steps = executable_.groups()[task.number];
    for (const size_t step : steps) {
      const bool first = step == steps.front();
      const NodeCounts rest{.seconds = did.seconds, .peak_bytes = did.peak_bytes, .pooled_bytes = did.pooled_bytes};
      add_to(trace[step], first ? did : rest, steps.size());
      if (task.kind != Task::Kind::kFinish) continue;
      if (!first) {
        const communication::Counters& own = prepared(step).bytes;
        add_to(trace[step], {.bytes_sent = own.sent, .bytes_received = own.received}, 1);
        add_to(trace[steps.front()], {.bytes_sent = -own.sent, .bytes_received = -own.received}, 1);
      }
      hold(step, trace[step]);
    }
    if (task.kind == Task::Kind::kFinish) add_received(task.number, -1);
  }

  /// A call's results are there with the first one.
  void hold(size_t step, NodeCounts& trace) {
    const Step& did = executable_.steps()[step];
    if (!std::holds_alternative<ComputedBefore>(did.action)) {
      for (const size_t result : did.results) {
        if (!executable_.values()[result].input) resident_.add(*values_[result]);
      }
    }
    trace.site_bytes = resident_.of_busiest_site(received_);
  }

  const communication::moves::PreparedMove& prepared(size_t step) const {
    return *std::get<std::unique_ptr<const communication::moves::PreparedMove>>(executable_.steps()[step].action);
  }

  /// Counts the messages of a group as memory of the sites that receive them.
  void add_received(size_t group, int64_t times) {
    for (const size_t step : executable_.groups()[group]) {
      for (const auto& [site, bytes] : prepared(step).received) received_[site] += times * bytes;
    }
  }

  void compute(const Step& step) {
    if (const auto* input = std::get_if<ReadInput>(&step.action)) {
      values_[step.results.front()] = *inputs_.at(input->name);
    } else if (const auto* compute = std::get_if<ComputeLocally>(&step.action)) {
      compute_locally(step, *compute);
    }
  }

  void move(const Task& task) {
    const std::vector<size_t>& steps = executable_.groups()[task.number];
    if (task.kind == Task::Kind::kStart) {
      std::vector<communication::moves::MoveOf> moves;
      for (const size_t step : steps) {
        const Step& move = executable_.steps()[step];
        moves.push_back({prepared(step), *values_[move.operands.front()], move.overwritable.front()});
      }
      underway_[task.number] = communication::moves::start(moves, transport_, store_);
      return add_received(task.number, 1);
    }
    if (task.kind == Task::Kind::kAdvance) return underway_.at(task.number)->advance();
    auto found = underway_.at(task.number)->finish();
    underway_.erase(task.number);
    for (size_t i = 0; i < steps.size(); ++i) {
      values_[executable_.steps()[steps[i]].results.front()] = std::move(found[i]);
    }
  }

  /// Sites whose operands are the same blocks, and whose results have the same boxes, share one computation.
  struct Group {
    std::vector<std::vector<Piece>> pieces;  ///< of each operand
    std::vector<int64_t> sites;
  };

  void compute_locally(const Step& step, const ComputeLocally& compute) {
    const std::vector<int64_t>& sites = transport_.local_sites();
    const bool in_parts = sites.size() <= kFewSites && std::all_of(sites.begin(), sites.end(), [&](int64_t site) {
                            return one_part(step, compute, site);
                          });
    if (in_parts) return compute_parts(step, compute);
    std::vector<Group> groups = groups_of(step);
    const std::set<const void*> shared = read_by_several(groups);
    for (const size_t result : step.results) {
      values_[result] = StoredRelation{executable_.values()[result].type, {}};
    }
    for (Group& group : groups) {
      const auto blocks = compute_group(step, compute, group, shared);
      for (size_t i = 0; i < step.results.size(); ++i) {
        for (const int64_t site : group.sites) values_[step.results[i]]->sites[site] = blocks[i];
      }
    }
  }

  /// Whether the step's work on the site is one part: the operands and results are one box each.
  bool one_part(const Step& step, const ComputeLocally& compute, int64_t site) const {
    if (compute.call == nullptr) return compute.parts.contains(site);
    return !executable_.values()[step.results.front()].boxes.at(site).empty();
  }

  /// `one_part` of all sites.
  void compute_parts(const Step& step, const ComputeLocally& compute) {
    const std::vector<int64_t>& sites = transport_.local_sites();
    c10::SmallVector<int64_t, kFewSites> first_of;  // for each site the first one that computes the same
    for (const int64_t site : sites) {
      const auto known = sites.begin() + static_cast<int64_t>(first_of.size());
      const auto same =
          std::find_if(sites.begin(), known, [&](int64_t other) { return computes_same(step, site, other); });
      first_of.push_back(*same);
    }
    c10::SmallVector<StoredRelation, 3> results;
    for (const size_t result : step.results) results.push_back({executable_.values()[result].type, {}});
    for (size_t i = 0; i < sites.size(); ++i) {
      const bool computed = first_of[i] != sites[i];
      const auto blocks = computed ? c10::SmallVector<Block, 3>() : compute_part(step, compute, sites[i], first_of);
      for (size_t k = 0; k < results.size(); ++k) {
        const Block block = computed ? results[k].sites.at(first_of[i]).front() : blocks[k];
        results[k].sites[sites[i]].push_back(block);
      }
    }
    for (size_t k = 0; k < results.size(); ++k) values_[step.results[k]] = std::move(results[k]);
  }

  /// The block of each result of `one_part` of a site; `computing` are the sites that compute, some of them repeatedly.
  c10::SmallVector<Block, 3> compute_part(const Step& step, const ComputeLocally& compute, int64_t site,
                                          c10::ArrayRef<int64_t> computing) {
    c10::SmallVector<Pin, 6> pins;  // outlive the arrays
    c10::SmallVector<PartOperand, 6> operands(step.operands.size());
    for (size_t i = 0; i < operands.size(); ++i) {
      const Block& block = block_of(step.operands[i], site);
      operands[i].overwritable =
          may_overwrite(step, i) && block.exclusive() && !is_read_elsewhere(step, i, site, computing);
    }
    for (size_t i = 0; i < operands.size(); ++i) {
      operands[i].array = pins.emplace_back(block_of(step.operands[i], site)).array();
      if (operands[i].overwritable) overwrites(step.operands[i], operands[i].array);
    }
    c10::SmallVector<Block, 3> out;
    for (at::Tensor& array : part_results(step, compute, site, operands)) out.push_back(store_.put(std::move(array)));
    return out;
  }

  /// Whether a site reads and computes what another one does. Blocks of other boxes may be the same memory: of an
  /// expanded array.
  bool computes_same(const Step& step, int64_t site, int64_t other) const {
    const auto has_same_boxes = [&](size_t value) {
      const auto& boxes = executable_.values()[value].boxes;
      return boxes.at(site) == boxes.at(other);
    };
    return has_same_boxes(step.results.front()) &&
           std::all_of(step.operands.begin(), step.operands.end(), [&](size_t operand) {
             return has_same_boxes(operand) && block_of(operand, site).is_same_as(block_of(operand, other));
           });
  }

  /// Whether a site that computes also reads the memory of operand `i` of `site`, other than as this operand.
  bool is_read_elsewhere(const Step& step, size_t i, int64_t site, c10::ArrayRef<int64_t> computing) const {
    const void* memory = block_of(step.operands[i], site).memory();
    return std::any_of(computing.begin(), computing.end(), [&](int64_t reader) {
      for (size_t operand = 0; operand < step.operands.size(); ++operand) {
        const bool itself = reader == site && operand == i;
        if (!itself && block_of(step.operands[operand], reader).memory() == memory) return true;
      }
      return false;
    });
  }

  const Block& block_of(size_t value, int64_t site) const { return values_[value]->sites.at(site).front(); }

  /// The array of each of the step's results.
  std::vector<at::Tensor> part_results(const Step& step, const ComputeLocally& compute, int64_t site,
                                       c10::ArrayRef<PartOperand> operands) {
    if (compute.call == nullptr) return {compute.parts.at(site)(operands, context_)};
    const std::vector<at::Tensor> arrays = compute.call->run(site, operands, context_);
    std::vector<at::Tensor> out;
    out.reserve(step.results.size());
    for (const size_t result : step.results) {
      out.push_back(arrays[executable_.values()[result].node->as<ia::LocalCall>()->call.output]);
    }
    return out;
  }

  /// Whether nothing reads operand i after the step; its blocks may have other owners.
  bool may_overwrite(const Step& step, size_t i) const {
    const std::optional<std::string>& input = executable_.values()[step.operands[i]].input;
    return step.overwritable[i] && !(input && shared_inputs_.contains(*input));
  }

  /// Notes that the array of a value is to be overwritten.
  void overwrites(size_t value, const at::Tensor& array) {
    if (executable_.values()[value].input) overwritten_.insert(value);
    array.unsafeGetTensorImpl()->bump_version();
  }

  std::vector<Group> groups_of(const Step& step) const {
    const std::vector<int64_t>& sites = transport_.local_sites();
    std::vector<Group> groups;
    std::map<std::pair<std::vector<int64_t>, std::vector<Box>>, size_t> known;  // by operands and boxes of the result
    for (const int64_t site : sites) {
      std::vector<std::vector<Piece>> pieces;
      for (const size_t operand : step.operands) {
        pieces.push_back(
            storage::pieces_of(executable_.values()[operand].boxes.at(site), values_[operand]->sites.at(site)));
      }
      const auto& boxes = executable_.values()[step.results.front()].boxes.at(site);
      const auto [at, fresh] = known.try_emplace(
          sites.size() > 1 ? std::pair(identity_of(pieces), boxes) : decltype(known)::key_type(), groups.size());
      if (fresh) groups.push_back({std::move(pieces), {}});
      groups[at->second].sites.push_back(site);
    }
    return groups;
  }

  static std::vector<int64_t> identity_of(const std::vector<std::vector<Piece>>& operands) {
    std::vector<int64_t> key;
    for (const std::vector<Piece>& pieces : operands) {
      const auto identity = storage::identity_of(pieces);
      key.push_back(static_cast<int64_t>(identity.size()));
      key.insert(key.end(), identity.begin(), identity.end());
    }
    return key;
  }

  /// Memory that more than one group reads.
  static std::set<const void*> read_by_several(const std::vector<Group>& groups) {
    std::set<const void*> shared;
    if (groups.size() < 2) return shared;
    std::set<const void*> seen;
    for (const Group& group : groups) {
      std::set<const void*> read;
      for (const auto& pieces : group.pieces) {
        for (const Piece& piece : pieces) read.insert(piece.block.memory());
      }
      for (const void* memory : read) {
        if (!seen.insert(memory).second) shared.insert(memory);
      }
    }
    return shared;
  }

  /// The blocks of each result on the sites of a group.
  std::vector<Blocks> compute_group(const Step& step, const ComputeLocally& compute, Group& group,
                                    const std::set<const void*>& shared) {
    std::vector<Blocks> out(step.results.size());
    const int64_t site = group.sites.front();
    const Value& own = executable_.values()[step.results.front()];
    const auto& boxes = own.boxes.at(site);
    if (boxes.empty()) return out;
    at::TensorOptions options;
    for (const auto& pieces : group.pieces) {
      if (!pieces.empty()) options = pieces.front().block.options();
    }
    const std::vector<PinnedOperand> operands = pinned(step, group, shared);
    if (one_part(step, compute, site)) {
      std::vector<PartOperand> parts;
      for (const PinnedOperand& operand : operands) {
        parts.push_back({operand.pieces.front().array, operand.overwritable});
      }
      std::vector<at::Tensor> arrays = part_results(step, compute, site, parts);
      for (size_t i = 0; i < arrays.size(); ++i) out[i].push_back(store_.put(std::move(arrays[i])));
      return out;
    }
    const bool other_boxes = !compute.boxes.empty();
    std::vector<Piece> pieces;
    for (PinnedPiece& piece :
         compute.operation->run(operands, other_boxes ? compute.boxes.at(site) : boxes, context_)) {
      pieces.push_back({std::move(piece.box), store_.put(std::move(piece.array))});
    }
    if (!pieces.empty()) options = pieces.front().block.options();
    out.front() = storage::assemble(own.node->type().relation, boxes, pieces, options, store_);
    return out;
  }

  /// The operands, pinned; those may be overwritten that only this group reads, as one operand, for the last time, and
  /// nobody else sees.
  std::vector<PinnedOperand> pinned(const Step& step, Group& group, const std::set<const void*>& shared) {
    std::map<const void*, size_t> readers;  // how many operands have a piece in this memory
    for (const auto& pieces : group.pieces) {
      std::set<const void*> read;
      for (const Piece& piece : pieces) read.insert(piece.block.memory());
      for (const void* memory : read) ++readers[memory];
    }
    std::vector<Operand> operands;
    operands.reserve(step.operands.size());
    for (size_t i = 0; i < step.operands.size(); ++i) {
      auto& pieces = group.pieces[i];
      const bool overwritable =
          may_overwrite(step, i) && std::all_of(pieces.begin(), pieces.end(), [&](const Piece& piece) {
            const void* memory = piece.block.memory();
            return readers.at(memory) == 1 && !shared.contains(memory) && piece.block.exclusive();
          });
      const Value& value = executable_.values()[step.operands[i]];
      operands.push_back({value.node->type().relation, std::move(pieces), overwritable});
    }
    std::vector<PinnedOperand> out;
    out.reserve(operands.size());
    for (size_t i = 0; i < operands.size(); ++i) {
      out.emplace_back(std::move(operands[i]));
      if (!out.back().overwritable) continue;
      for (const PinnedPiece& piece : out.back().pieces) overwrites(step.operands[i], piece.array);
    }
    return out;
  }

  void free_after(const Task& task) {
    for (const size_t value : task.last_reads) {
      if (!executable_.values()[value].input) resident_.remove(*values_[value]);
      values_[value].reset();
    }
  }

  const Executable& executable_;
  const RunInputs& inputs_;
  communication::Transport& transport_;
  storage::BlockStore& store_;
  std::set<size_t>& overwritten_;
  std::unordered_set<std::string_view> shared_inputs_;
  std::vector<std::optional<StoredRelation>> values_;
  int64_t flops_ = 0;
  local::FoundWinners winners_;
  local::RunContext context_;
  storage::ResidentBytes resident_;
  storage::ReceivedBytes received_;                                                  ///< of the moves under way
  std::map<size_t, std::unique_ptr<communication::moves::MovesUnderway>> underway_;  ///< by group
  std::vector<const Task*> late_;  ///< kFinish of groups that had not arrived in time
};

void check_inputs(const Executable& executable, const RunInputs& inputs, const kernels::table::Scalars& scalars) {
  for (const Value& value : executable.values()) {
    if (!value.input) continue;
    const auto found = inputs.find(*value.input);
    JOINSUM_USER_CHECK(found != inputs.end(), "run: input is missing: input=", *value.input);
    const ia::PhysicalType& given = *found->second->type;
    JOINSUM_USER_CHECK(&given == value.type.get() || given == *value.type,
                       "run: input has another type: input=", *value.input, ", given=", given.text(),
                       ", wanted=", value.type->text());
  }
  for (const auto& output : executable.plan().outputs()) {
    JOINSUM_USER_CHECK(!output.node->type().placement.pending(),
                       "run: output is pending; broadcast or shuffle it first: output=", output.name,
                       ", type=", output.node->type().text());
  }
  for (const auto& [name, operation] : executable.scalars()) {
    JOINSUM_USER_CHECK(scalars.contains(name), "run: scalar is not bound: scalar=", name, ", operator=", operation);
  }
}

/// All sites must have the same plan with its input types, and the same scalars.
void agree(communication::Transport& transport, const Executable& executable, const kernels::table::Scalars& scalars) {
  std::ostringstream out;
  out.precision(17);
  for (const auto& [name, value] : scalars) out << "scalar " << name << " = " << value << "\n";
  const std::string bound = out.str();
  transport.agree_on("run", hash_mix(executable.hash(), hash_text(bound)),
                     [&] { return executable.common_text() + bound; });
}

/// Whether all sites are in this process, so that there is nobody to agree with.
bool single_process(const communication::Transport& transport) {
  return static_cast<int64_t>(transport.local_sites().size()) == transport.sites();
}

}  // namespace

std::vector<NodeTrace> RunTrace::entries() const {
  std::vector<NodeTrace> out;
  for (const Step& step : executable_->steps()) {
    const std::string& name = executable_->values()[step.results.front()].name;
    out.push_back({counts_[out.size()], name, step.operation});
  }
  return out;
}

Executor::Executor(std::shared_ptr<communication::Transport> transport, std::shared_ptr<storage::BlockStore> store,
                   int64_t most_joined_bytes)
    : transport_(std::move(transport)), store_(std::move(store)), most_joined_bytes_(most_joined_bytes) {}

std::set<std::string> Executor::overwritten() const {
  std::set<std::string> names;
  for (const size_t value : overwritten_) names.insert(*last_->values()[value].input);
  return names;
}

RunResult Executor::run(const ia::Plan& plan, const RunInputs& inputs, const kernels::table::Scalars& scalars) {
  overwritten_.clear();
  const auto to_run = last_ = executable(plan);
  if (!single_process(*transport_)) agree(*transport_, *to_run, scalars);
  std::optional<Run> current;
  try {
    check_inputs(*to_run, inputs, scalars);
    // Nothing here is differentiated: operators skip autograd, and who overwrites an array counts its version.
    const at::AutoDispatchBelowADInplaceOrView no_autograd;
    const c10::NoGradGuard no_grad;
    const storage::TorchAllocations allocations(store_->arena());
    std::vector<NodeCounts> counts(to_run->steps().size());
    auto outputs = current.emplace(*to_run, inputs, scalars, *transport_, *store_, overwritten_).run(counts);
    return {std::move(outputs), {to_run, std::move(counts)}};
  } catch (const TransportError&) {
    throw;
  } catch (const std::exception& e) {
    transport_->report_failure(e);
    if (current) current->settle();
    throw;
  }
}

std::shared_ptr<const Executable> Executor::executable(const ia::Plan& plan) {
  JOINSUM_USER_CHECK(plan.grid().sites() == transport_->sites(),
                     "run: plan is made for another number of sites: plan=", plan.grid().sites(),
                     ", sites=", transport_->sites());
  auto found = std::find_if(cached_.begin(), cached_.end(), [&](const auto& each) { return each->is_of(plan); });
  if (found == cached_.end()) {
    if (cached_.size() == kCachedPlans) cached_.pop_back();
    found = cached_.insert(cached_.end(),
                           std::make_shared<const Executable>(plan, transport_->local_sites(), most_joined_bytes_,
                                                              seconds_of_ ? seconds_of_(plan) : nullptr));
  }
  std::rotate(cached_.begin(), found, found + 1);
  return cached_.front();
}

}  // namespace joinsum::runtime::execution
