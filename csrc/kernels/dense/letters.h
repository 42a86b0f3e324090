#pragma once

#include <algorithm>
#include <iterator>
#include <string>

namespace joinsum::kernels::dense {

/// Whether the letters name this axis.
inline bool has(const std::string& letters, char letter) { return letters.find(letter) != std::string::npos; }

/// Letters of `letters` for which `keep` holds, in order.
template <class Predicate>
std::string select(const std::string& letters, Predicate keep) {
  std::string out;
  std::copy_if(letters.begin(), letters.end(), std::back_inserter(out), keep);
  return out;
}

/// The letters that `used` has not, in order.
inline std::string unused_letters(const std::string& used) {
  return select("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
                [&](char letter) { return !has(used, letter); });
}

}  // namespace joinsum::kernels::dense
