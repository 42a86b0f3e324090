#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "ia/nodes.h"
#include "kernels/torch_call/torch_call.h"
#include "runtime/storage/block_store.h"
#include "runtime/storage/relation.h"

namespace joinsum::runtime::execution::local {

/// What an operator reads on one site: the operand's relation type and its blocks.
struct Operand {
  const relation::RelationType& type;
  std::vector<storage::Piece> pieces;
  bool overwritable = false;  ///< whether the operator may write its result into the blocks
};

/// One tuple, or one box of tuples, with the array of a block that is pinned, or that has not been stored yet.
struct PinnedPiece {
  Box box;
  at::Tensor array;
};

/// An operand whose blocks are pinned while this lives.
class PinnedOperand {
 public:
  explicit PinnedOperand(Operand operand);
  /// Arrays that nothing else refers to.
  explicit PinnedOperand(std::vector<PinnedPiece> own) : pieces(std::move(own)) {}

  std::vector<PinnedPiece> pieces;
  bool overwritable = false;

 private:
  std::vector<storage::Pin> pins_;
};

/// The array of an operand that is one box on the site, pinned.
struct PartOperand {
  at::Tensor array;
  bool overwritable = false;
};

class FoundWinners;

/// What a run gives the operators of its plan.
struct RunContext {
  const kernels::table::Scalars& scalars;
  storage::BlockStore& store;
  int64_t& flops;  ///< added to
  FoundWinners& winners;
};

/// An operator's work on a site where it is one part: each operand is one box, and so is the result, whose array this
/// gives. What follows from the boxes has been worked out.
using OnePart = std::function<at::Tensor(c10::ArrayRef<PartOperand> operands, const RunContext& context)>;

/// An operator of the implementation algebra on the blocks of one site, made once for a plan: its kernel calls with
/// their modes and layouts. It runs a kernel on whole boxes where the kernel treats the parts of a cut axis alike, and
/// key by key where it does not.
class LocalOperator {
 public:
  virtual ~LocalOperator() = default;
  virtual std::vector<PinnedPiece> run(const std::vector<PinnedOperand>& operands, const std::vector<Box>& boxes,
                                       const RunContext& context) const = 0;
  /// The same where `operands` have these boxes and the result is `result`; nothing where that is not one part of the
  /// operator's work, or the operator does not say. Lives no longer than the operator.
  virtual OnePart on(const std::vector<Box>& /*operands*/, const Box& /*result*/) const { return {}; }
  /// How the kernel goes through the key dimensions: `modes=[whole, batch, single]`.
  virtual std::string text() const = 0;
};
using LocalOperatorPtr = std::unique_ptr<const LocalOperator>;

/// The operators of a plan, whose nodes and types outlive what is made here.
LocalOperatorPtr prepare_join(const ia::LocalJoin& op, const relation::RelationType& left,
                              const relation::RelationType& right);
/// `aggregate`, the reduction of a join whose kernel is a contraction by the same reduction; the joined relation is not
/// materialized.
LocalOperatorPtr prepare_contraction(const ia::LocalJoin& op, const ia::LocalAggregate& aggregate,
                                     const relation::RelationType& left, const relation::RelationType& right,
                                     const relation::RelationType& joined);
/// Adds a contraction times a number to a value, in its memory where that may be overwritten; operands are the value,
/// the number and those of the contraction.
LocalOperatorPtr prepare_added_contraction(const ia::LocalJoin& op, const ia::LocalAggregate& aggregate,
                                           const relation::RelationType& left, const relation::RelationType& right,
                                           const relation::RelationType& joined);
/// `aggregate`, the reduction of the keys of axes that `map` reduces, as one with it; `mapped` is the map's type.
LocalOperatorPtr prepare_reduction(const ia::LocalMap& map, const ia::LocalAggregate& aggregate,
                                   const relation::RelationType& input, const relation::RelationType& mapped);
LocalOperatorPtr prepare_aggregate(const ia::LocalAggregate& op, const relation::RelationType& input);
LocalOperatorPtr prepare_filter(const ia::LocalFilter& op, const relation::RelationType& input);
LocalOperatorPtr prepare_upsert(const relation::RelationType& base, const relation::RelationType& updates,
                                const relation::RelationType& result);
LocalOperatorPtr prepare_map(const ia::LocalMap& op, const relation::RelationType& input);

/// The kernels that follow the first one of an operator, on its results.
class Epilogue {
 public:
  /// `type` is that of the results of `kernel.first()`.
  Epilogue(const kernels::table::Kernel& kernel, const relation::RelationType& type);
  std::vector<PinnedPiece> run(std::vector<PinnedPiece> pieces, const RunContext& context) const;
  /// `part`, whose result is `box`, followed by these kernels; nothing where they do not work on that in one part.
  OnePart after(OnePart part, const Box& box) const;

 private:
  std::list<ia::LocalMap> maps_;
  std::list<relation::RelationType> types_;
  std::vector<LocalOperatorPtr> operators_;
};

/// A call of an operator of torch's, with all its results.
class CallOperator {
 public:
  /// `boxes`: of each operand, by site.
  CallOperator(const kernels::call::Call& call, const std::vector<const relation::RelationType*>& operands,
               const std::map<int64_t, std::vector<Box>>& boxes);
  /// The arrays of all results on a site, whose operands are one box each. The first run lets torch allocate them,
  /// which shows their shapes and dtypes.
  std::vector<at::Tensor> run(int64_t site, c10::ArrayRef<PartOperand> operands, const RunContext& context) const;

 private:
  /// What a site does.
  struct OnSite {
    std::map<char, int64_t> begins;  ///< by letter
    double flops = 0;
    std::vector<Dims> shapes;          ///< of the results
    std::map<size_t, double> entries;  ///< that flops count of each sparse operand

    /// Of operands with the entries that they have.
    int64_t flops_of(const std::vector<at::Tensor>& operands) const;
  };
  std::vector<at::Tensor> arrays_for_results(const OnSite& own, c10::ArrayRef<PartOperand> operands,
                                             const RunContext& context) const;

  kernels::torch_call::PreparedCall prepared_;
  std::map<int64_t, OnSite> sites_;
  mutable std::atomic<bool> checked_ = false;  ///< whether a run has checked the results' shapes and dtypes
};

}  // namespace joinsum::runtime::execution::local
