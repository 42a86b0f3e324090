#pragma once

#include <map>
#include <string>
#include <vector>

#include "sparse/plan.h"

namespace joinsum::sparse {

/// A logical query as a vertex of a graph that sites divide: a kernel over operands whose indices have letters. Every
/// letter of the result may be divided; one that the query reduces leaves partial results.
struct SiteQuery {
  std::string name;
  std::vector<std::string> tensors;   ///< of each operand: a tensor of the program, or an earlier query
  std::vector<std::string> operands;  ///< letters of its axes, each once
  /// Of each operand that is a diagonal of its tensor, the tensor's axes of each letter; else empty.
  std::vector<std::vector<std::vector<int64_t>>> diagonals;
  std::string expression;                   ///< over x0, x1, ... and letters: `+[b]((x0[a,b] * x1[b,c]))`
  std::string output;                       ///< letters of the result
  bool dense = false;                       ///< whether all elements of the result are stored
  double fill = 0;                          ///< of the result
  double entries = 0;                       ///< of the result, estimated
  double iterations = 0;                    ///< of the innermost loop, estimated
  std::map<char, int64_t> extents = {};     ///< of letters that no operand has
  std::map<char, std::string> reduce = {};  ///< the kernel that reduces partial results where a letter is divided
  std::string undivided = {};               ///< letters of which parts cannot be reduced
};

/// The queries of a plan in order, each once (`ProgramPlan::same_as` names those that are left out). Empty where one
/// has more indices than there are letters, has a result of more than 2^59 elements, reads a diagonal of
/// another query's result, or reads nothing.
std::vector<SiteQuery> site_queries(const ProgramPlan& plan);

}  // namespace joinsum::sparse
