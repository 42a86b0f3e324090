#include "einsum/notation/named_vertex.h"

#include <algorithm>
#include <cctype>

#include "einsum/infer.h"
#include "einsum/text.h"
#include "kernels/table/expression_kernel.h"
#include "kernels/table/table.h"

namespace joinsum::einsum::notation {
namespace {

/// ⊕ by name: what is done to each joined element first, and the kernel that reduces them; of argmax and argmin that of
/// the extreme, whose position is wanted.
struct Aggregation {
  std::string name;
  std::string first;
  std::string kernel;
  bool position = false;
};

const std::vector<Aggregation>& aggregations() {
  static const std::vector<Aggregation> table = [] {
    std::vector<Aggregation> rows;
    for (const kernels::table::Row* row : kernels::table::reducing_rows()) {
      rows.push_back({row->aggregation, "", row->name});
    }
    rows.push_back({"any", "cast[bool]", "max"});
    rows.push_back({"all", "cast[bool]", "min"});
    rows.push_back({"argmax", "", "max", true});
    rows.push_back({"argmin", "", "min", true});
    return rows;
  }();
  return table;
}

const Aggregation& aggregation(const std::string& who, const std::string& name) {
  for (const Aggregation& row : aggregations()) {
    if (row.name == name) return row;
  }
  std::string known;
  for (const Aggregation& row : aggregations()) known += (known.empty() ? "" : ", ") + row.name;
  throw PlanError(concatenate(who, ": no such aggregation: agg='", name, "', there are ", known));
}

/// Whether `text` is a kernel, or several that follow each other; everything else is an expression.
bool names_kernels(const std::string& text) {
  Scanner scanner(text);
  do {
    if (!scanner.peek_name()) return false;
    scanner.name();
    if (!scanner.accept("[")) continue;
    scanner.raw_until("]");
    if (!scanner.accept("]")) return false;
  } while (scanner.accept("|"));
  return scanner.at_end();
}

/// Whether `text` is an operand of an expression, alone: x, y, z, x0, x1, ...
bool names_operand(const std::string& text) {
  Scanner scanner(text);
  if (!scanner.peek_name()) return false;
  const std::string name = scanner.name();
  const bool numbered =
      name[0] == 'x' && std::all_of(name.begin() + 1, name.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  return scanner.at_end() && (numbered || name == "y" || name == "z");
}

Kernel join_kernel(std::string join, const std::string& first, size_t operands) {
  if (operands == 1 && join == "mul") join = "id";
  if (names_operand(join) || !names_kernels(join)) {
    const auto count = static_cast<int64_t>(operands);
    join = kernels::table::expression_kernel(kernels::expression::Expression::parse(join, count), count).text();
  }
  return Kernel::parse(first.empty() ? join : join + " | " + first);
}

NodePtr make_plain(const std::string& who, const std::vector<NodePtr>& inputs, NamedVertex vertex) {
  const Aggregation& row = aggregation(who, vertex.aggregate);
  for (const Labels& labels : vertex.operands) std::for_each(labels.begin(), labels.end(), check_label);
  std::for_each(vertex.result.begin(), vertex.result.end(), check_label);
  Kernel join = join_kernel(vertex.join, row.first, inputs.size());
  return make(Einsum{std::move(vertex.operands), std::move(vertex.result), std::move(join), Kernel::parse(row.kernel),
                     std::move(vertex.extents)},
              inputs);
}

/// Labels that the result lacks, in the order in which positions are counted.
Labels aggregated_labels(const NamedVertex& vertex) {
  std::vector<Labels> lists{vertex.order};
  lists.insert(lists.end(), vertex.operands.begin(), vertex.operands.end());
  return without(labels_of(lists), vertex.result);
}

/// Extents of the aggregated labels, of which argmax and argmin give a position.
Dims positions_shape(const std::string& who, const NamedVertex& vertex, const Labels& aggregated,
                     const std::vector<NodePtr>& inputs) {
  std::vector<TensorType> types;
  for (const NodePtr& input : inputs) types.push_back(input->type());
  JOINSUM_USER_CHECK(types.size() == vertex.operands.size(), who,
                     ": labels for another number of operands: labels=", vertex.operands.size(),
                     ", operands=", types.size());
  const Extents extents = extents_of(Einsum{vertex.operands, vertex.result, {}, {}, vertex.extents}, types);
  Dims shape;
  for (const std::string& label : aggregated) {
    JOINSUM_USER_CHECK(extents.contains(label), who, ": an order names a label that no operand has: label=", label);
    shape.push_back(extents.at(label));
  }
  JOINSUM_USER_CHECK(std::find(shape.begin(), shape.end(), 0) == shape.end(), who,
                     ": no position among no elements: aggregated extents=", shape);
  return shape;
}

/// The extreme of the joined tensor `value`, whose labels are `every`. Of a kernel of two operands it is one
/// contraction, which need not form that tensor. Floats of half width are aggregated in single precision there, so that
/// no joined element need equal it: of them the joined tensor is aggregated.
NodePtr make_extreme(const std::string& who, const std::vector<NodePtr>& inputs, const NamedVertex& vertex,
                     const NodePtr& value, const Labels& every) {
  const DType dtype = value->type().dtype;
  // A contraction joins elements as the elementwise kernel does, to the last digit.
  const kernels::table::Row* row = kernels::table::find_row(vertex.join);
  const bool exact = !is_half_float(dtype) && row != nullptr && row->joins_by;
  if (inputs.size() == 2 && exact && std::all_of(vertex.operands.begin(), vertex.operands.end(), distinct))
    return make_plain(who, inputs, vertex);
  return make_plain(who, {value}, {"id", vertex.aggregate, {every}, vertex.result});
}

NodePtr make_position(const std::string& who, const std::vector<NodePtr>& inputs, NamedVertex vertex,
                      const std::string& extreme_name, const std::string& positions) {
  const Labels aggregated = aggregated_labels(vertex);
  JOINSUM_USER_CHECK(!aggregated.empty(), who, ": ", vertex.aggregate,
                     " aggregates one label at least: labels=", labels_text(vertex.result));
  const Dims shape = positions_shape(who, vertex, aggregated, inputs);
  Labels kept;
  for (const std::string& label : vertex.result) {
    if (!vertex.extents.contains(label) && !has(kept, label)) kept.push_back(label);
  }
  Labels every = kept;
  every.insert(every.end(), aggregated.begin(), aggregated.end());
  NodePtr value = inputs[0];
  if (inputs.size() > 1 || vertex.operands[0] != every || (vertex.join != "mul" && vertex.join != "id")) {
    value = make_plain(who, inputs, {vertex.join, "sum", vertex.operands, every});
  }
  const NodePtr extreme = make_extreme(who, inputs, {vertex.join, extreme_name, vertex.operands, kept}, value, every);
  const std::string same = "where(x == y, 1, x != x)";
  NodePtr found = make_plain(who, {value, extreme}, {same, "sum", {every, kept}, every});
  found = make_plain(who, {found}, {"cast[i64]", "sum", {every}, every});
  const NodePtr numbers = make_input(positions, {DType::kInt64, shape});
  const std::string place = "where(x == 1, y, " + std::to_string(checked_product(who, shape)) + ")";
  return make_plain(who, {found, numbers}, {place, "min", {every, aggregated}, vertex.result, vertex.extents});
}

}  // namespace

const std::vector<std::string>& aggregation_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    for (const Aggregation& row : aggregations()) out.push_back(row.name);
    return out;
  }();
  return names;
}

