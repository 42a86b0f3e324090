#include "runtime/communication/moves/messages.h"

namespace joinsum::runtime::communication::moves {

using storage::Block;

Messages::Messages(std::vector<Member*> members, Transport& transport, storage::BlockStore& store)
    : members_(std::move(members)) {
  std::vector<Message> messages;
  for (size_t m = 0; m < members_.size(); ++m) {
    const Stage& stage = members_[m]->stage();
    messages.insert(messages.end(), stage.messages.begin(), stage.messages.end());
    for (const ia::analysis::Transfer& transfer : stage.transfers) transfers_.push_back({m, &transfer});
  }
  if (messages.empty()) return;
  sent_.resize(messages.size());
  places_.resize(messages.size());
  pins_.reserve(messages.size());
  const at::TensorOptions& options = members_.front()->options();
  exchange_ = transport.start(
      operation_of(members_), messages, options,
      [&](size_t i) {
        sent_[i] = members_[transfers_[i].first]->payload(*transfers_[i].second);
        return pins_.emplace_back(sent_[i]).array();
      },
      [&](size_t i, int64_t elements) {
        const auto place = members_[transfers_[i].first]->place_of(*transfers_[i].second);
        if (!place) return store.allocate({elements}, options);
        places_[i] = *place;
        return pins_.emplace_back(*place).array();
      });
}

void Messages::wait(storage::BlockStore& store) {
  std::vector<at::Tensor> arrays(transfers_.size());
  if (exchange_ != nullptr) arrays = exchange_->wait();
  std::vector<std::vector<Block>> blocks(members_.size());
  for (size_t i = 0; i < arrays.size(); ++i) {
    Block& block = blocks[transfers_[i].first].emplace_back();
    if (!arrays[i].defined()) continue;
    if (places_[i].defined()) {
      block = places_[i];
    } else {
      block = sent_[i].defined() ? sent_[i] : store.put(std::move(arrays[i]));
    }
  }
  pins_.clear();
  for (size_t m = 0; m < members_.size(); ++m) members_[m]->receive(blocks[m]);
}

void Messages::settle() noexcept {
  try {
    if (exchange_ != nullptr) exchange_->wait();
  } catch (const std::exception&) {
    return;  // the run's own error says more
  }
}

}  // namespace joinsum::runtime::communication::moves
