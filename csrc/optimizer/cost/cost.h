#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "ia/analysis/materialization.h"
#include "ia/analysis/schedule.h"
#include "ia/nodes.h"
#include "optimizer/cost/peak.h"
#include "optimizer/cost/profile.h"

namespace joinsum::optimizer::cost {

/// The machine whose `seconds` are predicted. The flat rates serve for what the profile lacks, or for everything if
/// there is no profile.
struct Cluster {
  std::string name = "10 Gbit between sites, one device each";
  double flops_per_second = 1e11;       ///< of one site
  double bytes_per_second = 1.25e9;     ///< of one site's link, each direction
  double latency_seconds = 5e-5;        ///< of one exchange stage
  std::optional<int64_t> memory_bytes;  ///< limit per site
  std::shared_ptr<const Profile> profile = nullptr;
  bool operator==(const Cluster&) const = default;
};

/// The figures of a cost; they are never mixed.
struct Figures {
  double paper_floats = 0;  ///< broadcast of f floats over axes of size p: f·p; shuffle: f; f by the frontier
  int64_t wire_bytes = 0;   ///< payload between different sites, exact
  double seconds = 0;

  Figures& operator+=(const Figures& other) {
    paper_floats += other.paper_floats;
    wire_bytes += other.wire_bytes;
    seconds += other.seconds;
    return *this;
  }
};

/// Cost of one node.
struct NodeCost : Figures {
  std::string node;
  std::string operation;
  int64_t flops = 0;           ///< of the site that does most
  int64_t peak_bytes = 0;      ///< of the site that holds most while it runs; 0 of a fused join
  double latency_seconds = 0;  ///< of a move, in `seconds`: of one stage of messages, whatever they carry
  double link_seconds = 0;     ///< of a move, in `seconds`: those of its messages
};

/// Cost of a plan: seconds are the sum of its nodes' but for the hidden ones.
struct PlanCost : Figures {
  std::vector<NodeCost> nodes;  ///< in the plan's order
  int64_t flops = 0;            ///< sum over nodes of the busiest site's
  double run_seconds = 0;       ///< of the agreement that opens a run; in `seconds`
  double hidden_seconds = 0;    ///< of messages that travel while sites compute, or together, under a profile
  Peak peak;                    ///< inputs, live blocks and messages
};

/// The role of a node in what the executor computes as one.
enum class Fusion {
  kNone,
  kJoin,  ///< is a join that runs with its sum: under a profile it takes no time of its own
  kSum,   ///< is a sum that runs with its join: under a profile its time includes the join's
  kCall,  ///< is a further result of a call, computed by the run of the first one: it takes no time
};

/// The roles of the nodes of a plan.
class Fusions {
 public:
  explicit Fusions(const ia::Plan& plan)
      : joins_(ia::analysis::fused_joins(plan)), further_(ia::analysis::further_results(plan)) {}
  Fusion of(const ia::Node& node) const;

 private:
  std::unordered_set<const ia::Node*> joins_;
  std::unordered_map<const ia::Node*, const ia::Node*> further_;
};

/// Prices one node by itself. Adds the bytes that each site receives in a move to `received`, if that is not null.
NodeCost node_cost(const ia::Node& node, Fusion fusion, const Cluster& cluster, ReceivedBytes* received = nullptr);

/// What nodes of the plan take on a site and on its link, for the plan's schedule. Empty without a profile.
ia::analysis::SecondsOf schedule_seconds(const ia::Plan& plan, const Cluster& cluster);

/// The sum of the costs of a plan's nodes.
NodeCost total_cost(const ia::Plan& plan, const Cluster& cluster);

/// Floats that the paper's rule charges for the messages of a move to `target`: a broadcast over axes of p sites f·p, a
/// shuffle f for each site that the target replicates it on; f by the frontier, whatever is there already. Source: TRA
/// paper, section 5.3.
double paper_floats(const ia::Node& node);

/// Prices a plan. Raises PlanError when a site would need more than `cluster.memory_bytes`, naming the node and the
/// shortfall. Sources: TRA paper, section 5.3 (`paper_floats`); docs/algebra.md for the other two.
PlanCost plan_cost(const ia::Plan& plan, const Cluster& cluster = {});

/// The same whatever memory the plan takes, and quickly on many sites: there moves are priced in closed form, which is
/// exact in bytes, takes the busiest receiver for the busiest link, and counts neither reductions nor received bytes.
PlanCost estimated_cost(const ia::Plan& plan, const Cluster& cluster);

}  // namespace joinsum::optimizer::cost
