#include "runtime/communication/moves/background_reduction.h"

namespace joinsum::runtime::communication::moves {

BackgroundReduction::BackgroundReduction(std::vector<Member*> members, Transport& transport, storage::BlockStore& store)
    : members_(std::move(members)) {
  int64_t elements = 0;
  Counters bytes;
  for (const Member* member : members_) {
    elements += member->partial().elements();
    bytes.sent += member->bytes().sent;
    bytes.received += member->bytes().received;
  }
  const Member& first = *members_.front();
  const CollectiveCall call{Collective::kAllReduce, operation_of(members_),
                            SubGrids::all(transport.sites()).groups()[0], *first.all_reduction()};
  collective_ = transport.start_in_background(call, first.options(), elements, bytes, [&] {
    at::Tensor array = store.allocate({elements}, first.options());
    join_partials(members_, array);
    sum_ = store.put(std::move(array));
    return pin_.emplace(sum_).array();
  });
  if (collective_ == nullptr) return;
  for (Member* member : members_) member->join_reduction();
}

void BackgroundReduction::wait() {
  collective_->wait();
  collective_.reset();
  pin_.reset();
  hand_over(members_, sum_);
}

void BackgroundReduction::settle() noexcept {
  try {
    if (collective_ != nullptr) collective_->wait();
  } catch (const std::exception&) {
    return;  // the run's own error says more
  }
}

}  // namespace joinsum::runtime::communication::moves
