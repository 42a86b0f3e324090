#include "optimizer/optimizer.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>

#include "ia/nodes.h"
#include "ia/text.h"
#include "optimizer/division/divisions.h"
#include "optimizer/verification/verify.h"
#include "tra/lower.h"
#include "tra/text.h"

namespace joinsum::optimizer {
namespace {

using min_sum::Clock;

/// Labels beyond which pairs of them are no longer tried.
constexpr int64_t kMostLabelsInPairs = 8;
/// Candidates that the rewriting phase starts from.
constexpr size_t kRewritten = 3;
/// Plans that a beam search considers around the translation operator by operator.
constexpr int64_t kPlansAround = 100;
constexpr const char* kTranslated = "operator by operator";
/// Nodes of a plan beyond which rules are not searched: a step rebuilds the plan for each match.
constexpr size_t kMostNodesRewritten = 300;
/// Nodes beyond which eliminations are to be quick.
constexpr size_t kManyNodes = 100;

class Optimizer {
 public:
  Optimizer(const tra::Plan& plan, const ia::Grid& grid, const model::InputPlacements& inputs,
            const OptimizeOptions& options)
      : plan_(plan),
        grid_(grid),
        inputs_(inputs),
        options_(options),
        pricer_(options.minimize, options.cluster),
        deadline_(min_sum::deadline_after(options.seconds)) {
    for (const std::string& name : options.without) {
      const auto& phases = phase_names();
      if (std::find(phases.begin(), phases.end(), name) == phases.end()) rules::rule_named(name);
    }
    for (const auto& [node, name] : tra::node_names(plan)) by_name_.emplace(name, node);
    set_pins();
    for (const PartialPlan& start : options.warm_starts) add_warm_start(start);
  }

  /// The table of contents.
  Optimized run() {
    // The translation of a long plan is a last resort: pricing it takes long, and it moves the most.
    const bool first = left_out("placement") || plan_.order().size() <= kMostNodesRewritten;
    if (first) phase("lower", [&] { lower(); });
    phase("placement", [&] { choose_placements(); });
    if (!first && !found()) phase("lower", [&] { lower(); });
    phase("products", [&] { try_products(); });
    phase("rewrite", [&] { rewrite(); });
    JOINSUM_USER_CHECK(!out_.candidates.empty() || pins_.empty() || left_out("placement"),
                       "optimize: no plan places every pinned value as its pin says: pins=", options_.pins.size());
    JOINSUM_USER_CHECK(!out_.candidates.empty(),
                       "optimize: every phase that creates plans is left out: without=", options_.without);
    if (!found()) raise_short_of_memory();
    std::erase_if(out_.candidates, [](const Candidate& candidate) { return !std::isfinite(candidate.score.value); });
    for (Candidate& candidate : out_.candidates) {
      if (candidate.score.undivided > 0) candidate.name += " (repeats work)";
    }
    return std::move(out_);
  }

 private:
  /// Whether some plan fits; the best one is the first.
  bool found() const { return !out_.candidates.empty() && std::isfinite(out_.candidates.front().score.value); }

  /// Raises PlanError that names the plan with the lowest peak.
  [[noreturn]] void raise_short_of_memory() const {
    const ia::Plan* nearest = nullptr;
    cost::Peak least;
    for (const Candidate& candidate : out_.candidates) {
      cost::Peak peak = cost::estimated_cost(candidate.plan, options_.cluster).peak;
      if (nearest != nullptr && peak.bytes >= least.bytes) continue;
      nearest = &candidate.plan;
      least = std::move(peak);
    }
    const auto largest = std::max_element(least.held.begin(), least.held.end(),
                                          [](const auto& a, const auto& b) { return a.second < b.second; });
    const int64_t limit = options_.cluster.memory_bytes.value_or(0);
    std::ostringstream tensor;
    if (largest != least.held.end()) {
      tensor << ", largest tensor=" << ia::node_names(*nearest).at(largest->first) << " (" << largest->second << " B)";
    }
    throw PlanError(
        concatenate("optimize: no plan that was found fits a site's memory; use more sites, or smaller parts: ",
                    "short by=", least.bytes - limit, " B, needs=", least.bytes, " B, memory_bytes=", limit,
                    tensor.str(), ", plans=", out_.candidates.size()));
  }

