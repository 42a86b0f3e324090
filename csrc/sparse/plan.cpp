#include "sparse/plan.h"

#include <algorithm>

#include "sparse/physical/common.h"

namespace joinsum::sparse {
namespace {

std::vector<std::string> names_of(const Program& program) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : program.tensors()) names.push_back(name);
  for (const Query& query : program.queries()) names.push_back(query.name);
  return names;
}

/// Finds queries that an earlier one computes, one after the other, so that what they find counts for the next ones.
void find_common_queries(ProgramPlan& plan) {
  std::map<std::string, std::string> known;
  for (const PlannedQuery& query : plan.queries) {
    for (size_t i = 0; i < query.physical.size(); ++i) {
      const LogicalQuery& logical = query.logical.queries[i];
      const std::string text =
          physical::canonical_text(logical, query.physical[i].formats, query.logical.space, plan.same_as);
      const auto [found, is_new] = known.emplace(text, logical.name);
      if (!is_new) plan.same_as[logical.name] = found->second;
    }
  }
}

}  // namespace

StoredTensors stored_tensors(const Program& program) {
  StoredTensors stored;
  for (const auto& [name, tensor] : program.tensors()) {
    stored[name] = {tensor.nnz, tensor.entries == nullptr ? std::vector<int64_t>() : tensor.entries->axes};
  }
  return stored;
}

logical::Dependencies dependencies_of(const Program& program) {
  logical::Dependencies found;
  for (const Query& query : program.queries()) {
    for (const std::string& name : logical::read_again(query.expression)) {
      const auto tensor = program.tensors().find(name);
      if (tensor != program.tensors().end()) found[name] = logical::dependencies_of(tensor->second);
    }
  }
  return found;
}

Terms::Sources sources_of(const Program& program, const Estimator& estimator) {
  Terms::Sources sources;
  for (const auto& [name, tensor] : program.tensors()) {
    try {
      sources[name] = source_of(tensor, estimator);
    } catch (const PlanError& error) {
      throw PlanError(concatenate(error.what(), ": tensor=", name));
    }
  }
  return sources;
}

ProgramPlan plan(const Program& program, const PlanOptions& options) {
  const EstimatorPtr& estimator = options.logical.estimator;
  Terms::Sources sources = sources_of(program, *estimator);
  std::vector<std::string> taken = names_of(program);
  ProgramPlan plan{.options = options, .stored = stored_tensors(program)};
  LogicalOptions logical = options.logical;
  logical.finite = program.all_finite();
  if (options.dependencies) logical.dependencies = dependencies_of(program);
  for (size_t i = 0; i < program.queries().size(); ++i) {
    const Query& query = program.queries()[i];
    PlannedQuery planned{plan_query(query, program.space(i), sources, taken, logical)};
    planned.physical = plan_kernels(planned.logical, estimator, plan.stored, options.physical);
    sources[query.name] = {planned.logical.result, planned.logical.fill};
    for (const LogicalQuery& each : planned.logical.queries) taken.push_back(each.name);
    plan.cost += planned.logical.cost;
    plan.queries.push_back(std::move(planned));
  }
  find_common_queries(plan);
  return plan;
}

std::vector<std::vector<std::string>> classes_of(const ProgramPlan& plan) {
  std::map<std::string, std::vector<std::string>> members;
  for (const auto& [name, same] : plan.same_as) members[same].push_back(name);
  std::vector<std::vector<std::string>> classes;
  for (auto& [first, others] : members) {
    others.insert(others.begin(), first);
    classes.push_back(std::move(others));
  }
  return classes;
}

double estimate(const ExpressionPtr& expression, const Program& program, const EstimatorPtr& estimator) {
  Readable readable;
  for (const auto& [name, tensor] : program.tensors()) readable[name] = {tensor.shape, tensor.fill};
  const Distinct distinct = with_distinct_indices(expression, {});
  Terms terms(estimator, space_of("estimate", distinct, {}, readable, program.index_sizes(), program.dtype()));
  const TermPtr term = terms.from_expression(distinct.expression, sources_of(program, *estimator));
  return terms.estimate(term);
}

LoopOrder order_costs(const Program& program, size_t query, const std::vector<std::string>& loops,
                      const EstimatorPtr& estimator) {
  const Query& source = program.queries()[query];
  Terms terms(estimator, program.space(query));
  TermPtr body = lifted(terms, terms.from_expression(source.expression, sources_of(program, *estimator)));
  if (body->is(Expression::Kind::kAggregate)) body = body->child();
  JOINSUM_USER_CHECK(!body->aggregated, "order_costs: the query is no single kernel: query=", source.name);
  std::vector<int64_t> order;
  IndexSet wanted = body->free, had = 0;
  for (const std::string& index : source.output) wanted |= only(terms.space().id_of(index));
  for (const std::string& loop : loops) {
    order.push_back(terms.space().id_of(loop));
    JOINSUM_USER_CHECK(!contains(had, order.back()), "order_costs: a loop comes twice: loop=", loop);
    had |= only(order.back());
  }
  for (const int64_t index : members_of(wanted & ~had)) {
    JOINSUM_USER_CHECK(false, "order_costs: a loop is missing: index=", terms.space().names[index]);
  }
  return count_order(terms, body, accesses_of(body, stored_tensors(program)), order);
}

}  // namespace joinsum::sparse
