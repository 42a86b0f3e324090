#include "optimizer/cost/peak.h"

#include <algorithm>

#include "ia/analysis/materialization.h"
#include "ia/analysis/schedule.h"
#include "ia/text.h"
#include "kernels/table/table.h"

namespace joinsum::optimizer::cost {
namespace {

using ia::Node;
using ia::NodePtr;

bool elementwise(const Node& node) {
  const auto* join = node.as<ia::LocalJoin>();
  const auto* map = node.as<ia::LocalMap>();
  const kernels::table::Kernel* kernel = join != nullptr ? &join->kernel : map != nullptr ? &map->array_map : nullptr;
  return kernel != nullptr && kernel->epilogue.empty() &&
         kernels::table::row_of(*kernel).form == kernels::table::Form::kElementwise;
}

/// Adds up each site's bytes while the plan's schedule runs.
class Simulation {
 public:
  Simulation(const ia::Plan& plan, const ia::analysis::Materialization& materialization,
             const ia::analysis::Schedule& schedule, const ReceivedBytes& received, std::optional<int64_t> limit)
      : plan_(plan),
        received_(received),
        limit_(limit),
        materialization_(materialization),
        uses_(materialization_.uses()),
        schedule_(schedule),
        live_(plan.grid().sites()),
        arriving_(plan.grid().sites()) {
    for (const auto& output : plan.outputs()) {
      if (output.tied_input) ties_.emplace(output.node.get(), *output.tied_input);
    }
  }

  Peak run() {
    for (const NodePtr& input : plan_.inputs()) hold(*input);
    const int64_t inputs = *std::max_element(live_.begin(), live_.end());
    for (const NodePtr& input : plan_.inputs()) peak_.by_node[input.get()] = inputs;
    for (const ia::analysis::Task& task : schedule_.tasks()) {
      if (task.kind == Kind::kCompute) {
        if (!task.node->inputs().empty()) run(*task.node, materialization_.operands(*task.node));
      } else if (task.kind == Kind::kStart) {
        for (const Node* move : schedule_.groups()[task.group]) add_messages(*move, 1);
      } else if (task.kind == Kind::kFinish) {
        finish(schedule_.groups()[task.group]);
      }
    }
    return std::move(peak_);
  }

 private:
  using Kind = ia::analysis::Task::Kind;

  /// A call's results are there with the first one.
  void run(const Node& node, const std::vector<const Node*>& read) {
    if (materialization_.further_result(node)) return;
    for (const Node* operand : read) --uses_.at(operand);
    hold(node);
    for (const Node* further : materialization_.results_beside(node)) hold(*further);
    for (const Node* operand : std::unordered_set<const Node*>(read.begin(), read.end())) release(*operand);
  }

  void finish(const ia::analysis::MoveGroup& moves) {
    std::unordered_set<const Node*> read;
    for (const Node* move : moves) {
      --uses_.at(move->input(0).get());
      read.insert(move->input(0).get());
      hold(*move);
    }
    for (const Node* move : moves) add_messages(*move, -1);
    for (const Node* operand : read) release(*operand);
  }

  /// The messages that a move brings take memory until it is finished.
  void add_messages(const Node& move, int64_t times) {
    const auto messages = received_.find(&move);
    if (messages == received_.end()) return;
    for (size_t site = 0; site < arriving_.size(); ++site) arriving_[site] += times * messages->second[site];
  }

  bool overwrites_its_input(const Node& node) const {
    const auto [first, last] = ties_.equal_range(&node);
    const auto* call = node.as<ia::LocalCall>();
    const bool of_rows = call != nullptr && kernels::call::changes_rows(call->call);
    const bool in_place = elementwise(node) || of_rows || materialization_.added_by(node) != nullptr;
    return in_place && std::any_of(first, last, [&](const auto& tie) {
             return std::any_of(node.inputs().begin(), node.inputs().end(), [&](const NodePtr& input) {
               const auto* op = input->as<ia::Input>();
               return op != nullptr && op->name == tie.second && uses_.at(input.get()) == 0;
             });
           });
  }

  void hold(const Node& node) {
    const bool in_place = overwrites_its_input(node);
    if (!in_place) held_.push_back(&node);
    int64_t most = 0;
    int64_t site_of_most = 0;
    for (int64_t site = 0; site < static_cast<int64_t>(live_.size()); ++site) {
      if (!in_place) live_[site] += node.type().bytes(site);
      const int64_t needed = live_[site] + arriving_[site];
      if (needed > most) site_of_most = site;
      most = std::max(most, needed);
    }
    check(node, site_of_most, most);
    peak_.by_node[&node] = most;
    if (most > peak_.bytes) remember(site_of_most, most);
  }

  void remember(int64_t site, int64_t bytes) {
    peak_.bytes = bytes;
    peak_.site = site;
    peak_.held.clear();
    for (const Node* node : held_) peak_.held.emplace_back(node, node->type().bytes(site));
  }

  void check(const Node& node, int64_t site, int64_t needed) const {
    JOINSUM_USER_CHECK(!limit_ || needed <= *limit_,
                       "cost: a site needs more memory than it has: node=", ia::node_names(plan_).at(&node),
                       ", site=", site, ", needs=", needed, ", limit=", *limit_, ", short by=", needed - *limit_);
  }

  /// Frees a result after its last use; inputs stay.
  void release(const Node& node) {
    if (uses_.at(&node) > 0 || node.inputs().empty()) return;
    std::erase(held_, &node);
    for (int64_t site = 0; site < static_cast<int64_t>(live_.size()); ++site) live_[site] -= node.type().bytes(site);
  }

  const ia::Plan& plan_;
  const ReceivedBytes& received_;
  std::optional<int64_t> limit_;
  const ia::analysis::Materialization& materialization_;
  std::unordered_map<const Node*, int64_t> uses_;
  std::unordered_multimap<const Node*, std::string> ties_;
  const ia::analysis::Schedule& schedule_;
  std::vector<int64_t> live_;
  std::vector<int64_t> arriving_;  ///< in the messages of moves under way
  std::vector<const Node*> held_;
  Peak peak_;
};

}  // namespace

Peak peak_of(const ia::Plan& plan, const ia::analysis::Materialization& materialization,
             const ia::analysis::Schedule& schedule, const ReceivedBytes& received, std::optional<int64_t> limit) {
  return Simulation(plan, materialization, schedule, received, limit).run();
}

}  // namespace joinsum::optimizer::cost