  bool late() {
    if (min_sum::expired(deadline_)) out_.out_of_time = true;
    return out_.out_of_time;
  }
  bool left_out(const std::string& name) const {
    return std::find(options_.without.begin(), options_.without.end(), name) != options_.without.end();
  }

  template <class Body>
  void phase(const std::string& name, const Body& body) {
    if (left_out(name) || (pins_inside_ && name != "placement") || (!out_.candidates.empty() && late())) return;
    const auto start = Clock::now();
    plans_ = 0;
    body();
    std::stable_sort(out_.candidates.begin(), out_.candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.score < b.score; });
    const double best = out_.candidates.empty() ? 0 : out_.candidates.front().score.value;
    out_.phases.push_back({name, std::chrono::duration<double>(Clock::now() - start).count(), plans_, best});
  }

  // --- pins ----------------------------------------------------------------------------------------------------------

  void set_pins() {
    for (const auto& [name, placement] : options_.pins) {
      const auto is_output = [&](const auto& output) { return output.name == name; };
      const auto output = std::find_if(plan_.outputs().begin(), plan_.outputs().end(), is_output);
      const auto node = by_name_.find(name);
      JOINSUM_USER_CHECK(output != plan_.outputs().end() || node != by_name_.end(),
                         "optimize: no such value to pin; the plan's text names them: pin=", name);
      const tra::Node* value = output != plan_.outputs().end() ? output->node.get() : node->second;
      JOINSUM_USER_CHECK(value->as<tra::Input>() == nullptr || output != plan_.outputs().end(),
                         "optimize: an input is placed by where it starts, not by a pin: pin=", name);
      pin(name, *value, placement);
    }
  }

  void pin(const std::string& name, const tra::Node& value, const ia::Placement& placement) {
    JOINSUM_USER_CHECK(!placement.pending() && placement.grid() != nullptr,
                       "optimize: a pin is a grid placement that is not pending: pin=", name,
                       ", placement=", placement.text(value.type().frontier));
    const auto [at, fresh] = pins_.emplace(&value, placement);
    JOINSUM_USER_CHECK(fresh || at->second == placement, "optimize: pins of one value differ: pin=", name,
                       ", placement=", placement.text(value.type().frontier),
                       ", other=", at->second.text(value.type().frontier));
    bool ends_here = false;
    for (const auto& output : plan_.outputs()) {
      if (output.node.get() != &value) continue;
      ends_here = true;
      if (!output.tied_input) continue;
      const auto [start, free] = inputs_.emplace(*output.tied_input, placement);
      JOINSUM_USER_CHECK(free || start->second == placement,
                         "optimize: a tied output ends where its input starts; give both the same placement: pin=",
                         name, ", placement=", placement.text(value.type().frontier), ", input=", *output.tied_input,
                         ", start=", start->second.text(value.type().frontier));
    }
    pins_inside_ = pins_inside_ || !ends_here || is_read(value);
  }

  void add_warm_start(const PartialPlan& start) {
    model::PartialPlacement& out =
        warm_starts_.emplace_back(model::PartialPlacement{start.inputs, {}, start.everywhere});
    for (const auto& [name, placement] : start.values) {
      const auto node = by_name_.find(name);
      JOINSUM_USER_CHECK(node != by_name_.end(),
                         "optimize: no such value in a warm start; the plan's text names them: value=", name);
      if (node->second->as<tra::Input>() != nullptr) {
        out.inputs.try_emplace(name, placement);  // an operator that changes nothing
      } else if (!pins_.contains(node->second)) {
        out.pins.emplace(node->second, placement);
      }
    }
  }

  bool is_read(const tra::Node& value) const {
    return std::any_of(plan_.order().begin(), plan_.order().end(), [&](const tra::NodePtr& node) {
      return std::any_of(node->inputs().begin(), node->inputs().end(),
                         [&](const tra::NodePtr& input) { return input.get() == &value; });
    });
  }

