#include "sparse/logical/distribution.h"

#include <algorithm>
#include <cmath>

namespace joinsum::sparse::logical {
namespace {

using Kind = Expression::Kind;

int64_t inputs_of(const TermPtr& term) {
  int64_t count = term->is(Kind::kInput) ? 1 : 0;
  for (const TermPtr& child : term->children) count += inputs_of(child);
  return count;
}

/// Fills at infinity: sums of products may then be no numbers where products of sums are.
bool all_finite(const TermPtr& term) {
  return std::isfinite(term->fill) && std::ranges::all_of(term->children, all_finite);
}

/// Whether every aggregate is a sum: of a maximum or minimum, products that cancel each other would be all that is
/// left.
bool only_sums(const TermPtr& term) {
  if (term->is(Kind::kAggregate) && term->op != Operator::kAdd) return false;
  return std::ranges::all_of(term->children, only_sums);
}

/// Copies terms whose aggregates get indices of their own.
class Copies {
 public:
  Copies(Terms& terms, const TermPtr& whole) : terms_(terms) { collect(whole); }

  /// Null where there would be more indices than there may be.
  TermPtr copied(const TermPtr& term) {
    if (!term->aggregated) return term;
    std::vector<TermPtr> children;
    for (const TermPtr& child : term->children) {
      children.push_back(copied(child));
      if (children.back() == nullptr) return nullptr;
    }
    if (!term->is(Kind::kAggregate)) return terms_.with_children(*term, std::move(children));
    std::vector<int64_t> indices;
    for (const int64_t index : term->indices) {
      indices.push_back(unused(index));
      if (indices.back() < 0) return nullptr;
      children.front() = terms_.renamed(children.front(), index, indices.back());
    }
    return terms_.aggregate(term->op, std::move(indices), children.front());
  }

 private:
  void collect(const TermPtr& term) {
    used_ |= term->free;
    for (const TermPtr& child : term->children) collect(child);
  }

  /// -1: there are too many.
  int64_t unused(int64_t index) {
    for (int64_t copy = 1;; ++copy) {
      const bool is_known = terms_.space().paths.contains({index, -copy});
      if (!is_known && terms_.space().count() >= kMostIndices) return -1;
      const int64_t found = terms_.space().copy_of(index, copy);
      if ((used_ & only(found)) != 0) continue;
      used_ |= only(found);
      return found;
    }
  }

