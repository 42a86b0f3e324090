#include "base/plan.h"

#include <cctype>

namespace joinsum {

void check_plan_name(const std::string& who, const std::string& name) {
  bool good = !name.empty() && (std::isalpha(static_cast<unsigned char>(name[0])) != 0 || name[0] == '_');
  for (const char c : name) good = good && (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.');
  JOINSUM_USER_CHECK(good, who, ": a name is a letter or _, then letters, digits, _ and .: name=`", name, "`");
}

}  // namespace joinsum
