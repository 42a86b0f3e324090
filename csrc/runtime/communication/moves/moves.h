#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ia/analysis/exchange.h"
#include "runtime/communication/transport.h"
#include "runtime/storage/relation.h"
#include "runtime/storage/resident_bytes.h"

namespace joinsum::runtime::communication::moves {

/// One stage of a move: its list in boxes, and the messages that carry them, one for each.
struct Stage {
  std::vector<ia::analysis::Transfer> transfers;
  std::vector<Message> messages;
  storage::ReceivedBytes received;  ///< by sites of this process
};

/// What the sites of one process need for a move from one type to another; made once.
struct PreparedMove {
  std::string operation;  ///< the operator as errors name it
  ia::PhysicalType source;
  ia::SharedType target;
  ia::analysis::Exchange exchange;
  Stage reduce;
  Stage gather;
  Stage copy;
  std::map<int64_t, std::vector<Box>> source_boxes;  ///< by sites of this process
  std::map<int64_t, std::vector<Box>> target_boxes;  ///< by sites of this process
  storage::ReceivedBytes received;                   ///< in the stage in which a site receives most
  Counters bytes;                                    ///< of the messages of all stages, from and to this process

  PreparedMove(std::string operation, const ia::PhysicalType& source, const ia::PhysicalType& target,
               const std::vector<int64_t>& local_sites);
};

/// A move to be started, with what it moves.
struct MoveOf {
  const PreparedMove& move;
  const storage::StoredRelation& source;
  bool overwritable = false;  ///< nothing else reads the source from the move's start on
};

/// Moves under way whose messages travel together, stage by stage. All processes make the same calls in one order.
class MovesUnderway {
 public:
  virtual ~MovesUnderway() = default;
  /// Waits for the messages of the stage under way, if there is one, and sends those of the next one.
  virtual void advance() = 0;
  /// False while a collective is under way that nothing needs to wait for yet.
  virtual bool arrived() const = 0;
  /// The relations at their targets. Stages that are left run here.
  virtual std::vector<storage::StoredRelation> finish() = 0;
  /// Waits for the messages of the stage under way and drops them, so that a process whose run has failed can go on if
  /// the others have failed alike. Errors are dropped too.
  virtual void settle() noexcept = 0;
};

/// Sends the messages of the moves' first stages. Sites of one process that end up with the same blocks share them. All
/// arguments outlive the moves.
std::unique_ptr<MovesUnderway> start(const std::vector<MoveOf>& moves, Transport& transport,
                                     storage::BlockStore& store);

}  // namespace joinsum::runtime::communication::moves
