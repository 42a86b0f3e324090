#include "optimizer/verification/verify.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

#include "ia/interpret.h"
#include "ia/text.h"
#include "optimizer/verification/normal_form.h"
#include "optimizer/verification/shrink.h"
#include "tra/interpret.h"

namespace joinsum::optimizer::verification {
namespace {

using kernels::reference::Array;
using tra::Relation;

constexpr double kTolerance = 1e-8;
constexpr int64_t kLargestInput = 3;

Verdict refuted(std::string reason) { return {Verdict::kRefuted, std::move(reason)}; }

template <class PlanT>
const typename PlanT::Output* output_named(const PlanT& plan, const std::string& name) {
  for (const auto& output : plan.outputs()) {
    if (output.name == name) return &output;
  }
  return nullptr;
}

/// The output and its node, as messages name them: `output Z (t3)`.
std::string who(const ia::Plan& plan, const ia::Plan::Output& output) {
  return "output " + output.name + " (" + ia::node_names(plan).at(output.node.get()) + ")";
}

// --- names and types -------------------------------------------------------------------------------------------------

/// What is wrong with the plan's inputs; nothing if each is one of the program's.
std::string wrong_inputs(const ia::Plan& plan, const tra::Plan& program) {
  std::map<std::string, tra::NodePtr> known;
  for (const tra::NodePtr& input : program.inputs()) known[input->as<tra::Input>()->name] = input;
  for (const ia::NodePtr& input : plan.inputs()) {
    const std::string& name = input->as<ia::Input>()->name;
    const auto found = known.find(name);
    if (found == known.end()) return "input " + name + " is not in the program";
    if (input->type().relation == found->second->type()) continue;
    return "input " + name + " has another type: plan=" + input->type().relation.text() +
           ", program=" + found->second->type().text();
  }
  return "";
}

std::string wrong_output(const ia::Plan& plan, const tra::Plan::Output& wanted) {
  const auto* output = output_named(plan, wanted.name);
  if (output == nullptr) return "output " + wanted.name + " is missing";
  const ia::PhysicalType& type = output->node->type();
  if (type.placement.pending()) {
    return who(plan, *output) + " is pending: placement=" + type.placement.text(type.relation.frontier);
  }
  if (!(type.relation == wanted.node->type())) {
    return who(plan, *output) + " has another type: plan=" + type.relation.text(true) +
           ", program=" + wanted.node->type().text(true);
  }
  if (output->tied_input != wanted.tied_input) {
    return who(plan, *output) + " is tied otherwise: plan=" + output->tied_input.value_or("nothing") +
           ", program=" + wanted.tied_input.value_or("nothing");
  }
  return "";
}

std::string wrong_interface(const ia::Plan& plan, const tra::Plan& program) {
  std::string wrong = wrong_inputs(plan, program);
  for (const auto& wanted : program.outputs()) {
    if (wrong.empty()) wrong = wrong_output(plan, wanted);
  }
  const bool more = plan.outputs().size() > program.outputs().size();
  return wrong.empty() && more ? "the plan has outputs that the program lacks" : wrong;
}

// --- laws ------------------------------------------------------------------------------------------------------------

bool same_normal_form(const ia::Plan& plan, const tra::Plan& program) {
  try {
    NormalForm form;
    const auto found = form.of(plan);
    const auto wanted = form.of(program);
    for (size_t i = 0; i < program.outputs().size(); ++i) {
      const auto* output = output_named(plan, program.outputs()[i].name);
      if (found[output - plan.outputs().data()] != wanted[i]) return false;
    }
    return true;
  } catch (const PlanError&) {
  } catch (const KernelError&) {
  }
  return false;
}

// --- runs ------------------------------------------------------------------------------------------------------------

/// Small integers: positive in even rounds, so that roots and logarithms are defined, of both signs in odd ones.
class Data {
 public:
  explicit Data(uint64_t seed, bool positive) : random_(seed), positive_(positive) {}

  std::map<std::string, Relation> inputs(const tra::Plan& program) {
    std::map<std::string, Relation> out;
    for (const tra::NodePtr& input : program.inputs()) {
      Relation relation;
      for (const Key& key : input->type().all_keys()) {
        relation.emplace_back(key, Array::zeros(input->type().array_shape(key)));
        for (double& value : relation.back().second.values) value = number();
      }
      out[input->as<tra::Input>()->name] = std::move(relation);
    }
    return out;
  }

  /// Fractions that are exact, as rates and decays are below 1.
  kernels::table::Scalars scalars(const ia::Plan& plan, const tra::Plan& program) {
    std::set<std::string> names;
    for (const ia::NodePtr& node : plan.order()) add(ia::scalars_of(node->operation()), names);
    for (const tra::NodePtr& node : program.order()) {
      if (const auto* op = node->as<tra::Aggregate>()) add(op->kernel.scalar_names(), names);
      if (const auto* op = node->as<tra::Join>()) add(op->kernel.scalar_names(), names);
      if (const auto* op = node->as<tra::Transform>()) add(op->kernel.scalar_names(), names);
    }
    kernels::table::Scalars out;
    for (const std::string& name : names) out[name] = static_cast<double>(1 + random_() % 7) / 8;
    return out;
  }

