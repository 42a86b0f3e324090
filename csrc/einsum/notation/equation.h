#pragma once

#include "einsum/nodes.h"

namespace joinsum::einsum::notation {

/// What an equation says of operands of given extents.
struct Equation {
  std::vector<Labels> operands;
  Labels result;
  Extents extents;
};

/// Reads an equation as torch.einsum does: letters, and words in braces, name axes, blanks are skipped, `...` stands
/// for the axes that an operand has beyond its letters, aligned from the right (their labels are `.0`, `.1`, ... from
/// the last one on). Without `->` the result has the ellipsis, then the labels that occur once, capitals first. An axis
/// of extent 1 is repeated where another operand's axis of that label is longer. `extents` gives those of labels that
/// only the result has. Every error shows the equation, with a caret.
Equation parse_equation(const std::string& text, const std::vector<Dims>& operands, const Extents& extents = {});

}  // namespace joinsum::einsum::notation
