#include "base/dims.h"

#include <algorithm>
#include <limits>

namespace joinsum {
namespace {

__extension__ typedef __int128 Wide;

constexpr int64_t kMostParts = 20'000'000;

}  // namespace

std::string key_text(const Key& key) {
  std::string out = "<";
  for (size_t i = 0; i < key.size(); ++i) out += (i > 0 ? "," : "") + std::to_string(key[i]);
  return out + ">";
}

std::optional<int64_t> position_of(const Dims& dims, int64_t dim) {
  const auto found = std::find(dims.begin(), dims.end(), dim);
  if (found == dims.end()) return std::nullopt;
  return found - dims.begin();
}

Dims complement(const Dims& dims, int64_t arity) {
  Dims out;
  for (int64_t d = 0; d < arity; ++d) {
    if (!position_of(dims, d)) out.push_back(d);
  }
  return out;
}

Dims all_dims(int64_t arity) { return complement({}, arity); }

Key project(const Key& key, const Dims& dims) {
  Key out;
  out.reserve(dims.size());
  for (const int64_t d : dims) out.push_back(key[d]);
  return out;
}

void check_dims(const std::string& who, const std::string& what, const Dims& dims, int64_t arity) {
  for (size_t i = 0; i < dims.size(); ++i) {
    JOINSUM_USER_CHECK(dims[i] >= 0 && dims[i] < arity, who, ": key dimension out of range: ", what, "=", dims,
                       ", key arity=", arity);
    JOINSUM_USER_CHECK(std::find(dims.begin(), dims.begin() + i, dims[i]) == dims.begin() + i, who,
                       ": key dimension named twice: ", what, "=", dims);
  }
}

int64_t checked_product(const std::string& who, const Dims& extents) {
  int64_t product = 1;
  for (const int64_t extent : extents) {
    if (extent == 0) return 0;
  }
  for (const int64_t extent : extents) {
    JOINSUM_USER_CHECK(!__builtin_mul_overflow(product, extent, &product), who,
                       ": size exceeds 64 bits: extents=", extents);
  }
  return product;
}

int64_t part_begin(int64_t extent, int64_t parts, int64_t part) {
  const auto wide = static_cast<Wide>(part) * extent;
  return static_cast<int64_t>((wide + parts - 1) / parts);
}

int64_t part_of(int64_t extent, int64_t parts, int64_t index) {
  return static_cast<int64_t>(static_cast<Wide>(index) * parts / extent);
}

CutPoints even_cuts(int64_t extent, int64_t parts) {
  JOINSUM_USER_CHECK(extent >= 0, "cut: negative extent: extent=", extent);
  JOINSUM_USER_CHECK(parts >= 1, "cut: an axis needs at least one part: parts=", parts);
  parts = std::max<int64_t>(1, std::min(parts, extent));
  JOINSUM_USER_CHECK(parts <= kMostParts, "cut: too many parts: parts=", parts, ", at most=", kMostParts);
  CutPoints cuts(parts + 1);
  for (int64_t i = 0; i <= parts; ++i) cuts[i] = part_begin(extent, parts, i);
  return cuts;
}

Box Box::single(const Key& key) {
  Box box{key, key};
  for (int64_t& component : box.upper) ++component;
  return box;
}

Dims Box::extents() const {
  Dims out(lower.size());
  for (size_t d = 0; d < lower.size(); ++d) out[d] = upper[d] - lower[d];
  return out;
}

int64_t Box::count() const {
  if (empty()) return 0;
  return checked_product("box", extents());
}

bool Box::empty() const {
  for (size_t d = 0; d < lower.size(); ++d) {
    if (upper[d] <= lower[d]) return true;
  }
  return false;
}

bool Box::contains(const Key& key) const {
  for (size_t d = 0; d < lower.size(); ++d) {
    if (key[d] < lower[d] || key[d] >= upper[d]) return false;
  }
  return true;
}

bool Box::contains(const Box& other) const { return other.empty() || intersect(other) == other; }

Box Box::intersect(const Box& other) const {
  Box out = *this;
  out.cut_to(other);
  return out;
}

void Box::cut_to(const Box& other) {
  for (size_t d = 0; d < lower.size(); ++d) {
    lower[d] = std::max(lower[d], other.lower[d]);
    upper[d] = std::max(lower[d], std::min(upper[d], other.upper[d]));
  }
}

std::string Box::text() const { return key_text(lower) + ".." + key_text(upper); }

void for_each_key(const Box& box, const std::function<void(const Key&)>& visit) {
  if (box.empty()) return;
  Key key = box.lower;
  for (;;) {
    visit(key);
    int64_t d = box.arity() - 1;
    while (d >= 0 && ++key[d] == box.upper[d]) {
      key[d] = box.lower[d];
      --d;
    }
    if (d < 0) return;
  }
}

std::vector<Key> keys_of(const Box& box) {
  std::vector<Key> keys;
  keys.reserve(box.count());
  for_each_key(box, [&](const Key& key) { keys.push_back(key); });
  return keys;
}

uint64_t hash_mix(uint64_t seed, uint64_t value) {
  constexpr uint64_t kPrime = 1099511628211ULL;
  for (int byte = 0; byte < 8; ++byte) {
    seed = (seed ^ (value & 0xff)) * kPrime;
    value >>= 8;
  }
  return seed;
}

uint64_t hash_text(const std::string& text) {
  constexpr uint64_t kOffset = 14695981039346656037ULL;
  constexpr uint64_t kPrime = 1099511628211ULL;
  uint64_t hash = kOffset;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * kPrime;
  return hash;
}

}  // namespace joinsum
