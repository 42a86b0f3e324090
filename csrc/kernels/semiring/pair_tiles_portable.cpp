#include "kernels/semiring/pair_all_tiles.h"

namespace joinsum::kernels::semiring {

/// Vectors of 16 bytes: every processor's that has any.
Tiles portable_tiles(Join join, Reduction reduction, Type type) {
  switch (type) {
    case Type::kInt16:
      return tiles_of<int16_t, 4, 16>(join, reduction);
    case Type::kInt8:
      return tiles_of<int8_t, 4, 16>(join, reduction);
    case Type::kUInt8:
      return tiles_of<uint8_t, 4, 16>(join, reduction);
    default:
      return wide_tiles<4, 16>(join, reduction, type);
  }
}

}  // namespace joinsum::kernels::semiring
