#include "runtime/communication/moves/reduction_by_messages.h"

#include <numeric>

#include "ia/analysis/schedule.h"

namespace joinsum::runtime::communication::moves {

using storage::Block;
using storage::Pin;

/// A flat array with a chunk for each site.
struct ReductionByMessages::Array {
  std::vector<Member*> members;
  bool in_place;
  Block block;
  Pin pin;
  std::vector<int64_t> begins;  ///< of the sites' chunks, and the end of the last one

  Array(std::vector<Member*> of, bool alone, Block elements, int64_t sites)
      : members(std::move(of)), in_place(alone), block(std::move(elements)), pin(block), begins(sites + 1) {
    for (const Member* member : members) {
      const std::vector<int64_t> chunks = member->reduced_elements();
      for (int64_t site = 0; site < sites; ++site) begins[site + 1] += chunks[site];
    }
    std::partial_sum(begins.begin(), begins.end(), begins.begin());
  }

  at::Tensor chunk(int64_t site) const { return pin.array().narrow(0, begins[site], elements(site)); }
  int64_t elements(int64_t site) const { return begins[site + 1] - begins[site]; }
};

ReductionByMessages::ReductionByMessages(std::vector<Member*> members, Transport& transport, storage::BlockStore& store)
    : transport_(transport),
      store_(store),
      site_(transport.local_sites().front()),
      operation_(operation_of(members)),
      kernel_(*members.front()->all_reduction()),
      options_(members.front()->options()) {
  std::vector<Member*> small;
  for (Member* member : members) {
    member->partial().bytes() < ia::analysis::kSeparateBytes ? small.push_back(member) : add_array({member}, true);
  }
  if (!small.empty()) add_array(std::move(small), false);
  for (Member* member : members) member->join_reduction();
  send();
}

ReductionByMessages::~ReductionByMessages() = default;

/// The partial itself, where it is alone, may be overwritten and is one stretch of memory; else a copy.
void ReductionByMessages::add_array(std::vector<Member*> members, bool alone) {
  if (alone && members.front()->partial_is_overwritable()) {
    const Block& partial = members.front()->partial();
    if (partial.contiguous()) {
      const Block flat = *partial.viewed_as({partial.elements()});
      arrays_.push_back(std::make_unique<Array>(std::move(members), true, flat, transport_.sites()));
      return;
    }
  }
  int64_t elements = 0;
  for (const Member* member : members) elements += member->partial().elements();
  at::Tensor array = store_.allocate({elements}, options_);
  join_partials(members, array);
  arrays_.push_back(
      std::make_unique<Array>(std::move(members), false, store_.put(std::move(array)), transport_.sites()));
}

/// Each site's partials to those that reduce them, or what each has reduced to all others.
void ReductionByMessages::send() {
  messages_.clear();
  std::vector<const Array*> of;
  const int64_t sites = transport_.sites();
  for (const auto& array : arrays_) {
    for (int64_t from = 0; from < sites; ++from) {
      for (int64_t to = 0; to < sites; ++to) {
        if (from == to) continue;
        const int64_t elements = array->elements(stage_ == Stage::kPartials ? to : from);
        messages_.push_back({from, to, elements * static_cast<int64_t>(options_.dtype().itemsize())});
        of.push_back(array.get());
      }
    }
  }
  exchange_ = transport_.start(
      operation_, messages_, options_,
      [&](size_t i) { return of[i]->chunk(stage_ == Stage::kPartials ? messages_[i].to : messages_[i].from); },
      [&](size_t i, int64_t elements) {
        return stage_ == Stage::kPartials ? store_.allocate({elements}, options_) : of[i]->chunk(messages_[i].from);
      });
}

void ReductionByMessages::advance() {
  const std::vector<at::Tensor> received = exchange_->wait();
  if (stage_ == Stage::kPartials) {
    reduce_all(received);
    stage_ = Stage::kReduced;
    return send();
  }
  stage_ = Stage::kDone;
  for (const auto& array : arrays_) {
    if (!array->in_place) {
      hand_over(array->members, array->block);
    } else {
      const Block partial = array->members.front()->partial();
      array->members.front()->leave_reduction(partial, true);
    }
  }
}

/// `received` by message.
void ReductionByMessages::reduce_all(const std::vector<at::Tensor>& received) const {
  const auto each = static_cast<size_t>(transport_.sites() * (transport_.sites() - 1));
  for (size_t a = 0; a < arrays_.size(); ++a) {
    std::vector<at::Tensor> others(transport_.sites());
    for (size_t i = a * each; i < (a + 1) * each; ++i) {
      if (messages_[i].to == site_) others[messages_[i].from] = received[i];
    }
    reduce(*arrays_[a], std::move(others));
  }
}

/// In the order of the sites, into this site's chunk.
void ReductionByMessages::reduce(Array& array, std::vector<at::Tensor> partials) const {
  const at::Tensor own = array.chunk(site_);
  if (own.numel() == 0) return;
  partials[site_] = own;
  reduce_into(kernel_, partials, own);
}

void ReductionByMessages::settle() noexcept {
  try {
    if (exchange_ != nullptr && !done()) exchange_->wait();
  } catch (const std::exception&) {
    return;  // the run's own error says more
  }
}

}  // namespace joinsum::runtime::communication::moves
