#pragma once

#include <vector>

#include "optimizer/division/label_classes.h"
#include "optimizer/model/vertices.h"

namespace joinsum::optimizer::model {

/// The vertices of a logical plan, with the strategies of each operator and the layouts of each value: what
/// `PlacementProblem` chooses from.
std::vector<Vertex> enumerated_vertices(const tra::Plan& plan, const PlacementConstraints& constraints,
                                        layouts::PlacementCache& cache, const division::LabelClasses& labels);

}  // namespace joinsum::optimizer::model
