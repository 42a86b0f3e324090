#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "runtime/communication/moves/member.h"

namespace joinsum::runtime::communication::moves {

/// Partials of one dtype, in one array that the backend's own all-reduce adds up while the sites compute.
class BackgroundReduction {
 public:
  BackgroundReduction(std::vector<Member*> members, Transport& transport, storage::BlockStore& store);

  /// False where messages are faster, or the backend has no such collective; nothing has happened then.
  bool started() const { return collective_ != nullptr; }
  bool arrived() const { return collective_->arrived(); }
  /// Hands the sums over.
  void wait();
  void settle() noexcept;

 private:
  std::vector<Member*> members_;
  storage::Block sum_;
  std::optional<storage::Pin> pin_;
  std::unique_ptr<CollectiveHandle> collective_;
};

}  // namespace joinsum::runtime::communication::moves