  /// The same plan with pinned outputs moved to their placements.
  ia::Plan ending_at_pins(const ia::Plan& physical) const {
    std::vector<ia::Plan::Output> outputs = physical.outputs();
    for (size_t i = 0; i < outputs.size(); ++i) {
      const auto pin = pins_.find(plan_.outputs()[i].node.get());
      if (pin != pins_.end()) outputs[i].node = ia::move_to(outputs[i].node, pin->second);
    }
    return ia::Plan::make(std::move(outputs));
  }

  /// Adds a plan that computes the same outputs, once.
  void add(Candidate candidate) {
    ++plans_;
    candidate.plan = interner_.intern(ending_at_pins(candidate.plan));
    check(candidate);
    std::vector<const ia::Node*> roots;
    for (const auto& output : candidate.plan.outputs()) roots.push_back(output.node.get());
    if (!known_.insert(std::move(roots)).second) return;
    candidate.score = pricer_.score(candidate.plan);
    out_.candidates.push_back(std::move(candidate));
  }

  void check(const Candidate& candidate) const {
    for (size_t i = 0; i < plan_.outputs().size(); ++i) {
      const auto& wanted = plan_.outputs()[i];
      const auto& got = candidate.plan.outputs()[i];
      const bool same = got.name == wanted.name && got.tied_input == wanted.tied_input &&
                        got.node->type().relation == wanted.node->type() && !got.node->type().placement.pending();
      JOINSUM_CHECK(same, "optimize: a plan of another result: output=", wanted.name,
                    ", type=", got.node->type().text());
    }
    if (!options_.verify) return;
    const verification::Verdict verdict = optimizer::verification::verify(candidate.plan, plan_);
    JOINSUM_CHECK(verdict.accepted(), "optimize: the verifier does not accept a plan: candidate=", candidate.name,
                  ", verdict=", name_of(verdict.kind), ", reason=", verdict.reason, ", plan=\n", candidate.plan.text());
  }

  // --- phases --------------------------------------------------------------------------------------------------------

  void lower() { add({kTranslated, translated(), {}, {}, false}); }

  /// The plan lowered operator by operator.
  const ia::Plan& translated() {
    if (!translated_) translated_ = interner_.intern(tra::lower(plan_, grid_, inputs_));
    return *translated_;
  }

  void choose_placements() {
    PlacementProblem problem(plan_, {.inputs = inputs_, .pins = pins_, .warm_starts = warm_starts_},
                             std::make_shared<layouts::PlacementCache>(grid_, options_.minimize, options_.cluster));
    min_sum::Limits limits;
    limits.deadline = deadline_;
    if (plan_.order().size() > kManyNodes) limits.table_entries = min_sum::kFewEntries;
    // Where values with several readers share moves to one more place, an elimination proves nothing.
    if (auto best = problem.complete() ? problem.solve({}, limits) : problem.bounded(limits))
      add({"placement", best->plan, {}, {}, best->exact});
    add_warm_start_candidates(problem, limits);
    if (plan_.order().size() > kMostNodesRewritten) return;
    const int64_t labels = problem.labels().count();
    for (int64_t a = 0; a < labels; ++a) {
      for (int64_t b = a; b < labels && !late(); ++b) {
        if (b > a && labels > kMostLabelsInPairs) break;
        std::string name = "divide " + problem.labels().name(a);
        std::vector<int64_t> only{a};
        if (b > a) {
          only.push_back(b);
          name += " and " + problem.labels().name(b);
        }
        if (auto found = problem.solve(only, limits)) add({std::move(name), found->plan, {}, {}, found->exact});
      }
    }
  }

  /// Completed warm starts are candidates.
  void add_warm_start_candidates(PlacementProblem& problem, const min_sum::Limits& limits) {
    for (const auto& found : problem.warm_starts(limits)) {
      if (found) add({"warm start " + std::to_string(out_.warm_starts.size()), found->plan, {}, {}, false});
      out_.warm_starts.push_back(found ? std::optional(ending_at_pins(found->plan)) : std::nullopt);
    }
  }

