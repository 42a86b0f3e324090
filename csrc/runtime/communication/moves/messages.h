#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/communication/moves/member.h"

namespace joinsum::runtime::communication::moves {

/// The messages of the stages of members of one dtype and device, as one exchange.
class Messages {
 public:
  Messages(std::vector<Member*> members, Transport& transport, storage::BlockStore& store);

  /// Hands the blocks over. What stays in this process is the sender's block.
  void wait(storage::BlockStore& store);
  void settle() noexcept;

 private:
  std::vector<Member*> members_;
  std::vector<std::pair<size_t, const ia::analysis::Transfer*>> transfers_;  ///< by message: its member's position, too
  std::vector<storage::Block> sent_;
  std::vector<storage::Block> places_;  ///< that messages are received into; undefined where the exchange allocates
  std::vector<storage::Pin> pins_;      ///< of what is sent, and of the places
  std::unique_ptr<ExchangeHandle> exchange_;
};

}  // namespace joinsum::runtime::communication::moves
