#include "einsum/balanced_cuts.h"

#include <algorithm>
#include <cmath>

#include "einsum/axis_classes.h"

namespace joinsum::einsum {
namespace {

/// Work is counted in operations on an entry of a sparse operand. An element of a dense tensor, which is read or
/// written in order, takes a part of one, and a multiplication of dense matrices even less.
constexpr double kElement = 0.25;
constexpr double kDenseOperation = 1.0 / 32;

/// The busiest part of current cuts may have so many times the work that it has at the best ones.
constexpr double kNearly = 1.1;

/// The work along one class of axes.
class Profile {
 public:
  void add_of_entries(double work) { of_entries_ += work; }
  void add_even(double work) { even_ += work; }
  void add_sample(double entries, const std::vector<int64_t>& indices) {
    if (!indices.empty()) samples_.push_back({entries, &indices});
  }
  bool uneven() const { return of_entries_ > 0 && !samples_.empty(); }

  /// Cuts between which parts have about the same work; none is empty.
  CutPoints cuts(int64_t extent, int64_t parts) const {
    CutPoints out(parts + 1, 0);
    out.back() = extent;
    for (int64_t part = 1; part < parts; ++part) {
      const double wanted = static_cast<double>(part) / static_cast<double>(parts);
      out[part] = std::clamp(nearest(wanted, extent), out[part - 1] + 1, extent - (parts - part));
    }
    return out;
  }

  /// The work of the busiest part, where all of it is 1.
  double busiest(const CutPoints& cuts) const {
    double most = 0;
    for (size_t i = 1; i < cuts.size(); ++i)
      most = std::max(most, before(cuts[i], cuts.back()) - before(cuts[i - 1], cuts.back()));
    return most;
  }

 private:
  struct Sample {
    double entries;
    const std::vector<int64_t>* indices;
  };

  /// The work at indices before this one, where all of it is 1.
  double before(int64_t index, int64_t extent) const {
    double entries = 0, all = 0;
    for (const Sample& each : samples_) {
      const auto below = std::ranges::lower_bound(*each.indices, index) - each.indices->begin();
      entries += each.entries * static_cast<double>(below) / static_cast<double>(each.indices->size());
      all += each.entries;
    }
    const double evenly = static_cast<double>(index) / static_cast<double>(extent);
    return (of_entries_ * entries / all + even_ * evenly) / (of_entries_ + even_);
  }

  /// The index before which there is most nearly that much of the work.
  int64_t nearest(double wanted, int64_t extent) const {
    int64_t low = 0, high = extent;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (before(middle, extent) < wanted) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    const bool earlier = low > 0 && wanted - before(low - 1, extent) < before(low, extent) - wanted;
    return earlier ? low - 1 : low;
  }

  double of_entries_ = 0;  ///< work for entries of sparse operands
  double even_ = 0;        ///< all other work
  std::vector<Sample> samples_;
};

double elements_of(const Node& tensor) {
  double elements = 1;
  for (const int64_t extent : tensor.type().extents) elements *= static_cast<double>(extent);
  return elements;
}

/// Operations of a vertex: of one with sparse operands, on entries of them.
double operations_of(const Node& vertex) {
  double out = 1;
  if (const auto* call = vertex.as<Call>()) {
    std::vector<Dims> shapes;
    for (const NodePtr& input : vertex.inputs()) shapes.push_back(input->type().extents);
    std::map<char, double> extents;
    for (const auto& [letter, extent] : kernels::call::extents_of(*call, shapes))
      extents[letter] = static_cast<double>(extent);
    out = kernels::call::flops(*call, extents) / 2;
    if (kernels::call::counts_entries(*call)) return out;
  } else {
    std::vector<TensorType> operands;
    for (const NodePtr& input : vertex.inputs()) operands.push_back(input->type());
    for (const auto& [label, extent] : extents_of(*vertex.as<Einsum>(), operands)) out *= static_cast<double>(extent);
  }
  for (const NodePtr& input : vertex.inputs()) {
    const auto& entries = input->type().entries;
    if (entries) out *= std::min(1.0, static_cast<double>(*entries) / std::max(1.0, elements_of(*input)));
  }
  return out;
}

class Work {
 public:
  Work(const Plan& plan, const AxisClasses& classes, const EntrySamples& samples, double operations_of_byte)
      : classes_(classes) {
    for (const NodePtr& node : plan.order()) {
      if (!node->type().entries) add_even(classes_of(*node), kElement * elements_of(*node));
      if (node->as<Input>() == nullptr) add_vertex(*node);
    }
    for (const auto& output : plan.outputs()) {
      const Node& node = *output.node;
      const auto bytes = static_cast<double>(byte_size(node.type().dtype)) * elements_of(node);
      if (!node.type().entries) add_even(classes_of(node), operations_of_byte * bytes);
    }
    for (const NodePtr& input : plan.inputs()) {
      const auto found = samples.find(input->as<Input>()->name);
      if (found == samples.end()) continue;
      JOINSUM_USER_CHECK(found->second.size() == input->type().extents.size(),
                         "balanced_cuts: indices of entries for each axis of the input: input=", found->first);
      for (size_t a = 0; a < found->second.size(); ++a) {
        const auto entries = static_cast<double>(std::max<int64_t>(1, input->type().entries.value_or(1)));
        profiles_[classes.of(*input, a)].add_sample(entries, found->second[a]);
      }
    }
  }

