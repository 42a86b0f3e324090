#pragma once

#include "einsum/json/graph.h"

namespace joinsum::einsum::json {

/// How a text is read.
struct Reading {
  std::string who = "json";  ///< opens messages
  std::string where = {};    ///< opens the place of what is no JSON: `file=graph.json, `
  bool diagonals = true;     ///< whether a result may have a label twice
};

/// Reads a graph in the form that docs/einsum_graph.schema.json describes:
///
///     {"inputs": {"X": [8, 8], "Y": {"dtype": "f64", "extents": [8, 8]}},
///      "ops": [{"name": "Z", "inputs": ["X", "Y"], "in_labels": ["ij", "jk"], "out_labels": "ik",
///               "join": "mul", "agg": "sum"}],
///      "outputs": ["Z"]}
///
/// `in_labels` names the axes of each operand and `out_labels` those of the result, as text of one letter per axis or
/// as a list of texts. Extents stand alone for those of f32. `join` is "mul" where it is not given; `agg` is needed
/// where the result lacks a label. `extents` gives the extents of labels that only the result has. `outputs` lists
/// names, or gives an object of output names and the values that they are.
///
/// Raises PlanError with line and column of what is no JSON, and with the JSON path of what is no graph:
/// `json: no such dtype; there are bool, u8, ...: at=$.inputs.X.dtype, dtype='f31'`. Names, labels and extents are
/// checked here; whether join and aggregation fit the dtypes, `plan_of` finds.
JsonGraph read(const std::string& text, const Reading& reading = {});

/// The graph as JSON, with a line for each operation; `read` reads it. Raises PlanError for a text that is no
/// UTF-8, and for a label without an extent.
std::string write(const JsonGraph& graph);

}  // namespace joinsum::einsum::json
