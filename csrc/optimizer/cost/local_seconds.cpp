#include "optimizer/cost/local_seconds.h"

#include <algorithm>
#include <cmath>

#include "ia/analysis/visited.h"

namespace joinsum::optimizer::cost {
namespace {

using ia::analysis::aggregated_type;
using ia::analysis::busiest_of;
using ia::analysis::each_follower;
using ia::analysis::extents_at;
using ia::analysis::joined_type;
using ia::analysis::Mapped;
using ia::analysis::mapped_by;
using ia::analysis::Visited;
using ia::analysis::visited_by;
using kernels::table::Form;
using kernels::table::Row;

bool has(const std::string& letters, char letter) { return letters.find(letter) != std::string::npos; }

/// What a contraction by another pair than product and sum takes, in matrix products of its size: 1.3 to 2.2 by
/// `benchmarks/contractions.py`.
constexpr double kProductsOfAPair = 2;

/// A kernel over sparse entries waits for these: 16 bytes for a product and its sum.
constexpr double kBytesOfAFlop = 8;

/// An elementwise product, by its facts.
const Row kProduct{.name = {}, .summary = {}, .operands = 2};

/// `calls` equal calls; negative seconds stay unknown.
double repeated(double calls, double seconds) { return seconds < 0 ? seconds : calls * seconds; }

/// Negative where either is unknown.
double both(double first, double second) { return first < 0 || second < 0 ? -1 : first + second; }

/// The shape of the kernel calls of a contraction on one site.
struct Products {
  double calls = 1;
  double batch = 1;
  double rows = 1;
  double inner = 1;
  double columns = 1;

  void add(double extent, bool in_left, bool in_right, bool in_result) {
    double& group = !in_right ? rows : !in_left ? columns : in_result ? batch : inner;
    group *= extent;
  }
};

/// Extent of `axis` in a call: over all keys of `box`, or of one of them.
double extent_in(const relation::Axis& axis, const Box& box, bool single) {
  const auto over = static_cast<double>(axis.extent_over(box));
  return single && axis.linked() ? over / static_cast<double>(std::max<int64_t>(box.extent(axis.key_dim), 1)) : over;
}

/// `group_by`: key dimensions that a fused sum keeps; null without one.
Products products_at(const ia::Node& join, const ia::LocalJoin& op, const Visited& visited, int64_t site,
                     const Dims* group_by) {
  Products out;
  const ia::Holding& holding = join.type().holding;
  const bool regular = holding.regular();
  const auto keys = regular ? nullptr : holding.keys(site);
  const Box box = regular ? *holding.box(site) : Box::single(keys->front());
  const int64_t left_arity = join.input(0)->type().relation.arity();
  const Dims right = relation::JoinKeys{op.left_keys, op.right_keys}.right_position(
      left_arity, join.input(1)->type().relation.arity());
  const std::string& result = visited.labels.result;
  for (int64_t dim = 0; dim < static_cast<int64_t>(box.lower.size()); ++dim) {
    const bool grouped = group_by == nullptr || position_of(*group_by, dim).has_value();
    const Dims linked = visited.relation.axes_of(dim);
    const auto extent = static_cast<double>(box.extent(dim));
    if (linked.empty()) {
      out.add(extent, dim < left_arity, position_of(right, dim).has_value(), grouped);
    } else if (linked.size() > 1 || grouped != has(result, visited.letters[linked[0]])) {
      out.calls *= extent;
    }
  }
  for (size_t i = 0; i < visited.letters.size(); ++i) {
    const char letter = visited.letters[i];
    const relation::Axis& axis = visited.relation.axes[i];
    const bool grouped = !axis.linked() || group_by == nullptr || position_of(*group_by, axis.key_dim).has_value();
    const bool single =
        axis.linked() && (visited.relation.axes_of(axis.key_dim).size() > 1 || grouped != has(result, letter));
    out.add(extent_in(axis, box, single), has(visited.labels.operands[0], letter),
            has(visited.labels.operands[1], letter), has(result, letter));
  }
  if (!regular) out.calls = static_cast<double>(keys->size());
  return out;
}

/// Prices the local operators of one plan's nodes.
class Local {
 public:
  Local(const ia::Node& node, const Profile& profile)
      : node_(node), profile_(profile), result_(node.type()), bytes_(byte_size(result_.relation.dtype)) {}

