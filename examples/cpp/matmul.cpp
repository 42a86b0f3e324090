// Multiplies two matrices on eight loopback sites: builds the logical plan, lowers it, prices it, runs it, and compares
// with torch.

#include <iostream>

#include <joinsum/ia/text.h>
#include <joinsum/optimizer/cost/cost.h>
#include <joinsum/runtime/execution/executor.h>
#include <joinsum/tra/lower.h>
#include <joinsum/tra/nodes.h>

namespace tra = joinsum::tra;
namespace ia = joinsum::ia;
namespace relation = joinsum::relation;
namespace runtime = joinsum::runtime;

int main() {
  const at::Tensor x = at::arange(100 * 50, at::kDouble).reshape({100, 50});
  const at::Tensor w = at::arange(50 * 60, at::kDouble).reshape({50, 60});

  const auto left =
      tra::make_input("X", relation::RelationType::of_tensor(joinsum::DType::kFloat64, {100, 50}, {4, 2}));
  const auto right =
      tra::make_input("W", relation::RelationType::of_tensor(joinsum::DType::kFloat64, {50, 60}, {2, 3}));
  const auto joined = tra::make(tra::Join{{1}, {0}, {"matmul", {}}}, {left, right});
  const auto product = tra::make(tra::Aggregate{{0, 2}, {"add", {}}}, {joined});
  const auto logical = tra::Plan::make({{"Z", product, std::nullopt}});

  const ia::Plan physical = tra::lower(logical, ia::Grid::of_sites(8));
  std::cout << logical.text() << '\n' << physical.text() << '\n';
  std::cout << "wire bytes: " << joinsum::optimizer::cost::plan_cost(physical).wire_bytes << '\n';

  runtime::execution::Executor executor(runtime::communication::make_loopback(8),
                                        runtime::storage::make_memory_store());
  const auto& sites = executor.transport().local_sites();
  std::map<std::string, runtime::storage::StoredRelation> inputs;
  for (const auto& input : physical.inputs()) {
    const std::string& name = input->as<ia::Input>()->name;
    inputs.emplace(name, runtime::storage::place_tensor(name == "X" ? x : w, input->type(), sites, executor.store(),
                                                        runtime::storage::Ownership::kShared));
  }
  const auto result = executor.run(physical, inputs);
  const at::Tensor z = runtime::storage::whole_tensor(result.outputs.at("Z"), executor.store());
  const bool equal = at::allclose(z, at::mm(x, w));
  std::cout << "equal to torch: " << (equal ? "yes" : "no") << '\n';
  return equal ? 0 : 1;
}
