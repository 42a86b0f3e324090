#pragma once

#include "einsum/nodes.h"

namespace joinsum::bindings {

/// A node as Python holds it (pybind11 has no holder of constant objects).
struct EinsumNodeHandle {
  einsum::NodePtr node;
};

}  // namespace joinsum::bindings
