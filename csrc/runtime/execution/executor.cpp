#include "runtime/execution/executor.h"

#include <algorithm>
#include <chrono>
#include <sstream>

#include <c10/core/GradMode.h>

#include "kernels/dense/dense.h"
#include "runtime/storage/resident_bytes.h"

namespace joinsum::runtime::execution {

using local::Operand;
using local::PinnedOperand;
using local::PinnedPiece;
using storage::Block;
using storage::Piece;
using storage::Pin;
using storage::StoredRelation;

namespace {

constexpr size_t kCachedPlans = 64;

/// One run of one executable.
class Run {
 public:
  Run(const Executable& executable, const std::map<std::string, StoredRelation>& inputs,
      const kernels::table::Scalars& scalars, communication::Transport& transport, storage::BlockStore& store,
      std::set<std::string>& overwritten)
      : executable_(executable),
        inputs_(inputs),
        transport_(transport),
        store_(store),
        overwritten_(overwritten),
        values_(executable.values().size()),
        context_{scalars, store, flops_} {
    find_shared_inputs();
  }

  RunResult run() {
    RunResult result;
    result.trace.reserve(executable_.steps().size());
    for (const auto& [name, relation] : inputs_) resident_.add(relation);
    for (const Step& step : executable_.steps()) {
      result.trace.push_back(traced(step));
      free_after(step);
      transport_.progress();
    }
    for (const Result& output : executable_.results()) {
      const StoredRelation& value = *values_[output.value];
      result.outputs.emplace(output.name, output.own_blocks ? storage::with_own_blocks(value, store_) : value);
    }
    return result;
  }

 private:
  /// Inputs that share memory with another one are never overwritten.
  void find_shared_inputs() {
    std::map<const void*, std::string> owner;
    for (const auto& [name, relation] : inputs_) {
      for (const auto& [site, blocks] : relation.sites) {
        for (const Block& block : blocks) {
          const auto [at, fresh] = owner.emplace(block.memory(), name);
          if (at->second == name) continue;
          shared_inputs_.insert(name);
          shared_inputs_.insert(at->second);
        }
      }
    }
  }

  NodeTrace traced(const Step& step) {
    const Value& own = executable_.values()[step.results.front()];
    NodeTrace trace{own.name, step.operation};
    const communication::Counters before = transport_.counters();
    const int64_t calls = kernels::dense::kernel_calls();
    store_.reset_peak();
    flops_ = 0;
    const auto start = std::chrono::steady_clock::now();
    perform(step);
    trace.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    trace.bytes_sent = transport_.counters().sent - before.sent;
    trace.bytes_received = transport_.counters().received - before.received;
    trace.kernel_calls = kernels::dense::kernel_calls() - calls;
    trace.flops = flops_;
    trace.peak_bytes = store_.peak_bytes();
    trace.pooled_bytes = store_.pooled_bytes();
    if (!own.input) resident_.add(*values_[step.results.front()]);
    const auto* move = std::get_if<std::unique_ptr<const communication::PreparedMove>>(&step.action);
    trace.site_bytes = resident_.of_busiest_site(move != nullptr ? (*move)->received : storage::ReceivedBytes());
    return trace;
  }

  void perform(const Step& step) {
    if (const auto* input = std::get_if<ReadInput>(&step.action)) {
      values_[step.results.front()] = inputs_.at(input->name);
    } else if (const auto* move = std::get_if<std::unique_ptr<const communication::PreparedMove>>(&step.action)) {
      const communication::Reducer reducer = [&](const std::string& kernel, const std::vector<Block>& terms) {
        return reduced(kernel, terms);
      };
      const auto underway = communication::start(**move, *values_[step.operands.front()], transport_, store_, reducer);
      values_[step.results.front()] = underway->wait();
    } else if (const auto* compute = std::get_if<ComputeLocally>(&step.action)) {
      compute_locally(step, *compute);
    }
  }

  Block reduced(const std::string& kernel, const std::vector<Block>& terms) {
    if (terms.size() == 1) return terms.front();
    std::vector<Pin> pins;
    for (const Block& term : terms) pins.emplace_back(term);
    at::Tensor sum = pins.front().array();
    for (size_t i = 1; i < pins.size(); ++i) {
      const at::Tensor term = pins[i].array().reshape(sum.sizes());
      const at::Tensor into = i > 1 ? sum : store_.allocate(sum.sizes(), sum.options());
      sum = kernels::dense::run({kernel, {}}, {sum, term}, {}, 0, 0, into);
    }
    return store_.put(std::move(sum));
  }

  /// Sites whose operands are the same blocks share one computation.
  struct Group {
    std::vector<std::vector<Piece>> pieces;  ///< of each operand
    std::vector<int64_t> sites;
  };

  void compute_locally(const Step& step, const ComputeLocally& compute) {
    std::map<std::vector<int64_t>, Group> groups = groups_of(step);
    std::map<const void*, int64_t> readers;
    for (const auto& [key, group] : groups) {
      std::set<const void*> read;
      for (const auto& pieces : group.pieces) {
        for (const Piece& piece : pieces) read.insert(piece.block.memory());
      }
      for (const void* memory : read) ++readers[memory];
    }
    for (const size_t result : step.results) {
      values_[result] = StoredRelation{executable_.values()[result].node->type(), {}};
    }
    for (auto& [key, group] : groups) {
      const auto blocks = compute_group(step, compute, group, readers);
      for (size_t i = 0; i < step.results.size(); ++i) {
        for (const int64_t site : group.sites) values_[step.results[i]]->sites[site] = blocks[i];
      }
    }
  }

