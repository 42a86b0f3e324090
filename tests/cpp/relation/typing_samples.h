#pragma once

#include <string>

#include <gtest/gtest.h>

#include "relation/typing.h"

namespace joinsum::relation {

inline RelationType relation(const std::string& text) { return RelationType::parse(text); }

inline kernels::table::Kernel kernel(const std::string& text) { return kernels::table::Kernel::parse(text); }

/// What `act` raises.
template <class Act>
std::string error_of(const Act& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace joinsum::relation
