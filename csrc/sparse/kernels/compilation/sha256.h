#pragma once

#include <string>

namespace joinsum::sparse::kernels::compilation {

/// The SHA-256 of a text, as 64 hexadecimal digits. Source: FIPS 180-4.
std::string sha256(const std::string& text);

}  // namespace joinsum::sparse::kernels::compilation
