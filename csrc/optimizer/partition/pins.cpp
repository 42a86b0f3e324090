#include "optimizer/partition/pins.h"

#include <algorithm>
#include <bit>
#include <map>
#include <string>

#include "optimizer/partition/vectors.h"

namespace joinsum::optimizer {
namespace {

using Kind = PartitionSource::Kind;

int64_t size_of(const auto& list) { return static_cast<int64_t>(list.size()); }

/// One part count of a pin.
struct Demand {
  int64_t label;
  int64_t parts;
  std::string text;

  bool met_by(const Dims& vector) const { return vector[label] == parts; }
};

using Demands = std::vector<Demand>;

/// Visits the sets of `size` demands until `visit` returns true.
bool any_set(const Demands& demands, size_t size, const auto& visit) {
  std::vector<bool> chosen(demands.size(), false);
  std::fill_n(chosen.begin(), size, true);
  do {
    Demands set;
    for (size_t i = 0; i < demands.size(); ++i) {
      if (chosen[i]) set.push_back(demands[i]);
    }
    if (visit(set)) return true;
  } while (std::prev_permutation(chosen.begin(), chosen.end()));
  return false;
}

/// The smallest set of demands for which `possible` is false, if there is one.
std::optional<Demands> smallest_contradiction(const Demands& demands, const auto& possible) {
  if (possible(demands)) return std::nullopt;
  std::optional<Demands> out;
  for (size_t size = 1; !out && size <= demands.size(); ++size) {
    any_set(demands, size, [&](const Demands& set) {
      if (possible(set)) return false;
      out = set;
      return true;
    });
  }
  return out;
}

/// Collects the demands on every value, and applies them.
class Application {
 public:
  Application(const PartitionGraph& graph, int64_t calls)
      : graph_(graph), calls_(calls), of_input_(graph.inputs.size()), of_vertex_(graph.vertices.size()) {
    for (int64_t i = 0; i < size_of(graph.inputs); ++i) sources_[graph.inputs[i].name] = {{Kind::kInput, i}, false};
    for (int64_t v = 0; v < size_of(graph.vertices); ++v) {
      sources_[graph.vertices[v].name] = {{Kind::kVertex, v}, false};
    }
    for (const PartitionOutput& output : graph.outputs) sources_.try_emplace(output.name, Named{output.source, true});
    for (const PartitionPin& pin : graph.pins) collect(pin);
  }

  Pinned run() {
    for (int64_t i = 0; i < size_of(graph_.inputs); ++i) out_.inputs.push_back(stored(i));
    for (int64_t v = 0; v < size_of(graph_.vertices); ++v) restrict_vectors(v);
    JOINSUM_USER_CHECK(!worst_, "partition: pins contradict ", where_,
                       "; change or remove one of them: pins=", texts(*worst_));
    return std::move(out_);
  }

 private:
  struct Named {
    PartitionSource source;
    bool output;
  };

  static std::vector<std::string> texts(const Demands& demands) {
    std::vector<std::string> out;
    for (const Demand& demand : demands) out.push_back(demand.text);
    return out;
  }

  /// Labels that a pin may name.
  LabelList names_of(const Named& named) const {
    if (named.source.kind == Kind::kVertex) {
      const PartitionVertex& vertex = graph_.vertices[named.source.index];
      return named.output ? vertex.result : labels_of(vertex);
    }
    LabelList out;
    for (int64_t axis = 0; axis < size_of(graph_.inputs[named.source.index].extents); ++axis) {
      out.push_back(std::to_string(axis));
    }
    return out;
  }

  void collect(const PartitionPin& pin) {
    const auto found = sources_.find(pin.name);
    JOINSUM_USER_CHECK(found != sources_.end(), "partition: a pin names no input, vertex or output: pin=", pin.name);
    const Named& named = found->second;
    const bool vertex = named.source.kind == Kind::kVertex;
    const LabelList names = names_of(named);
    // An output's labels come first among those of its vertex only by chance.
    const LabelList numbered = vertex ? labels_of(graph_.vertices[named.source.index]) : names;
    for (const auto& [label, parts] : pin.parts) {
      JOINSUM_USER_CHECK(std::find(names.begin(), names.end(), label) != names.end(),
                         "partition: a pin names a label that its value lacks: pin=", pin.name, ", label=", label,
                         ", labels=", names);
      const auto number = std::find(numbered.begin(), numbered.end(), label) - numbered.begin();
      auto& demands = vertex ? of_vertex_[named.source.index] : of_input_[named.source.index];
      demands.push_back({number, parts, concatenate(pin.name, ".", label, "=", parts)});
    }
  }

  void report(Demands contradiction, std::string where) {
    if (worst_ && worst_->size() <= contradiction.size()) return;
    worst_ = std::move(contradiction);
    where_ = std::move(where);
  }

  std::optional<Dims> stored(int64_t input) {
    const Demands& demands = of_input_[input];
    const auto& [name, extents] = graph_.inputs[input];
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

  void restrict_vectors(int64_t vertex) {
    const EinsumShape shape = shape_of(graph_.vertices[vertex]);
    const Demands& demands = of_vertex_[vertex];
    std::vector<Dims> vectors = viable_vectors(shape.extents, calls_);
    const auto meets = [](const Dims& vector, const Demands& set) {
      return std::all_of(set.begin(), set.end(), [&](const Demand& demand) { return demand.met_by(vector); });
    };
    const auto contradiction = smallest_contradiction(demands, [&](const Demands& set) {
      return std::any_of(vectors.begin(), vectors.end(), [&](const Dims& vector) { return meets(vector, set); });
    });
    if (contradiction) {
      report(*contradiction, concatenate("each other or the vectors of ", graph_.vertices[vertex].name,
                                         ", whose parts are powers of two that divide their extents and multiply to ",
                                         reachable_calls(shape.extents, calls_)));
    }
    std::erase_if(vectors, [&](const Dims& vector) { return !meets(vector, demands); });
    out_.vectors.push_back(std::move(vectors));
    out_.parts.emplace_back(shape.extents.size(), 0);
    for (const Demand& demand : demands) out_.parts.back()[demand.label] = demand.parts;
  }

  const PartitionGraph& graph_;
  int64_t calls_;
  std::map<std::string, Named> sources_;
  std::vector<Demands> of_input_;
  std::vector<Demands> of_vertex_;
  Pinned out_;
  std::optional<Demands> worst_;
  std::string where_;
};

}  // namespace

Pinned apply_pins(const PartitionGraph& graph, int64_t calls) { return Application(graph, calls).run(); }

}  // namespace joinsum::optimizer
