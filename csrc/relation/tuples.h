#pragma once

#include <map>

#include "kernels/reference/array.h"
#include "relation/relation_type.h"

namespace joinsum::relation {

/// A logical relation, tuple by tuple; a bag. The interpreters of both algebras compute on it.
using Tuples = std::vector<std::pair<Key, kernels::reference::Array>>;

/// Orders tuples by key, those of one key by array: equal bags become equal lists.
void sort_bag(Tuples& tuples);

/// What is wrong with `tuples`, ascending by key, as a relation of `type`; empty where they fit.
std::string misfit(const Tuples& tuples, const RelationType& type);

/// The argument for an interpreter's input, ascending by key; raises PlanError where it is missing or does not fit.
Tuples interpreted_input(const std::string& name, const std::map<std::string, Tuples>& arguments,
                         const RelationType& type);

}  // namespace joinsum::relation