  /// The paper's matrix products: each rule wherever it meets the plan that was lowered operator by operator.
  void try_products() {
    if (plan_.order().size() > kMostNodesRewritten) return;
    const ia::Plan& lowered = translated();
    if (lowered.order().size() > kMostNodesRewritten) return;
    const auto clean = rewriting_rules();
    for (const rules::Rule& rule : rules::all_rules()) {
      if (rule.phase != rules::Phase::kProducts || left_out(rule.name)) continue;
      if (late()) return;
      const std::optional<ia::Plan> product = everywhere(rule, lowered);
      if (!product) continue;
      const rules::Found found = rules::greedy(*product, search(clean));
      add({"rule " + rule.name, found.plan, {}, found.steps, false});
    }
  }

  /// `rule` applied to all operators that it meets, users first, so that the others stay as they are meanwhile.
  std::optional<ia::Plan> everywhere(const rules::Rule& rule, const ia::Plan& plan) {
    std::optional<ia::Plan> out;
    for (auto node = plan.order().rbegin(); node != plan.order().rend(); ++node) {
      auto found = rules::rewrites_at(out ? *out : plan, *node, {&rule}, interner_);
      if (!found.empty()) out = std::move(found.front().plan);
    }
    return out;
  }

  /// Also searches around the translation for rules that improve it together but not alone: a filter that moves below a
  /// aggregation and then below a move.
  void rewrite() {
    const auto clean = rewriting_rules();
    std::vector<Candidate> starts(
        out_.candidates.begin(),
        out_.candidates.begin() + static_cast<int64_t>(std::min(kRewritten, out_.candidates.size())));
    for (const Candidate& start : starts) {
      if (start.plan.order().size() <= kMostNodesRewritten) improve(start, rules::greedy(start.plan, search(clean)));
    }
    if (plan_.order().size() > kMostNodesRewritten || translated().order().size() > kMostNodesRewritten) return;
    rules::Search around = search(clean);
    around.limits.plans = std::min(around.limits.plans, kPlansAround);
    improve({kTranslated, translated(), {}, {}, false}, rules::beam(translated(), around));
  }

  /// Adds the plan that a search found from a candidate.
  void improve(const Candidate& start, const rules::Found& found) {
    plans_ += found.plans;
    out_.out_of_time = out_.out_of_time || found.out_of_time;
    if (found.steps.empty()) return;
    Candidate better{start.name + ", rewritten", found.plan, {}, start.steps, false};
    better.steps.insert(better.steps.end(), found.steps.begin(), found.steps.end());
    add(std::move(better));
  }

  std::vector<const rules::Rule*> rewriting_rules() const {
    std::vector<const rules::Rule*> out;
    for (const rules::Rule& rule : rules::all_rules()) {
      if (rule.phase == rules::Phase::kRewrite && !left_out(rule.name)) out.push_back(&rule);
    }
    return out;
  }

  rules::Search search(const std::vector<const rules::Rule*>& with) {
    rules::SearchLimits limits;
    limits.plans = options_.plans;
    limits.deadline = deadline_;
    return {with, pricer_, interner_, limits};
  }

  const tra::Plan& plan_;
  const ia::Grid& grid_;
  model::InputPlacements inputs_;
  const OptimizeOptions& options_;
  model::Pins pins_;
  std::vector<model::PartialPlacement> warm_starts_;
  std::unordered_map<std::string, const tra::Node*> by_name_;
  bool pins_inside_ = false;  ///< some value is pinned that others read
  rules::Pricer pricer_;
  rules::Interner interner_;
  std::optional<ia::Plan> translated_;
  min_sum::Deadline deadline_;
  std::set<std::vector<const ia::Node*>> known_;
  Optimized out_;
  int64_t plans_ = 0;
};

}  // namespace

const std::vector<std::string>& phase_names() {
  static const std::vector<std::string> names{"lower", "placement", "products", "rewrite"};
  return names;
}

Optimized optimize(const tra::Plan& plan, const ia::Grid& grid, const model::InputPlacements& inputs,
                   const OptimizeOptions& options) {
  return Optimizer(plan, grid, inputs, options).run();
}

}  // namespace joinsum::optimizer