  std::map<std::vector<int64_t>, Group> groups_of(const Step& step) const {
    std::map<std::vector<int64_t>, Group> groups;
    for (const int64_t site : transport_.local_sites()) {
      std::vector<int64_t> key;
      std::vector<std::vector<Piece>> pieces;
      for (const size_t operand : step.operands) {
        pieces.push_back(
            storage::pieces_of(executable_.values()[operand].boxes.at(site), values_[operand]->sites.at(site)));
        const auto identity = storage::identity_of(pieces.back());
        key.push_back(static_cast<int64_t>(identity.size()));
        key.insert(key.end(), identity.begin(), identity.end());
      }
      Group& group = groups[key];
      if (group.sites.empty()) group.pieces = std::move(pieces);
      group.sites.push_back(site);
    }
    return groups;
  }

  /// The blocks of each result on the sites of a group.
  std::vector<std::vector<Block>> compute_group(const Step& step, const ComputeLocally& compute, Group& group,
                                                const std::map<const void*, int64_t>& readers) {
    std::vector<std::vector<Block>> out(step.results.size());
    const int64_t site = group.sites.front();
    const Value& own = executable_.values()[step.results.front()];
    const auto& boxes = own.boxes.at(site);
    if (boxes.empty()) return out;
    at::TensorOptions options;
    for (const auto& pieces : group.pieces) {
      if (!pieces.empty()) options = pieces.front().block.options();
    }
    const std::vector<PinnedOperand> operands = pinned(step, group, readers);
    if (compute.call != nullptr) {
      auto arrays = compute.call->run(operands, context_);
      for (size_t i = 0; i < step.results.size(); ++i) {
        const ia::Node& node = *executable_.values()[step.results[i]].node;
        out[i] = {store_.put(arrays[node.as<ia::LocalCall>()->call.output])};
      }
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

  /// The operands, pinned; those may be overwritten that only this group reads, for the last time, and nobody else
  /// sees.
  std::vector<PinnedOperand> pinned(const Step& step, Group& group, const std::map<const void*, int64_t>& readers) {
    std::vector<Operand> operands;
    for (size_t i = 0; i < step.operands.size(); ++i) {
      const Value& value = executable_.values()[step.operands[i]];
      auto& pieces = group.pieces[i];
      const bool overwritable = step.overwritable[i] && !(value.input && shared_inputs_.contains(*value.input)) &&
                                std::all_of(pieces.begin(), pieces.end(), [&](const Piece& piece) {
                                  return readers.at(piece.block.memory()) == 1 && piece.block.exclusive();
                                });
      if (value.input && overwritable) overwritten_.insert(*value.input);
      operands.push_back({value.node->type().relation, std::move(pieces), overwritable});
    }
    std::vector<PinnedOperand> out;
    out.reserve(operands.size());
    for (const Operand& operand : operands) out.emplace_back(operand);
    return out;
  }

  void free_after(const Step& step) {
    for (const size_t value : step.last_reads) {
      if (!executable_.values()[value].input) resident_.remove(*values_[value]);
      values_[value].reset();
    }
  }

  const Executable& executable_;
  const std::map<std::string, StoredRelation>& inputs_;
  communication::Transport& transport_;
  storage::BlockStore& store_;
  std::set<std::string>& overwritten_;
  std::set<std::string> shared_inputs_;
  std::vector<std::optional<StoredRelation>> values_;
  int64_t flops_ = 0;
  local::RunContext context_;
  storage::ResidentBytes resident_;
};

void check_inputs(const Executable& executable, const std::map<std::string, StoredRelation>& inputs,
                  const kernels::table::Scalars& scalars) {
  for (const Value& value : executable.values()) {
    if (!value.input) continue;
    const auto found = inputs.find(*value.input);
    JOINSUM_USER_CHECK(found != inputs.end(), "run: input is missing: input=", *value.input);
    JOINSUM_USER_CHECK(found->second.type == value.node->type(), "run: input has another type: input=", *value.input,
                       ", given=", found->second.type.text(), ", wanted=", value.node->type().text());
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

/// What all sites must agree on: the plan with its input types, and the scalars.
std::string program_text(const Executable& executable, const kernels::table::Scalars& scalars) {
  std::ostringstream out;
  out.precision(17);
  out << executable.plan_text();
  for (const auto& [name, value] : scalars) out << "scalar " << name << " = " << value << "\n";
  return out.str();
}

/// Whether all sites are in this process, so that there is nobody to agree with.
bool single_process(const communication::Transport& transport) {
  return static_cast<int64_t>(transport.local_sites().size()) == transport.sites();
}

}  // namespace

Executor::Executor(std::shared_ptr<communication::Transport> transport, std::shared_ptr<storage::BlockStore> store,
                   int64_t most_joined_bytes)
    : transport_(std::move(transport)), store_(std::move(store)), most_joined_bytes_(most_joined_bytes) {}

RunResult Executor::run(const ia::Plan& plan, const std::map<std::string, StoredRelation>& inputs,
                        const kernels::table::Scalars& scalars) {
  overwritten_.clear();
  const auto to_run = executable(plan);
  if (!single_process(*transport_)) transport_->agree("run", program_text(*to_run, scalars));
  try {
    check_inputs(*to_run, inputs, scalars);
    const c10::NoGradGuard no_grad;
    return Run(*to_run, inputs, scalars, *transport_, *store_, overwritten_).run();
  } catch (const TransportError&) {
    throw;
  } catch (const std::exception& e) {
    transport_->report_failure(e);
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
                           std::make_shared<const Executable>(plan, transport_->local_sites(), most_joined_bytes_));
  }
  std::rotate(cached_.begin(), found, found + 1);
  return cached_.front();
}

}  // namespace joinsum::runtime::execution
