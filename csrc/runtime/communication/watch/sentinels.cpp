#include "runtime/communication/watch/sentinels.h"

namespace joinsum::runtime::communication::watch {

std::string reason_of(const std::exception& error) {
  const std::string text = error.what();
  for (const char* sign : {"onnection closed", "ocket closed", "onnection reset", "roken pipe", "onnection refused"}) {
    if (text.find(sign) != std::string::npos) return "connection closed";
  }
  return text.substr(0, text.find('\n'));
}

std::string Sentinels::close_reason(int64_t peer) const {
  const auto receive = receives_.find(peer);
  if (receive == receives_.end()) return {};
  try {
    // After an abort, the wait returns at once, or raises if the connection has closed.
    receive->second->abort();
    receive->second->wait(kForever);
  } catch (const std::exception& e) {
    return reason_of(e);
  }
  return {};
}

void Sentinels::close_connections() {
  constexpr std::chrono::milliseconds kShortest{1};
  for (auto& [peer, receive] : receives_) {
    try {
      // The first wait may only use up an abort.
      if (!receive->wait(kShortest)) receive->wait(kShortest);
    } catch (const std::exception&) {
      continue;
    }
  }
}

}  // namespace joinsum::runtime::communication::watch
