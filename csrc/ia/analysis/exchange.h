#pragma once

#include <string>
#include <vector>

#include "ia/type.h"

namespace joinsum::ia::analysis {

/// One message of a move, from one site to another: the elements [begin, end) of the part of a stored box that `box`
/// cuts out, row-major. Where the source holds several tuples of one key, their arrays follow one another.
struct Transfer {
  int64_t from = 0;
  int64_t to = 0;
  Box box;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t elements() const { return end - begin; }
  bool operator==(const Transfer&) const = default;
};

/// A part of a pending relation that one site reduces: the partials of all `holders`, its own among them if it is one.
struct Share {
  int64_t site = 0;
  Box box;
  int64_t begin = 0;
  int64_t end = 0;
  std::vector<int64_t> holders;  ///< ascending: the order of the reduction
};

/// A move in up to three stages. First each share's site receives the partials of pending axes (`reduce`). Where the
/// target replicates them, reduced shares are then sent to the other sites (`gather`). Last the relation moves from the
/// layout `reduced` to its target (`copy`). A move of a relation that is not pending has `copy` alone.
struct Exchange {
  std::string reduction;  ///< kernel of the reduce stage; empty when nothing was pending
  std::vector<Share> shares;
  std::vector<Transfer> reduce;
  std::vector<Transfer> gather;
  PhysicalType reduced;  ///< type between the stages; equals the source when nothing was pending
  std::vector<Transfer> copy;
  int64_t elements() const;
};

/// The messages that take `source` to `target`. Both are types of one relation on one grid; the executor runs this list
/// and the cost sums it. A needed box that is not held is received once, from the holder that shares the longest
/// coordinate prefix with the receiver (ties: receiver mod holders).
Exchange exchange(const PhysicalType& source, const PhysicalType& target);

/// Payload bytes of the move.
int64_t wire_bytes(const PhysicalType& source, const PhysicalType& target);

}  // namespace joinsum::ia::analysis
