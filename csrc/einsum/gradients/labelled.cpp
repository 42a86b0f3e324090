#include "einsum/gradients/labelled.h"

namespace joinsum::einsum::gradients {

Labels fresh_labels(size_t count) {
  Labels out;
  for (size_t a = 0; a < count; ++a)
    out.push_back(a < 26 ? std::string(1, static_cast<char>('a' + a)) : concatenate("l", a));
  return out;
}

Labelled mapped(const Labelled& x, const Kernel& map) {
  return map == kId ? x : Labelled{make(Einsum{{x.labels}, x.labels, map, kAdd, {}}, {x.node}), x.labels};
}

Labelled conjugate(const Labelled& x) {
  return is_complex(x.node->type().dtype) ? mapped(x, Kernel{"conjugate", {}}) : x;
}

Labelled einsum(const Labelled& x, const Labels& result, const Extents& extents, const Kernel& map,
                const Kernel& aggregate) {
  if (map == kId && result == x.labels) return x;
  Einsum op{{x.labels}, result, map, aggregate, {}};
  for (const std::string& label : without(labels_of({result}), x.labels)) op.extents[label] = extents.at(label);
  return {make(std::move(op), {x.node}), result};
}

Labelled einsum(const Labelled& x, const Labelled& y, const Labels& result, const Extents& extents,
                const Kernel& join) {
  Einsum op{{x.labels, y.labels}, result, join, kAdd, {}};
  for (const std::string& label : without(without(labels_of({result}), x.labels), y.labels)) {
    op.extents[label] = extents.at(label);
  }
  return {make(std::move(op), {x.node, y.node}), result};
}

}  // namespace joinsum::einsum::gradients