  /// Null where the work lies evenly.
  const Profile* along(int64_t its_class) const {
    const auto found = profiles_.find(its_class);
    return found != profiles_.end() && found->second.uneven() && !classes_.has_new_letter(its_class) ? &found->second
                                                                                                     : nullptr;
  }

 private:
  std::set<int64_t> classes_of(const Node& tensor) const {
    std::set<int64_t> out;
    for (size_t a = 0; a < tensor.type().extents.size(); ++a) out.insert(classes_.of(tensor, a));
    return out;
  }

  void add_even(const std::set<int64_t>& classes, double work) {
    for (const int64_t each : classes) profiles_[each].add_even(work);
  }

  void add_vertex(const Node& vertex) {
    std::set<int64_t> sparse, all = classes_of(vertex);
    for (const NodePtr& input : vertex.inputs()) {
      const std::set<int64_t> own = classes_of(*input);
      all.insert(own.begin(), own.end());
      if (input->type().entries) sparse.insert(own.begin(), own.end());
    }
    const double operations = operations_of(vertex);
    if (sparse.empty()) return add_even(all, kDenseOperation * operations);
    for (const int64_t each : all) {
      if (sparse.contains(each)) {
        profiles_[each].add_of_entries(operations);
      } else {
        profiles_[each].add_even(operations);
      }
    }
  }

  const AxisClasses& classes_;
  std::map<int64_t, Profile> profiles_;
};

/// By class, where it can have the cuts.
std::map<int64_t, CutPoints> cuts_of_stored(const Plan& plan, const AxisClasses& classes,
                                            const std::map<std::string, std::vector<CutPoints>>& stored) {
  std::map<int64_t, CutPoints> found;
  for (const NodePtr& input : plan.inputs()) {
    const auto own = stored.find(input->as<Input>()->name);
    if (own == stored.end()) continue;
    JOINSUM_USER_CHECK(own->second.size() == input->type().extents.size(),
                       "balanced_cuts: cuts for each axis of the stored input: input=", own->first);
    for (size_t a = 0; a < own->second.size(); ++a) {
      const CutPoints& cuts = own->second[a];
      const int64_t its_class = classes.of(*input, a);
      const bool fits = std::ssize(cuts) == classes.parts(*input, a) + 1 && cuts.back() == input->type().extents[a];
      if (fits && !classes.has_new_letter(its_class)) found.emplace(its_class, cuts);
    }
  }
  return found;
}

}  // namespace

std::map<std::string, relation::RelationType> balanced_cuts(
    const Plan& plan, int64_t sites, const EntrySamples& samples, double operations_of_byte,
    const std::map<std::string, relation::RelationType>& current,
    const std::map<std::string, std::vector<CutPoints>>& stored) {
  AxisClasses classes(plan);
  classes.cut(plan, sites);
  const Work work(plan, classes, samples, operations_of_byte);
  std::map<int64_t, CutPoints> found = cuts_of_stored(plan, classes, stored);  // by class
  const auto cuts_of = [&](const Node& input, size_t a) {
    const int64_t its_class = classes.of(input, a), parts = classes.parts(input, a), extent = input.type().extents[a];
    const auto [at, fresh] = found.try_emplace(its_class);
    if (!fresh) return at->second;
    const relation::Axis& axis = current.at(input.as<Input>()->name).axes[a];
    at->second = axis.linked() ? axis.cuts : CutPoints{0, axis.extent};
    const Profile* along = parts > 1 ? work.along(its_class) : nullptr;
    if (along == nullptr) return at->second;
    CutPoints best = along->cuts(extent, parts);
    if (along->busiest(at->second) > kNearly * along->busiest(best)) at->second = std::move(best);
    return at->second;
  };
  std::map<std::string, relation::RelationType> out;
  for (const NodePtr& node : plan.inputs()) {
    const std::string& name = node->as<Input>()->name;
    std::vector<CutPoints> cuts;
    for (size_t a = 0; a < node->type().extents.size(); ++a) cuts.push_back(cuts_of(*node, a));
    out[name] = cut_at("input " + name, node->type(), cuts);
  }
  return out;
}

}  // namespace joinsum::einsum
