#include "optimizer/cost/peak.h"

#include <algorithm>

#include "ia/fusion.h"
#include "ia/text.h"
#include "kernels/table.h"

namespace joinsum::optimizer {
namespace {

using ia::Node;
using ia::NodePtr;

bool elementwise(const Node& node) {
  const auto* join = node.as<ia::LocalJoin>();
  const auto* map = node.as<ia::LocalMap>();
  const kernels::Kernel* kernel = join != nullptr ? &join->kernel : map != nullptr ? &map->array_map : nullptr;
  return kernel != nullptr && kernel->then.empty() && kernels::row_of(*kernel).form == kernels::Form::kElementwise;
}

/// Keeps account of each site's bytes while the plan's nodes run one after another.
class Simulation {
 public:
  Simulation(const ia::Plan& plan, const ReceivedBytes& received, std::optional<int64_t> limit)
      : plan_(plan),
        received_(received),
        limit_(limit),
        formation_(plan),
        uses_(formation_.uses()),
        live_(plan.grid().sites()) {
    for (const auto& output : plan.outputs()) {
      if (output.tied_input) ties_.emplace(output.node.get(), *output.tied_input);
    }
  }

  const Peak& peak() const { return peak_; }

  PeakBytes run() {
    for (const NodePtr& input : plan_.inputs()) keep(*input);
    const int64_t inputs = *std::max_element(live_.begin(), live_.end());
    for (const NodePtr& input : plan_.inputs()) peaks_[input.get()] = inputs;
    for (const NodePtr& node : plan_.order()) {
      if (node->inputs().empty() || !formation_.formed(*node)) continue;
      const auto read = formation_.operands(*node);
      for (const Node* operand : read) --uses_.at(operand);
      keep(*node);
      for (const Node* operand : std::unordered_set<const Node*>(read.begin(), read.end())) release(*operand);
    }
    return std::move(peaks_);
  }

 private:
  bool overwrites_its_input(const Node& node) const {
    const auto [first, last] = ties_.equal_range(&node);
    return elementwise(node) && std::any_of(first, last, [&](const auto& tie) {
             return std::any_of(node.inputs().begin(), node.inputs().end(), [&](const NodePtr& input) {
               const auto* op = input->as<ia::Input>();
               return op != nullptr && op->name == tie.second && uses_.at(input.get()) == 0;
             });
           });
  }

  void keep(const Node& node) {
    const bool in_place = overwrites_its_input(node);
    if (!in_place) kept_.push_back(&node);
    const auto messages = received_.find(&node);
    int64_t most = 0;
    int64_t site_of_most = 0;
    for (int64_t site = 0; site < static_cast<int64_t>(live_.size()); ++site) {
      if (!in_place) live_[site] += node.type().bytes(site);
      const int64_t needed = live_[site] + (messages != received_.end() ? messages->second[site] : 0);
      if (needed > most) site_of_most = site;
      most = std::max(most, needed);
    }
    check(node, site_of_most, most);
    peaks_[&node] = most;
    if (most > peak_.bytes) remember(site_of_most, most);
  }

  void remember(int64_t site, int64_t bytes) {
    peak_ = {bytes, site, {}};
    for (const Node* node : kept_) peak_.kept.emplace_back(node, node->type().bytes(site));
  }

  void check(const Node& node, int64_t site, int64_t needed) const {
    JOINSUM_USER_CHECK(!limit_ || needed <= *limit_,
                       "cost: a site needs more memory than it has: node=", ia::node_names(plan_).at(&node),
                       ", site=", site, ", needs=", needed, ", limit=", *limit_, ", short by=", needed - *limit_);
  }

  /// Frees a result after its last use; inputs stay.
  void release(const Node& node) {
    if (uses_.at(&node) > 0 || node.inputs().empty()) return;
    std::erase(kept_, &node);
    for (int64_t site = 0; site < static_cast<int64_t>(live_.size()); ++site) live_[site] -= node.type().bytes(site);
  }

  const ia::Plan& plan_;
  const ReceivedBytes& received_;
  std::optional<int64_t> limit_;
  ia::Formation formation_;
  std::unordered_map<const Node*, int64_t> uses_;
  std::unordered_multimap<const Node*, std::string> ties_;
  std::vector<int64_t> live_;
  std::vector<const Node*> kept_;
  PeakBytes peaks_;
  Peak peak_;
};

}  // namespace

PeakBytes peak_bytes(const ia::Plan& plan, const ReceivedBytes& received, std::optional<int64_t> limit) {
  return Simulation(plan, received, limit).run();
}

Peak peak_of(const ia::Plan& plan, const ReceivedBytes& received) {
  Simulation simulation(plan, received, std::nullopt);
  simulation.run();
  return simulation.peak();
}

}  // namespace joinsum::optimizer
