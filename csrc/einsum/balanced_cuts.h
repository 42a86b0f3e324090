#pragma once

#include "einsum/lower.h"

namespace joinsum::einsum {

/// Indices of some entries of a plan's sparse inputs, by name: for each axis, ascending. Any number of them stands for
/// all entries of the input.
using EntrySamples = std::map<std::string, std::vector<std::vector<int64_t>>>;

/// The cuts of `even_cuts`, but where entries lie unevenly: parts of a class of axes then have about the same work.
///
/// The work along a class is that of all vertices that have it: what a vertex does for each entry of a sparse operand
/// lies where the entries do, and what it does for elements of dense tensors lies evenly; so does moving dense outputs
/// to all sites, where a byte takes as long as `operations_of_byte` operations on entries.
///
/// A class keeps its cuts in `current`, which begin as those of `even_cuts`, where no sparse input has it, where a call
/// has a letter of it that no operand has, and where its busiest part has at most a tenth more work than it need have.
/// It has those of an axis in `stored`, inputs by name, which are on the sites already; an axis without any is empty
/// there.
std::map<std::string, relation::RelationType> balanced_cuts(
    const Plan& plan, int64_t sites, const EntrySamples& samples, double operations_of_byte,
    const std::map<std::string, relation::RelationType>& current,
    const std::map<std::string, std::vector<CutPoints>>& stored = {});

}  // namespace joinsum::einsum
