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

/// The inputs of `with_products`, in which nested squares double; at most `most` + 1 are counted.
int64_t inputs_with_products(const TermPtr& term, int64_t most) {
  int64_t count = term->is(Kind::kInput) ? 1 : 0;
  for (const TermPtr& child : term->children) count = std::min(count + inputs_with_products(child, most), most + 1);
  const bool doubled = term->is_map(Operator::kSquare) && !term->children.front()->aggregated;
  return std::min(doubled ? 2 * count : count, most + 1);
}

/// Squares as products and differences as sums where they meet one another.
TermPtr with_products(const Terms& terms, const TermPtr& term) {
  if (term->children.empty()) return term;
  std::vector<TermPtr> children;
  for (const TermPtr& child : term->children) children.push_back(with_products(terms, child));
  if (term->is_map(Operator::kSquare) && !children.front()->aggregated) {
    return terms.map(Operator::kMultiply, {children.front(), children.front()});
  }
  if (term->is_map(Operator::kSubtract)) {
    const TermPtr negative = terms.map(Operator::kMultiply, {terms.literal(-1), children[1]});
    return terms.map(Operator::kAdd, {children[0], negative});
  }
  return terms.with_children(*term, std::move(children));
}

/// `product` with its child number `sum` multiplied out.
TermPtr multiplied_out(const Terms& terms, const Term& product, size_t sum) {
  std::vector<TermPtr> parts;
  for (const TermPtr& part : product.children[sum]->children) {
    std::vector<TermPtr> factors = product.children;
    factors[sum] = part;
    parts.push_back(terms.map(product.op, std::move(factors)));
  }
  return terms.map(product.children[sum]->op, std::move(parts));
}

/// `product` with the factor number `sibling` in each summand of its child number `sum`.
TermPtr moved_in(const Terms& terms, const Term& product, size_t sum, size_t sibling) {
  std::vector<TermPtr> parts;
  for (const TermPtr& part : product.children[sum]->children) {
    parts.push_back(terms.map(product.op, {part, product.children[sibling]}));
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
    if (!distributive || child->children.size() < 2) continue;
    // What is copied has no aggregate, whose index would be bound twice.
    const bool copied_is_plain =
        std::ranges::none_of(term.children, [&](const TermPtr& other) { return other != child && other->aggregated; });
    if (copied_is_plain) sums.push_back(i);
  }
  return sums;
}

void collect_steps(const Terms& terms, const TermPtr& whole, const TermPtr& node, std::vector<TermPtr>& found) {
  for (const size_t sum : sums_of(*node)) {
    for (size_t sibling = 0; sibling < node->children.size(); ++sibling) {
      if (sibling == sum) continue;
      found.push_back(terms.replaced(whole, node, moved_in(terms, *node, sum, sibling)));
    }
  }
  for (const TermPtr& child : node->children) collect_steps(terms, whole, child, found);
}

TermPtr all_out(const Terms& terms, const TermPtr& term, int64_t most_terms) {
  std::vector<TermPtr> children;
  for (const TermPtr& child : term->children) {
    children.push_back(all_out(terms, child, most_terms));
    if (children.back() == nullptr) return nullptr;
  }
  TermPtr out = children.empty() ? term : terms.with_children(*term, std::move(children));
  for (std::vector<size_t> sums = sums_of(*out); !sums.empty(); sums = sums_of(*out)) {
    out = multiplied_out(terms, *out, sums.front());
    if (inputs_of(out) > most_terms) return nullptr;
    if (out->is_map(Operator::kAdd)) return all_out(terms, out, most_terms);
  }
  return out;
}

bool may_be_distributed(const TermPtr& term, int64_t most_terms) {
  return term->aggregated && all_finite(term) && only_sums(term) &&
         inputs_with_products(term, most_terms) <= most_terms;
}

}  // namespace

std::vector<TermPtr> distribution_steps(Terms& terms, const TermPtr& term, int64_t most_terms) {
  if (!may_be_distributed(term, most_terms)) return {};
  std::vector<TermPtr> found;
  const TermPtr products = with_products(terms, term);
  collect_steps(terms, products, products, found);
  std::erase_if(found, [&](const TermPtr& step) { return inputs_of(step) > most_terms; });
  for (TermPtr& step : found) step = terms.renumbered(lifted(terms, step));
  return found;
}

TermPtr wholly_distributed(Terms& terms, const TermPtr& term, int64_t most_terms) {
  if (!may_be_distributed(term, most_terms)) return nullptr;
  const TermPtr products = with_products(terms, term);
  const TermPtr out = all_out(terms, products, most_terms);
  return out == nullptr || out == products ? nullptr : terms.renumbered(lifted(terms, out));
}

}  // namespace joinsum::sparse::logical
