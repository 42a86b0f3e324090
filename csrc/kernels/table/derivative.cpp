#include "kernels/table/derivative.h"

#include <algorithm>

namespace joinsum::kernels::table {
namespace {

Formula parse_formula(Scanner& scanner) {
  Formula out{Kernel::parse(scanner)};
  if (!scanner.accept("(")) return out;
  do {
    out.operands.push_back(parse_formula(scanner));
  } while (scanner.accept(","));
  scanner.expect(")");
  return out;
}

}  // namespace

Formula Formula::parse(const std::string& text) {
  Scanner scanner(text);
  Formula out = parse_formula(scanner);
  if (!scanner.at_end()) scanner.fail("expected the end of the formula");
  return out;
}

bool Formula::reads(const std::string& name) const {
  return is(name) ||
         std::any_of(operands.begin(), operands.end(), [&](const Formula& operand) { return operand.reads(name); });
}

std::optional<Formula> derivative(const Kernel& kernel, size_t operand) {
  const std::vector<std::string>& formulas = row_of(kernel).derivative;
  if (formulas.empty()) return std::nullopt;
  return Formula::parse(formulas[std::min(operand, formulas.size() - 1)]);
}

}  // namespace joinsum::kernels::table