  Terms& terms_;
  IndexSet used_ = 0;
};

/// The inputs of `with_products`, in which nested squares double; at most `most` + 1 are counted.
int64_t inputs_with_products(const TermPtr& term, int64_t most) {
  int64_t count = term->is(Kind::kInput) ? 1 : 0;
  for (const TermPtr& child : term->children) count = std::min(count + inputs_with_products(child, most), most + 1);
  return std::min(term->is_map(Operator::kSquare) ? 2 * count : count, most + 1);
}

/// Squares as products and differences as sums where they meet one another.
TermPtr with_products(const Terms& terms, const TermPtr& term, Copies& copies) {
  if (term->children.empty()) return term;
  std::vector<TermPtr> children;
  for (const TermPtr& child : term->children) children.push_back(with_products(terms, child, copies));
  if (term->is_map(Operator::kSquare)) {
    const TermPtr other = copies.copied(children.front());
    if (other != nullptr) return terms.map(Operator::kMultiply, {children.front(), other});
  }
  if (term->is_map(Operator::kSubtract)) {
    const TermPtr negative = terms.map(Operator::kMultiply, {terms.literal(-1), children[1]});
    return terms.map(Operator::kAdd, {children[0], negative});
  }
  return terms.with_children(*term, std::move(children));
}

/// `product` with its child number `sum` multiplied out; null where its factors cannot be copied.
TermPtr multiplied_out(const Terms& terms, const Term& product, size_t sum, Copies& copies) {
  std::vector<TermPtr> parts;
  for (const TermPtr& part : product.children[sum]->children) {
    std::vector<TermPtr> factors = product.children;
    factors[sum] = part;
    for (size_t i = 0; i < factors.size() && !parts.empty(); ++i) {
      if (i != sum) factors[i] = copies.copied(factors[i]);
      if (factors[i] == nullptr) return nullptr;
    }
    parts.push_back(terms.map(product.op, std::move(factors)));
  }
  return terms.map(product.children[sum]->op, std::move(parts));
}

/// `product` with the factor number `sibling` in each summand of its child number `sum`; null where it cannot be
/// copied.
TermPtr moved_in(const Terms& terms, const Term& product, size_t sum, size_t sibling, Copies copies) {
  std::vector<TermPtr> parts;
  for (const TermPtr& part : product.children[sum]->children) {
    const TermPtr& factor = product.children[sibling];
    const TermPtr own = parts.empty() ? factor : copies.copied(factor);
    if (own == nullptr) return nullptr;
    parts.push_back(terms.map(product.op, {part, own}));
  }
  std::vector<TermPtr> factors = product.children;
  factors[sum] = terms.map(product.children[sum]->op, std::move(parts));
  factors.erase(factors.begin() + static_cast<std::ptrdiff_t>(sibling));
  return terms.map(product.op, std::move(factors));
}

/// The children of a map that can be multiplied out.
std::vector<size_t> sums_of(const Term& term) {
  std::vector<size_t> sums;
  if (!term.is(Kind::kMap)) return sums;
  for (size_t i = 0; i < term.children.size(); ++i) {
    const TermPtr& child = term.children[i];
    // Only `*` over `+`: the other pairs are idempotent, where factoring is never worse.
    const bool distributive = term.op == Operator::kMultiply && child->is_map(Operator::kAdd);
    if (distributive && child->children.size() >= 2) sums.push_back(i);
  }
  return sums;
}

/// A term after a step, and about how many entries the factor has that moved.
struct Step {
  TermPtr term;
  double entries = 0;
};

void collect_steps(const Terms& terms, const TermPtr& whole, const TermPtr& node, const Copies& copies,
                   std::vector<Step>& found) {
  for (const size_t sum : sums_of(*node)) {
    for (size_t sibling = 0; sibling < node->children.size(); ++sibling) {
      if (sibling == sum) continue;
      const TermPtr moved = moved_in(terms, *node, sum, sibling, copies);
      if (moved == nullptr) continue;
      found.push_back({terms.replaced(whole, node, moved), terms.estimate(node->children[sibling])});
    }
  }
  for (const TermPtr& child : node->children) collect_steps(terms, whole, child, copies, found);
}

TermPtr all_out(const Terms& terms, const TermPtr& term, int64_t most_terms, Copies& copies) {
  std::vector<TermPtr> children;
  for (const TermPtr& child : term->children) {
    children.push_back(all_out(terms, child, most_terms, copies));
    if (children.back() == nullptr) return nullptr;
  }
  TermPtr out = children.empty() ? term : terms.with_children(*term, std::move(children));
  for (std::vector<size_t> sums = sums_of(*out); !sums.empty(); sums = sums_of(*out)) {
    out = multiplied_out(terms, *out, sums.front(), copies);
    if (out == nullptr || inputs_of(out) > most_terms) return nullptr;
    if (out->is_map(Operator::kAdd)) return all_out(terms, out, most_terms, copies);
  }
  return out;
}

TermPtr normal_form(Terms& terms, const TermPtr& term, const Dependencies& dependencies) {
  return terms.renumbered(with_unified_indices(terms, lifted(terms, term), dependencies));
}

bool may_be_distributed(const TermPtr& term, int64_t most_terms) {
  return term->aggregated && all_finite(term) && only_sums(term) &&
         inputs_with_products(term, most_terms) <= most_terms;
}

}  // namespace

std::vector<TermPtr> distribution_steps(Terms& terms, const TermPtr& term, int64_t most_terms,
                                        const Dependencies& dependencies) {
  if (!may_be_distributed(term, most_terms)) return {};
  std::vector<Step> found;
  Copies copies(terms, term);
  const TermPtr products = with_products(terms, term, copies);
  collect_steps(terms, products, products, copies, found);
  std::erase_if(found, [&](const Step& step) { return inputs_of(step.term) > most_terms; });
  std::ranges::stable_sort(found, {}, &Step::entries);
  std::vector<TermPtr> out;
  for (const Step& step : found) out.push_back(normal_form(terms, step.term, dependencies));
  return out;
}

TermPtr wholly_distributed(Terms& terms, const TermPtr& term, int64_t most_terms, const Dependencies& dependencies) {
  if (!may_be_distributed(term, most_terms)) return nullptr;
  Copies copies(terms, term);
  const TermPtr products = with_products(terms, term, copies);
  const TermPtr out = all_out(terms, products, most_terms, copies);
  return out == nullptr || out == products ? nullptr : normal_form(terms, out, dependencies);
}

}  // namespace joinsum::sparse::logical
