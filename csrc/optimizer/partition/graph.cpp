#include "optimizer/partition/graph.h"

#include <algorithm>
#include <set>

namespace joinsum::optimizer {
namespace {

using Kind = PartitionSource::Kind;

int64_t size_of(const auto& list) { return static_cast<int64_t>(list.size()); }

/// Checks a graph, one vertex after the other.
class Check {
 public:
  explicit Check(const PartitionGraph& graph) : graph_(graph) {}

  void run() {
    for (const PartitionInput& input : graph_.inputs) {
      check_name("input", input.name);
      for (const int64_t extent : input.extents) {
        JOINSUM_USER_CHECK(extent >= 0, "partition: an extent is negative: input=", input.name,
                           ", extents=", input.extents);
      }
    }
    for (; at_ < size_of(graph_.vertices); ++at_) check_vertex(graph_.vertices[at_]);
    for (const PartitionOutput& output : graph_.outputs) check_output(output);
  }

 private:
  void check_name(const char* what, const std::string& name) {
    JOINSUM_USER_CHECK(!name.empty(), "partition: a name is empty: of=", what);
    JOINSUM_USER_CHECK(names_.insert(name).second, "partition: two values have one name: name=", name);
  }

  void check_source(const char* what, const std::string& name, const PartitionSource& source) const {
    const bool input = source.kind == Kind::kInput;
    const int64_t count = input ? size_of(graph_.inputs) : at_;
    JOINSUM_USER_CHECK(source.index >= 0 && source.index < count, "partition: ", what,
                       input ? " reads an unknown input: " : " reads a vertex that is not before it: ", what, "=", name,
                       ", index=", source.index);
  }

  /// Extents of the axes of an array.
  Dims extents_of(const PartitionSource& source) const {
    if (source.kind == Kind::kInput) return graph_.inputs[source.index].extents;
    const PartitionVertex& vertex = graph_.vertices[source.index];
    Dims out;
    for (const std::string& label : vertex.result) out.push_back(vertex.extents.at(label));
    return out;
  }

  void check_vertex(const PartitionVertex& vertex) {
    check_name("vertex", vertex.name);
    JOINSUM_USER_CHECK(!vertex.operands.empty(), "partition: a vertex has no operand: vertex=", vertex.name);
    for (const std::string& label : labels_of(vertex)) {
      const auto found = vertex.extents.find(label);
      JOINSUM_USER_CHECK(found != vertex.extents.end(),
                         "partition: a label has no extent; give one to labels that no operand has: vertex=",
                         vertex.name, ", label=", label);
      JOINSUM_USER_CHECK(found->second >= 0, "partition: an extent is negative: vertex=", vertex.name,
                         ", label=", label, ", extent=", found->second);
    }
    for (const PartitionOperand& operand : vertex.operands) check_operand(vertex, operand);
    check_result(vertex);
  }

  void check_operand(const PartitionVertex& vertex, const PartitionOperand& operand) const {
    check_source("vertex", vertex.name, operand.source);
    const Dims extents = extents_of(operand.source);
    JOINSUM_USER_CHECK(extents.size() == operand.labels.size(),
                       "partition: an operand has another number of axes than labels: vertex=", vertex.name,
                       ", labels=", operand.labels, ", extents=", extents);
    for (size_t axis = 0; axis < extents.size(); ++axis) {
      const int64_t extent = vertex.extents.at(operand.labels[axis]);
      JOINSUM_USER_CHECK(extent == extents[axis], "partition: a label has two extents: vertex=", vertex.name,
                         ", label=", operand.labels[axis], ", extents=", Dims{extent, extents[axis]});
    }
  }

  static void check_result(const PartitionVertex& vertex) {
    std::set<std::string> seen;
    for (const std::string& label : vertex.result) {
      JOINSUM_USER_CHECK(seen.insert(label).second,
                         "partition: a result has a label twice; write to one label: vertex=", vertex.name,
                         ", label=", label);
    }
    for (const std::string& label : labels_of(vertex)) {
      JOINSUM_USER_CHECK(vertex.aggregates || seen.contains(label),
                         "partition: a label vanishes but nothing aggregates it; keep it in the result, or name an "
                         "aggregation: vertex=",
                         vertex.name, ", label=", label);
    }
  }

  void check_output(const PartitionOutput& output) const {
    JOINSUM_USER_CHECK(!output.name.empty(), "partition: a name is empty: of=output");
    check_source("output", output.name, output.source);
    const std::string& own = output.source.kind == Kind::kInput ? graph_.inputs[output.source.index].name
                                                                : graph_.vertices[output.source.index].name;
    JOINSUM_USER_CHECK(output.name == own || !names_.contains(output.name),
                       "partition: an output has the name of another value: output=", output.name, ", of=", own);
  }

  const PartitionGraph& graph_;
  int64_t at_ = 0;
  std::set<std::string> names_;
};

Dims numbers_of(const LabelList& all, const LabelList& labels) {
  Dims out;
  for (const std::string& label : labels) out.push_back(std::find(all.begin(), all.end(), label) - all.begin());
  return out;
}

}  // namespace

LabelList labels_of(const PartitionVertex& vertex) {
  LabelList out;
  const auto add = [&](const LabelList& labels) {
    for (const std::string& label : labels) {
      if (std::find(out.begin(), out.end(), label) == out.end()) out.push_back(label);
    }
  };
  for (const PartitionOperand& operand : vertex.operands) add(operand.labels);
  add(vertex.result);
  return out;
}

EinsumShape shape_of(const PartitionVertex& vertex) {
  const LabelList labels = labels_of(vertex);
  EinsumShape out;
  for (const std::string& label : labels) out.extents.push_back(vertex.extents.at(label));
  for (const PartitionOperand& operand : vertex.operands) out.operands.push_back(numbers_of(labels, operand.labels));
  out.result = numbers_of(labels, vertex.result);
  return out;
}

void check(const PartitionGraph& graph) { Check(graph).run(); }

}  // namespace joinsum::optimizer
