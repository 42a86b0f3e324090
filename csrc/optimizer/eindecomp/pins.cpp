#include "optimizer/eindecomp/pins.h"

#include <algorithm>
#include <bit>
#include <map>
#include <string>

#include "base/contradiction.h"
#include "optimizer/eindecomp/vectors.h"

namespace joinsum::optimizer::eindecomp {
namespace {

/// One part count of a pin.
struct Demand {
  int64_t label;
  int64_t parts;
  std::string text;

  bool met_by(const Dims& vector) const { return vector[label] == parts; }
};

using Demands = std::vector<Demand>;

/// Collects the demands on every value, and applies them.
class Application {
 public:
  Application(const einsum::json::JsonGraph& graph, const std::vector<PartitionPin>& pins, int64_t calls)
      : graph_(graph), calls_(calls), of_input_(graph.inputs.size()), of_operation_(graph.operations.size()) {
    for (size_t i = 0; i < graph.inputs.size(); ++i) named_[graph.inputs[i].first] = {true, i};
    for (size_t v = 0; v < graph.operations.size(); ++v) named_[graph.operations[v].name] = {false, v};
    for (const auto& [name, of] : graph.outputs) {
      Named output = named_.at(of);
      output.output = true;
      named_.try_emplace(name, output);
    }
    for (const PartitionPin& pin : pins) collect(pin);
  }

  Pinned run() {
    for (size_t i = 0; i < graph_.inputs.size(); ++i) out_.inputs.push_back(stored(i));
    for (size_t v = 0; v < graph_.operations.size(); ++v) restrict_vectors(v);
    JOINSUM_USER_CHECK(!worst_, "partition: pins contradict ", where_,
                       "; change or remove one of them: pins=", texts(*worst_));
    return std::move(out_);
  }

 private:
  /// What a pin is about: an input, or an operation, which an output may name.
  struct Named {
    bool input = false;
    size_t index = 0;
    bool output = false;
  };

  static std::vector<std::string> texts(const Demands& demands) {
    std::vector<std::string> out;
    for (const Demand& demand : demands) out.push_back(demand.text);
    return out;
  }

  /// The labels of a value in the order of its parts: of an input the numbers of its axes.
  einsum::Labels labels_in_order(const Named& named) const {
    if (!named.input) return einsum::json::all_labels(graph_.operations[named.index]);
    einsum::Labels out;
    for (size_t axis = 0; axis < graph_.inputs[named.index].second.extents.size(); ++axis)
      out.push_back(std::to_string(axis));
    return out;
  }

  void collect(const PartitionPin& pin) {
    const auto found = named_.find(pin.name);
    JOINSUM_USER_CHECK(found != named_.end(), "partition: a pin names no input, vertex or output: pin=", pin.name);
    const Named& named = found->second;
    const einsum::Labels order = labels_in_order(named);
    const einsum::Labels& labels = named.output && !named.input ? graph_.operations[named.index].out_labels : order;
    for (const auto& [label, parts] : pin.parts) {
      JOINSUM_USER_CHECK(einsum::has(labels, label),
                         "partition: a pin names a label that its value lacks: pin=", pin.name, ", label=", label,
                         ", labels=", labels);
      auto& demands = named.input ? of_input_[named.index] : of_operation_[named.index];
      demands.push_back({einsum::axis_of(order, label), parts, concatenate(pin.name, ".", label, "=", parts)});
    }
  }

  void report(Demands contradiction, std::string where) {
    if (worst_ && worst_->size() <= contradiction.size()) return;
    worst_ = std::move(contradiction);
    where_ = std::move(where);
  }

  std::optional<Dims> stored(size_t input) {
    const Demands& demands = of_input_[input];
    const std::string& name = graph_.inputs[input].first;
    const Dims& extents = graph_.inputs[input].second.extents;
    if (demands.empty()) return std::nullopt;
    Dims out(extents.size(), 0);
    for (const Demand& demand : demands) {
      JOINSUM_USER_CHECK(demand.parts >= 1 && std::has_single_bit(static_cast<uint64_t>(demand.parts)) &&
                             demand.parts <= greatest_parts(extents[demand.label]),
                         "partition: an input's parts are powers of two that divide its extents: pin=", demand.text,
                         ", extents=", extents);
      int64_t& parts = out[demand.label];
      if (parts != 0 && parts != demand.parts) {
        const auto first = std::find_if(demands.begin(), demands.end(),
                                        [&](const Demand& other) { return other.label == demand.label; });
        report({*first, demand}, "each other");
      }
      parts = demand.parts;
    }
    JOINSUM_USER_CHECK(std::find(out.begin(), out.end(), 0) == out.end(),
                       "partition: a pin of an input names all its axes: input=", name, ", extents=", extents);
    return out;
  }

  void restrict_vectors(size_t vertex) {
    const EinsumShape shape = shape_of(graph_.operations[vertex]);
    const Demands& demands = of_operation_[vertex];
    std::vector<Dims> vectors = viable_vectors(shape.extents, calls_);
    const auto meets = [](const Dims& vector, const Demands& set) {
      return std::all_of(set.begin(), set.end(), [&](const Demand& demand) { return demand.met_by(vector); });
    };
    const auto contradiction = smallest_contradiction(demands, [&](const Demands& set) {
      return std::any_of(vectors.begin(), vectors.end(), [&](const Dims& vector) { return meets(vector, set); });
    });
    if (!contradiction.empty()) {
      report(contradiction, concatenate("each other or the vectors of ", graph_.operations[vertex].name,
                                        ", whose parts are powers of two that divide their extents and multiply to ",
                                        reachable_calls(shape.extents, calls_)));
    }
    std::erase_if(vectors, [&](const Dims& vector) { return !meets(vector, demands); });
    out_.vectors.push_back(std::move(vectors));
    out_.parts.emplace_back(shape.extents.size(), 0);
    for (const Demand& demand : demands) out_.parts.back()[demand.label] = demand.parts;
  }

  const einsum::json::JsonGraph& graph_;
  int64_t calls_;
  std::map<std::string, Named> named_;
  std::vector<Demands> of_input_;
  std::vector<Demands> of_operation_;
  Pinned out_;
  std::optional<Demands> worst_;
  std::string where_;
};

}  // namespace

Pinned apply_pins(const einsum::json::JsonGraph& graph, const std::vector<PartitionPin>& pins, int64_t calls) {
  return Application(graph, pins, calls).run();
}

}  // namespace joinsum::optimizer::eindecomp