 private:
  static void add(const std::vector<std::string>& from, std::set<std::string>& to) {
    to.insert(from.begin(), from.end());
  }

  double number() {
    const auto range = static_cast<uint64_t>(positive_ ? kLargestInput : 2 * kLargestInput + 1);
    const auto drawn = static_cast<int64_t>(random_() % range);
    return static_cast<double>(positive_ ? 1 + drawn : drawn - kLargestInput);
  }

  std::mt19937_64 random_;
  bool positive_;
};

double largest(const Relation& relation) {
  double out = 1;
  for (const auto& [key, array] : relation) {
    for (const double value : array.values) out = std::isfinite(value) ? std::max(out, std::abs(value)) : out;
  }
  return out;
}

struct Difference {
  std::string text;      ///< nothing where all values agree
  int64_t compared = 0;  ///< finite values, or tuples without any
};

Difference difference(const Relation& plan, const Relation& program) {
  if (plan.size() != program.size())
    return {concatenate("tuples: plan=", plan.size(), ", program=", program.size()), 0};
  const double scale = std::max(largest(plan), largest(program));
  Difference out;
  for (size_t i = 0; i < plan.size(); ++i) {
    const auto& [key, array] = plan[i];
    const auto& [wanted_key, wanted] = program[i];
    if (key != wanted_key || array.shape != wanted.shape) {
      return {concatenate("tuple ", i, ": plan=", key_text(key), ", program=", key_text(wanted_key)), 0};
    }
    out.compared += array.values.empty() ? 1 : 0;
    for (size_t v = 0; v < array.values.size(); ++v) {
      const bool finite = std::isfinite(array.values[v]);
      const bool agree = finite == std::isfinite(wanted.values[v]) &&
                         (!finite || std::abs(array.values[v] - wanted.values[v]) <= kTolerance * scale);
      out.compared += finite ? 1 : 0;
      if (agree) continue;
      return {concatenate("key=", key_text(key), ", plan=", array.values[v], ", program=", wanted.values[v]), 0};
    }
  }
  return out;
}

/// One run of both; values that were compared are added to `compared`.
std::string difference_in_a_run(const Small& small, Data& data, int64_t& compared) {
  const auto inputs = data.inputs(small.program);
  const auto scalars = data.scalars(small.plan, small.program);
  const auto wanted = tra::interpret(small.program, inputs, scalars);
  const auto found = ia::interpret(small.plan, inputs, scalars);
  for (const auto& output : small.plan.outputs()) {
    const Relation contents = ia::contents(found.at(output.name), output.node->type());
    const Difference differ = difference(contents, wanted.at(output.name));
    if (!differ.text.empty()) return who(small.plan, output) + " differs: " + differ.text;
    compared += differ.compared + (contents.empty() ? 1 : 0);
  }
  return "";
}

Verdict run_both(const Small& small, const VerifyOptions& options) {
  int64_t compared = 0;
  for (int64_t round = 0; round < options.rounds; ++round) {
    Data data(hash_mix(hash_mix(hash_text("verify"), options.seed), static_cast<uint64_t>(round)), round % 2 == 0);
    const std::string differ = difference_in_a_run(small, data, compared);
    if (!differ.empty()) return refuted(differ);
  }
  if (compared == 0) return {Verdict::kUndecided, "no run gave a finite value to compare"};
  return {Verdict::kTested, concatenate("equal contents in ", options.rounds, " runs on random integers")};
}

}  // namespace

Verdict verify(const ia::Plan& plan, const tra::Plan& program, const VerifyOptions& options) {
  JOINSUM_USER_CHECK(options.rounds >= 1, "verify: at least one round: rounds=", options.rounds);
  if (const std::string wrong = wrong_interface(plan, program); !wrong.empty()) return refuted(wrong);
  if (same_normal_form(plan, program)) return {Verdict::kProved, "both have one normal form"};
  const auto small = shrunk(plan, program);
  if (!small) return {Verdict::kUndecided, "normal forms differ, and no smaller arrays keep the structure of the plan"};
  try {
    return run_both(*small, options);
  } catch (const InternalError& error) {
    return refuted(concatenate("the plan breaks a promise of its types: ", error.what()));
  } catch (const Error& error) {
    return {Verdict::kUndecided, concatenate("normal forms differ, and a run failed: ", error.what())};
  }
}

const char* name_of(Verdict::Kind kind) {
  constexpr const char* kNames[] = {"proved", "tested", "refuted", "undecided"};
  return kNames[kind];
}

}  // namespace joinsum::optimizer::verification
