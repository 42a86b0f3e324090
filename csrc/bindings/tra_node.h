#pragma once

#include "tra/nodes.h"

namespace joinsum::bindings {

/// A logical node as Python holds it (pybind11 has no holder of constant objects).
struct TraNodeHandle {
  tra::NodePtr node;
};

}  // namespace joinsum::bindings
