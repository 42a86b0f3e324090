#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/communication/moves/member.h"

namespace joinsum::runtime::communication::moves {

/// Partials of one dtype that all sites hold, reduced in two stages of messages: each site receives its chunk of the
/// others' partials and reduces it, in the order of the sites, and then sends it to the others. Small partials are one
/// array; of a large one the reduction is in place, if nobody else reads it. The messages have as many bytes as those
/// of the members alone.
class ReductionByMessages {
 public:
  /// Sends the partials.
  ReductionByMessages(std::vector<Member*> members, Transport& transport, storage::BlockStore& store);
  ~ReductionByMessages();
  ReductionByMessages(const ReductionByMessages&) = delete;
  ReductionByMessages& operator=(const ReductionByMessages&) = delete;

  bool done() const { return stage_ == Stage::kDone; }
  /// Waits for the partials, and sends what this site has reduced; or waits for what the others have, and hands it
  /// over.
  void advance();
  void settle() noexcept;

 private:
  enum class Stage { kPartials, kReduced, kDone };
  struct Array;

  void add_array(std::vector<Member*> members, bool alone);
  void send();
  void reduce_all(const std::vector<at::Tensor>& received) const;
  void reduce(Array& array, std::vector<at::Tensor> partials) const;

  Transport& transport_;
  storage::BlockStore& store_;
  int64_t site_;
  std::string operation_;
  std::string kernel_;
  at::TensorOptions options_;
  std::vector<std::unique_ptr<Array>> arrays_;
  std::vector<Message> messages_;
  std::unique_ptr<ExchangeHandle> exchange_;
  Stage stage_ = Stage::kPartials;
};

}  // namespace joinsum::runtime::communication::moves
