#include "sparse/physical/common.h"

#include <algorithm>
#include <bit>
#include <unordered_map>

namespace joinsum::sparse::physical {
namespace {

using Kind = Expression::Kind;

/// Gives indices numbers that do not depend on their names: first by where the query has them, then again and again by
/// where the leaves have them beside which others.
class Numbering {
 public:
  Numbering(const LogicalQuery& query, const IndexSpace& space, const std::map<std::string, std::string>& same_as)
      : query_(query), same_as_(same_as), colors_(space.count(), 1) {
    for (size_t i = 0; i < query.output.size(); ++i) colors_[query.output[i]] = hash_mix(2, i);
    for (int64_t index = 0; index < space.count(); ++index) {
      colors_[index] = hash_mix(colors_[index], static_cast<uint64_t>(space.sizes[index]));
    }
    hash_all(query_.body);
    for (int64_t round = 0; round < space.count(); ++round) refine();
  }

  std::string text() {
    std::string out;
    write(query_.body, out);
    out += query_.op ? " by " + name_of(*query_.op) : "";
    for (const int64_t index : query_.output) out += concatenate(" ", number_of(index));
    return out;
  }

 private:
  const std::string& tensor_of(const TermPtr& leaf) const {
    const auto found = same_as_.find(leaf->tensor);
    return found == same_as_.end() ? leaf->tensor : found->second;
  }

  uint64_t hash_of(const TermPtr& term) const { return hashes_.at(term.get()); }

  /// Hashes every node, children first.
  void hash_all(const TermPtr& term) {
    for (const TermPtr& child : term->children) hash_all(child);
    uint64_t hash = hash_mix(static_cast<uint64_t>(term->kind), static_cast<uint64_t>(term->op));
    if (term->is(Kind::kLiteral)) hash = hash_mix(hash, std::bit_cast<uint64_t>(term->fill));
    if (term->is(Kind::kInput)) {
      hash = hash_mix(hash, hash_text(tensor_of(term)));
      for (const int64_t index : term->indices) hash = hash_mix(hash, colors_[index]);
    }
    for (const TermPtr& child : ordered(term)) hash = hash_mix(hash, hash_of(child));
    hashes_[term.get()] = hash;
  }

  std::vector<TermPtr> ordered(const TermPtr& term) const {
    std::vector<TermPtr> children = term->children;
    if (term->is(Kind::kMap) && is_commutative(term->op)) {
      std::ranges::stable_sort(children, {}, [&](const TermPtr& child) { return hash_of(child); });
    }
    return children;
  }

  void refine() {
    hash_all(query_.body);
    std::vector<uint64_t> sums(colors_.size(), 0);
    visit(query_.body, 1, sums);
    for (size_t i = 0; i < colors_.size(); ++i) colors_[i] = hash_mix(colors_[i], sums[i]);
    hash_all(query_.body);
  }

  /// Adds, for each occurrence of an index in a leaf, where that stands; sums do not depend on the order.
  void visit(const TermPtr& term, uint64_t above, std::vector<uint64_t>& sums) const {
    const uint64_t here = hash_mix(above, hash_of(term));
    if (term->is(Kind::kInput)) {
      for (size_t axis = 0; axis < term->indices.size(); ++axis) sums[term->indices[axis]] += hash_mix(here, axis);
    }
    for (size_t i = 0; i < term->children.size(); ++i) {
      visit(term->children[i], is_commutative(term->op) ? here : hash_mix(here, i), sums);
    }
  }

  int64_t number_of(int64_t index) {
    return numbers_.emplace(index, static_cast<int64_t>(numbers_.size())).first->second;
  }

  void write(const TermPtr& term, std::string& out) {
    if (term->is(Kind::kLiteral)) {
      out += concatenate("#", std::bit_cast<uint64_t>(term->fill));
      return;
    }
    if (term->is(Kind::kInput)) {
      out += tensor_of(term) + "[";
      for (const int64_t index : term->indices) out += concatenate(number_of(index), ",");
      out += "]";
      return;
    }
    out += name_of(term->op) + "(";
    for (const TermPtr& child : ordered(term)) {
      write(child, out);
      out += ";";
    }
    out += ")";
  }

  const LogicalQuery& query_;
  const std::map<std::string, std::string>& same_as_;
  std::vector<uint64_t> colors_;
  std::unordered_map<const logical::Term*, uint64_t> hashes_;
  std::map<int64_t, int64_t> numbers_;
};

}  // namespace

std::string canonical_text(const LogicalQuery& query, const std::vector<LevelFormat>& formats, const IndexSpace& space,
                           const std::map<std::string, std::string>& same_as) {
  std::string text = Numbering(query, space, same_as).text();
  for (const int64_t index : query.output) text += concatenate(" ", space.sizes[index]);
  for (const LevelFormat format : formats) text += " " + name_of(format);
  return text;
}

}  // namespace joinsum::sparse::physical