  double join(const ia::LocalJoin& op) const {
    const Row& row = kernels::table::row_of(op.kernel);
    const relation::RelationType joined = joined_type(node_, op);
    const double seconds = row.form == Form::kElementwise ? applied(op.kernel.first(), result_.holding, joined)
                           : row.form == Form::kLabelled && !row.user ? contraction(node_, op, nullptr)
                                                                      : -1;
    return both(seconds, followers(result_.holding, joined, op.kernel));
  }

  double map(const ia::LocalMap& op) const {
    const kernels::table::Kernel first = op.array_map.first();
    const Row& row = kernels::table::row_of(first);
    const ia::PhysicalType& input = node_.input(0)->type();
    const Mapped mapped = mapped_by(node_, op);
    double seconds = 0;
    if (op.outputs == 1 && op.key_map.is_identity(input.relation.arity())) {
      seconds = applied(first, input.holding, input.relation);
    } else if (!row.facts.moves_elements) {
      const auto most = busiest_of(input.holding, input.relation);
      const auto calls = static_cast<double>(input.holding.tuples(most.site) * op.outputs);
      seconds = repeated_calls(first, calls, static_cast<double>(most.elements));
    }
    return both(seconds, followers(mapped.holding, mapped.relation, op.array_map));
  }

  /// Writes its result anew.
  double upsert() const { return std::max(profile_.copy(static_cast<double>(result_.most_bytes())), 0.0); }

  double aggregate(const ia::LocalAggregate& op) const { return both(reduce(op), finish(op)); }

  /// Reads its operands and writes its result as a copy does, and computes at the rate of a product of as many flops;
  /// over entries of sparse operands it reads a few bytes for each.
  double call(const kernels::call::Call& op) const {
    double most = 0;
    for (int64_t site = 0; site < result_.sites(); ++site) {
      std::vector<double> operands;
      for (const ia::NodePtr& input : node_.inputs())
        operands.push_back(static_cast<double>(input->type().bytes(site)));
      const double bytes = kernels::call::moved_bytes(op, operands, static_cast<double>(result_.bytes(site)));
      const double flops = ia::analysis::visited_share(node_) * kernels::call::flops(op, extents_at(node_, op, site));
      const bool of_entries = kernels::call::counts_entries(op);
      const double side = of_entries ? 0 : std::cbrt(flops / 2);
      const double moved = profile_.copy((of_entries ? bytes + kBytesOfAFlop * flops : bytes) / 2);
      const double computed = side < 1 ? 0 : profile_.product(DType::kFloat32, side, side, side);
      if (moved < 0 || computed < 0) return -1;
      most = std::max(most, moved + computed);
    }
    return most;
  }

  double fused(const ia::LocalAggregate& op) const {
    const ia::Node& join = *node_.input(0);
    return both(contraction(join, *join.as<ia::LocalJoin>(), &op.group_by), finish(op));
  }

 private:
  double reduce(const ia::LocalAggregate& op) const {
    const ia::PhysicalType& input = node_.input(0)->type();
    const Row& row = kernels::table::row_of(op.kernel);
    const auto most = busiest_of(input.holding, input.relation);
    if (row.form == Form::kConcat) return profile_.copy(static_cast<double>(most.elements * bytes_));
    if (row.form != Form::kElementwise || row.user) return -1;
    if (most.elements == 0) return 0;
    const auto read = static_cast<double>(most.elements);
    const auto written = static_cast<double>(result_.holding.elements(result_.relation, most.site));
    bool linked = !input.holding.regular();
    double parts = linked ? static_cast<double>(input.holding.tuples(most.site)) : 1;
    for (const int64_t dim : complement(op.group_by, input.relation.arity())) {
      if (linked || input.relation.axes_of(dim).empty()) continue;
      parts *= static_cast<double>(input.holding.box(most.site)->extent(dim));
    }
    linked = linked || parts > 1;
    if (!linked) return read == written ? 0 : profile_.key_reduction(bytes_, read);
    // One reduction after another; each reads the sum so far and a part.
    const double calls = std::max(parts - 1, 0.0);
    return calls == 0 ? 0 : repeated(calls, profile_.elementwise_call(row, bytes_, read / parts));
  }

  /// What the kernels take that follow a reduction.
  double finish(const ia::LocalAggregate& op) const {
    return followers(result_.holding, aggregated_type(node_, op), op.kernel);
  }

