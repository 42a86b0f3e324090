#pragma once

#include "einsum/nodes.h"
#include "tra/nodes.h"

namespace joinsum::einsum {

/// The relation of a tensor whose axis a is cut at `cuts[a]`; where these are the ends alone, it is whole.
relation::RelationType cut_at(const std::string& who, const TensorType& type, const std::vector<CutPoints>& cuts);

/// The relation of a tensor whose axis a is cut evenly in `parts[a]` parts.
relation::RelationType cut_evenly(const std::string& who, const TensorType& type, const Dims& parts);

/// How a plan's inputs, by name, are cut for `sites` sites. Labels that name one axis of a shared tensor are of one
/// class. All axes of a class are cut evenly in as many parts as there are sites, or elements if these are fewer; so no
/// division of the classes over the sites needs other cuts. A class is not cut if a tensor has one of its labels twice,
/// or if only a result has one; nor are the classes of fewest elements where a vertex would have more than 2^40 keys.
/// Source: EinDecomp, section 8.
std::map<std::string, relation::RelationType> even_cuts(const Plan& plan, int64_t sites);

/// In how many parts the letters that only a call's results have are cut: as in the input that has an axis of their
/// class, if there is one.
using NewLetterParts = std::unordered_map<const Node*, std::map<char, int64_t>>;
NewLetterParts new_letter_parts(const Plan& plan, const std::map<std::string, relation::RelationType>& inputs);

/// Translates a plan of einsums of at most two operands: an einsum is a join on the key dimensions of the shared
/// labels, whose kernel contracts each pair of arrays, and an aggregation over the key dimensions of labels that
/// disappear. `inputs` gives the cuts of each input, by name; axis i of a tensor is array axis i of its relation, cut
/// by a key dimension of its own or whole. Floats of half width are aggregated in single precision. Raises PlanError
/// where a label is cut otherwise in one operand than in another.
tra::Plan lower(const Plan& plan, const std::map<std::string, relation::RelationType>& inputs);

/// What a vertex has become: `work` is where its kernel meets the operands' tuples (a join; of one operand the first
/// map, or the operand itself), `keys` the label of each key dimension of it, and `value` the result.
struct LoweredVertex {
  tra::NodePtr work;
  Labels keys;
  tra::NodePtr value;
};
using LoweredVertices = std::unordered_map<const Node*, LoweredVertex>;

/// The same, and in `vertices` what each vertex of `plan` has become.
tra::Plan lower(const Plan& plan, const std::map<std::string, relation::RelationType>& inputs,
                LoweredVertices& vertices);

/// The same over logical relations that exist already; gives the outputs, in order.
std::vector<tra::NodePtr> lower(const Plan& plan, const std::map<std::string, tra::NodePtr>& inputs);

}  // namespace joinsum::einsum
