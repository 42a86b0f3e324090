#pragma once

#include <string>

#include "base/scanner.h"
#include "ia/type.h"

namespace joinsum::runtime::testing {

/// `f64[8,4]<4,2>` with placement `(0, *)` on the grid of that many sites.
inline ia::PhysicalType physical_type(const std::string& relation_text, const std::string& placement, int64_t sites) {
  const ia::Grid grid = ia::Grid::of_sites(sites);
  const auto type = relation::RelationType::parse(relation_text);
  Scanner scanner(placement);
  return ia::PhysicalType::placed("test", type, grid, ia::Placement::parse(scanner, grid, type.frontier));
}

}  // namespace joinsum::runtime::testing