  /// What the kernels take that follow `kernel`, which by itself gives `type`.
  double followers(const ia::Holding& holding, const relation::RelationType& type,
                   const kernels::table::Kernel& kernel) const {
    double seconds = 0;
    each_follower(type, kernel,
                  [&](const relation::RelationType& input, const relation::RelationType&,
                      const kernels::table::Kernel& next) { seconds = both(seconds, applied(next, holding, input)); });
    return seconds;
  }

  static double calls_at(const ia::Holding& holding, int64_t site) {
    return holding.regular() ? 1 : static_cast<double>(holding.tuples(site));
  }

  /// A kernel of one operand, or an elementwise one, on all that a site holds of `type`.
  double applied(const kernels::table::Kernel& kernel, const ia::Holding& holding,
                 const relation::RelationType& type) const {
    const auto most = busiest_of(holding, type);
    return repeated_calls(kernel, calls_at(holding, most.site), static_cast<double>(most.elements));
  }

  double repeated_calls(const kernels::table::Kernel& kernel, double calls, double elements) const {
    const Row& row = kernels::table::row_of(kernel);
    const double each = elements / std::max(calls, 1.0);
    if (row.facts.moves_elements) return 0;
    if (row.form == Form::kElementwise) return repeated(calls, profile_.elementwise_call(kernel, bytes_, each));
    return row.user ? -1 : repeated(calls, profile_.row_reduction(bytes_, each));
  }

  /// A contraction without a kernel that goes by tiles: every joined element is combined in one pass and reduced in
  /// another.
  double joined_in_blocks(const kernels::table::Kernel& kernel, double elements) const {
    return both(profile_.elementwise_call(kernels::table::combined_by(kernel), bytes_, elements),
                profile_.row_reduction(bytes_, elements));
  }

  double contraction(const ia::Node& join, const ia::LocalJoin& op, const Dims* group_by) const {
    const Visited visited = visited_by(join, op);
    const auto most = busiest_of(join.type().holding, visited.relation);
    if (most.elements == 0) return 0;
    const Row& row = kernels::table::row_of(op.kernel);
    const double share = ia::analysis::visited_share(join);
    // Each point reads an element of the dense operand and adds to one of the result.
    if (share < 1) return profile_.copy(share * static_cast<double>(most.elements * bytes_));
    const Products p = products_at(join, op, visited, most.site, group_by);
    const bool outer = p.inner == 1 && group_by == nullptr && p.batch * p.rows * p.columns > 1;
    const DType dtype = visited.relation.dtype;
    const double least = profile_.product(dtype, 1, 1, 1);
    if (!row.facts.linear) {
      const bool tiled = !outer && row.combine != "expression" && least >= 0;
      if (!tiled) return joined_in_blocks(op.kernel, static_cast<double>(most.elements));
      return kProductsOfAPair * p.calls * p.batch * profile_.product(dtype, p.rows, p.inner, p.columns);
    }
    if (outer) return repeated(p.calls, profile_.elementwise_call(kProduct, bytes_, p.batch * p.rows * p.columns));
    const double each = profile_.product(dtype, p.rows, p.inner, p.columns);
    double seconds = each < 0 ? each : p.calls * (least + p.batch * std::max(each - least, 0.0));
    // Results of several calls are put together in one block.
    if (seconds >= 0 && p.calls > 1 && group_by == nullptr) {
      const int64_t written = result_.holding.elements(result_.relation, most.site);
      seconds += std::max(profile_.copy(static_cast<double>(written * bytes_)), 0.0);
    }
    return seconds;
  }

  const ia::Node& node_;
  const Profile& profile_;
  const ia::PhysicalType& result_;
  int64_t bytes_;
};

}  // namespace

double local_seconds(const ia::Node& node, bool fused, const Profile& profile) {
  const Local local(node, profile);
  if (const auto* join = node.as<ia::LocalJoin>()) return local.join(*join);
  if (const auto* map = node.as<ia::LocalMap>()) return local.map(*map);
  if (const auto* op = node.as<ia::LocalCall>()) return local.call(op->call);
  if (node.as<ia::LocalUpsert>() != nullptr) return local.upsert();
  const auto* aggregate = node.as<ia::LocalAggregate>();
  if (aggregate == nullptr) return 0;
  return fused ? local.fused(*aggregate) : local.aggregate(*aggregate);
}

}  // namespace joinsum::optimizer::cost
