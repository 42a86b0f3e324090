#pragma once

#include <optional>
#include <string>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "runtime/communication/transport.h"

namespace joinsum::runtime::communication {

/// Whether a c10d backend's own collective is used instead of messages, for arrays of that type.
bool uses_native(Collectives policy, const std::string& backend, const CollectiveCall& call, at::ScalarType type);

/// The same for a collective that runs while the sites compute.
bool uses_native_in_background(Collectives policy, const std::string& backend, const CollectiveCall& call,
                               at::ScalarType type);

/// A collective of a c10d backend that has been started.
struct NativeCollective {
  c10::intrusive_ptr<c10d::Work> work;
  at::Tensor result;  ///< complete once `work` is
};

/// Starts the collective on all ranks of the backend; `array` must be on its device and is not written to.
NativeCollective start_native(c10d::Backend& backend, const CollectiveCall& call, const at::Tensor& array);
/// An all-reduce whose result overwrites the contiguous `array`.
NativeCollective start_all_reduce_in_place(c10d::Backend& backend, const CollectiveCall& call, const at::Tensor& array);

/// Bytes that the messages of the same collective would move for the site at position `rank` of the group.
Counters message_bytes(const CollectiveCall& call, const at::Tensor& array, int64_t rank);

}  // namespace joinsum::runtime::communication
