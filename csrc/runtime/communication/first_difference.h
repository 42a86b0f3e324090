#pragma once

#include <string>
#include <vector>

namespace joinsum::runtime::communication {

/// Names the first line that is not the same in all texts, by its number, and shows it for site 0 and for the first
/// site that differs; of long lines, what surrounds the first difference. `texts` has one text per site, not all equal.
std::string first_difference(const std::vector<std::string>& texts);

}  // namespace joinsum::runtime::communication
