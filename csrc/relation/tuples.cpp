#include "relation/tuples.h"

#include <algorithm>
#include <tuple>

#include "base/plan.h"

namespace joinsum::relation {

void sort_bag(Tuples& tuples) {
  std::sort(tuples.begin(), tuples.end(), [](const auto& a, const auto& b) {
    return std::tie(a.first, a.second.shape, a.second.values) < std::tie(b.first, b.second.shape, b.second.values);
  });
}

std::string misfit(const Tuples& tuples, const RelationType& type) {
  const std::vector<Key> keys = type.all_keys();
  if (keys.size() != tuples.size()) return concatenate("tuples=", tuples.size(), ", in the type=", keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto& [key, array] = tuples[i];
    if (key != keys[i]) return concatenate("key=", key_text(key), ", in the type=", key_text(keys[i]));
    const Dims shape = type.array_shape(key);
    if (array.shape != shape) {
      return concatenate("key=", key_text(key), ", shape=", array.shape, ", in the type=", shape);
    }
  }
  return "";
}

Tuples interpreted_input(const std::string& name, const std::map<std::string, Tuples>& arguments,
                         const RelationType& type) {
  Tuples tuples = joinsum::interpreted_input(name, arguments);
  std::stable_sort(tuples.begin(), tuples.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  const std::string wrong = misfit(tuples, type);
  JOINSUM_USER_CHECK(wrong.empty(), "interpret: input does not fit its type: name=", name, ", ", wrong);
  return tuples;
}

}  // namespace joinsum::relation
