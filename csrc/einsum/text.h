#pragma once

#include "einsum/nodes.h"

namespace joinsum::einsum {

/// Prints one line per node, inputs first: `t0 = einsum[ij,jk->ik; mul; add](X, Y): f32[4,6]`. A label of several
/// letters stands in braces, `{row}j,jk->{row}k`; the extents of labels that only the result has come last,
/// `einsum[i->ij; id; add; j=5](X)`.
std::string print(const Plan& plan);

/// Reads what `print` writes, and nested expressions over declared inputs. A stated type must be the inferred one.
Plan parse(const std::string& text);

/// One operator without its inputs: `einsum[ij,jk->ik; mul; add]`.
std::string operation_text(const Operation& operation);

/// Names of a plan's nodes as `print` gives them.
std::unordered_map<const Node*, std::string> node_names(const Plan& plan);

/// `ij{row}`, and `ij,jk->ik`.
std::string labels_text(const Labels& labels);
std::string labels_text(const std::vector<Labels>& operands, const Labels& result);

/// Raises unless `label` can stand in a plan's text.
void check_label(const std::string& label);

}  // namespace joinsum::einsum
