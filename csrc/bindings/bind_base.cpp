#include <cstdlib>

#include <pybind11/operators.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "base/check.h"
#include "bindings/bindings.h"
#include "relation/relation_type.h"

namespace joinsum::bindings {

DType dtype_named(const std::string& name) {
  const auto dtype = dtype_from_name(name);
  JOINSUM_USER_CHECK(dtype.has_value(), "dtype: no such dtype: name=", name);
  return *dtype;
}

relation::LookupTables lookup_tables(const TableValues& values) {
  relation::LookupTables tables;
  for (const auto& [name, entries] : values)
    tables[name] = std::make_shared<const relation::LookupTable>(relation::LookupTable{name, entries});
  return tables;
}

namespace {

/// Returns to the system what the C library's allocator has freed but holds for later.
void return_free_memory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

void bind_key_operator(py::module_& module) {
  py::enum_<relation::KeyOperator>(module, "KeyOperator")
      .value("negate", relation::KeyOperator::kNegate)
      .value("add", relation::KeyOperator::kAdd)
      .value("subtract", relation::KeyOperator::kSubtract)
      .value("multiply", relation::KeyOperator::kMultiply)
      .value("divide", relation::KeyOperator::kDivide)
      .value("modulo", relation::KeyOperator::kModulo)
      .value("equal", relation::KeyOperator::kEqual)
      .value("not_equal", relation::KeyOperator::kNotEqual)
      .value("less", relation::KeyOperator::kLess)
      .value("less_equal", relation::KeyOperator::kLessEqual)
      .value("greater", relation::KeyOperator::kGreater)
      .value("greater_equal", relation::KeyOperator::kGreaterEqual)
      .value("and_", relation::KeyOperator::kAnd)
      .value("or_", relation::KeyOperator::kOr)
      .value("not_", relation::KeyOperator::kNot);
}

void bind_key_expression(py::module_& module) {
  py::class_<relation::KeyExpression>(module, "KeyExpression")
      .def_static("constant", &relation::KeyExpression::constant, py::arg("value"))
      .def_static("component", &relation::KeyExpression::component, py::arg("dim"))
      .def_static("truth", &relation::KeyExpression::truth, py::arg("value"))
      .def_static("unary", &relation::KeyExpression::unary, py::arg("op"), py::arg("operand"))
      .def_static("binary", &relation::KeyExpression::binary, py::arg("op"), py::arg("left"), py::arg("right"))
      .def_static(
          "lookup",
          [](std::string name, std::vector<int64_t> values, const relation::KeyExpression& index) {
            auto table = std::make_shared<const relation::LookupTable>(
                relation::LookupTable{std::move(name), std::move(values)});
            return relation::KeyExpression::lookup(std::move(table), index);
          },
          py::arg("name"), py::arg("values"), py::arg("index"))
      .def_static(
          "parse",
          [](const std::string& text, const TableValues& tables) {
            return relation::KeyExpression::parse(text, lookup_tables(tables));
          },
          py::arg("text"), py::arg("tables") = TableValues{})
      .def_property_readonly("arity", &relation::KeyExpression::arity)
      .def("evaluate", &relation::KeyExpression::evaluate, py::arg("key"), py::arg("output") = 0)
      .def("__repr__", &relation::KeyExpression::text)
      .def("__hash__", &relation::KeyExpression::hash)
      .def(py::self == py::self);
}

void bind_key_map(py::module_& module) {
  py::class_<relation::KeyMap>(module, "KeyMap")
      .def(py::init<std::vector<relation::KeyExpression>>(), py::arg("components"))
      .def_static(
          "parse",
          [](const std::string& text, const TableValues& tables) {
            return relation::KeyMap::parse(text, lookup_tables(tables));
          },
          py::arg("text"), py::arg("tables") = TableValues{})
      .def("evaluate", &relation::KeyMap::evaluate, py::arg("key"), py::arg("output") = 0)
      .def("__repr__", &relation::KeyMap::text)
      .def("__hash__", &relation::KeyMap::hash)
      .def(py::self == py::self);
}

void bind_axis(py::module_& module) {
  py::class_<relation::Axis>(module, "Axis")
      .def_readonly("extent", &relation::Axis::extent)
      .def_property_readonly(
          "key_dim",
          [](const relation::Axis& axis) { return axis.linked() ? std::optional(axis.key_dim) : std::nullopt; })
      .def_readonly("cuts", &relation::Axis::cuts)
      .def(py::self == py::self);
}

relation::RelationType make_relation_type(const std::string& who, const std::string& dtype, Dims frontier,
                                          std::vector<relation::Axis> axes, std::vector<Key> keys) {
  return relation::RelationType::make(who, dtype_named(dtype), std::move(frontier), std::move(axes),
                                      std::make_shared<const std::vector<Key>>(std::move(keys)));
}

relation::RelationType relation_type_of_tensor(const std::string& dtype, const Dims& shape, const Dims& parts) {
  return relation::RelationType::of_tensor(dtype_named(dtype), shape, parts);
}

relation::RelationType relation_type_of_cuts(const std::string& dtype, const std::vector<CutPoints>& cuts) {
  return relation::RelationType::of_tensor(dtype_named(dtype), cuts);
}

relation::RelationType with_entries(relation::RelationType type, std::optional<int64_t> entries) {
  type.entries = entries;
  return type;
}

/// Equal types have equal hashes, whatever their entries are estimated at.
size_t hash_of(relation::RelationType type) {
  if (type.sparse()) type.entries = 0;
  return hash_text(type.text(true));
}

constexpr const char* kRelationTypeDoc =
    R"(Type of a tensor relation; prints as plans do: f32[100,50]<4,2>.

dtype, rank, axes       of the arrays; an axis has extent, key_dim (that counts its parts, or None) and cuts
arity, frontier         number of key components, and the least bound of each
unique, continuous      whether no key occurs twice; whether every key below the frontier occurs
tuples, elements, bytes of the whole relation
entries                 about how many elements are stored where the arrays are sparse; None where they are dense
all_keys(), array_shape(key), text(full)

Source: TRA paper, section 3; docs/algebra.md, section 1.)";

void bind_relation_type(py::module_& module) {
  public_class<relation::RelationType>(module, "RelationType", kRelationTypeDoc)
      .def_static("make", &make_relation_type, py::arg("who"), py::arg("dtype"), py::arg("frontier"), py::arg("axes"),
                  py::arg("keys"), WithoutGil())
      .def_static("of_tensor", &relation_type_of_tensor, py::arg("dtype"), py::arg("shape"), py::arg("parts"),
                  WithoutGil())
      .def_static("of_cuts", &relation_type_of_cuts, py::arg("dtype"), py::arg("cuts"), WithoutGil())
      .def_static("parse", py::overload_cast<const std::string&>(&relation::RelationType::parse), py::arg("text"),
                  WithoutGil())
      .def_property_readonly("dtype", [](const relation::RelationType& type) { return name_of(type.dtype); })
      .def_readonly("frontier", &relation::RelationType::frontier)
      .def_readonly("axes", &relation::RelationType::axes)
      .def_property_readonly("arity", &relation::RelationType::arity)
      .def_property_readonly("rank", &relation::RelationType::rank)
      .def_property_readonly("regular", &relation::RelationType::regular)
      .def_property_readonly("unique", &relation::RelationType::unique)
      .def_property_readonly("continuous", &relation::RelationType::continuous)
      .def_property_readonly("tuples", &relation::RelationType::tuples)
      .def_property_readonly("elements", &relation::RelationType::elements)
      .def_property_readonly("bytes", &relation::RelationType::bytes)
      .def_readonly("entries", &relation::RelationType::entries)
      .def("with_entries", &with_entries, py::arg("entries"))
      .def("all_keys", &relation::RelationType::all_keys, WithoutGil())
      .def("array_shape", &relation::RelationType::array_shape, py::arg("key"))
      .def("text", &relation::RelationType::text, py::arg("full") = false, WithoutGil())
      .def("__repr__", [](const relation::RelationType& type) { return type.text(); })
      .def("__hash__", &hash_of)
      .def(py::self == py::self);
}

}  // namespace

void bind_base(py::module_& module) {
  bind_key_operator(module);
  bind_key_expression(module);
  bind_key_map(module);
  bind_axis(module);
  bind_relation_type(module);
  module.def("dtype_names", &dtype_names);
  module.def("return_free_memory", &return_free_memory, WithoutGil());
  module.def("fit_axes", &relation::fit_axes, py::arg("who"), py::arg("frontier"), py::arg("keys"), py::arg("shapes"),
             py::arg("preferred"), WithoutGil());
}

}  // namespace joinsum::bindings