bool is_position(const std::string& aggregation) {
  const auto& rows = aggregations();
  return std::any_of(rows.begin(), rows.end(),
                     [&](const auto& row) { return row.name == aggregation && row.position; });
}

void check_named_join(const std::string& join, size_t operands) {
  check_join(join_kernel(join, "", operands), operands);
}

std::optional<std::string> aggregation_name(const Kernel& kernel) {
  for (const Aggregation& row : aggregations()) {
    if (row.first.empty() && !row.position && Kernel::parse(row.kernel) == kernel) return row.name;
  }
  return std::nullopt;
}

NodePtr make_named(const std::string& who, const std::vector<NodePtr>& inputs, NamedVertex vertex,
                   const std::string& positions) {
  JOINSUM_USER_CHECK(!inputs.empty(), who, ": at least one operand");
  const Aggregation& row = aggregation(who, vertex.aggregate);
  if (row.position) return make_position(who, inputs, std::move(vertex), row.kernel, positions);
  const bool truth = std::all_of(inputs.begin(), inputs.end(),
                                 [](const NodePtr& input) { return input->type().dtype == DType::kBool; });
  if (truth && inputs.size() > 1 && vertex.join == "mul" && row.first == "cast[bool]") vertex.join = "min";
  return make_plain(who, inputs, std::move(vertex));
}

}  // namespace joinsum::einsum::notation
