#include "base/plan.h"

#include <cctype>

namespace joinsum {

void check_plan_name(const std::string& who, const std::string& name) {
  bool good = !name.empty() && name[0] != '.';
  for (const char c : name) good = good && (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.');
  JOINSUM_USER_CHECK(good, who, ": a name has letters, digits, _ and ., and does not begin with a point: name=`", name,
                     "`");
}

}  // namespace joinsum
