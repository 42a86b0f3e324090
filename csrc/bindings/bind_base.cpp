#include <pybind11/operators.h>

#include "base/check.h"
#include "base/relation_type.h"
#include "bindings/bindings.h"

namespace joinsum::bindings {

DType dtype_named(const std::string& name) {
  const auto dtype = dtype_from_name(name);
  JOINSUM_USER_CHECK(dtype.has_value(), "dtype: no such dtype: name=", name);
  return *dtype;
}

LookupTables lookup_tables(const TableValues& values) {
  LookupTables tables;
  for (const auto& [name, entries] : values)
    tables[name] = std::make_shared<const LookupTable>(LookupTable{name, entries});
  return tables;
}

namespace {

void bind_key_operator(py::module_& module) {
  py::enum_<KeyOperator>(module, "KeyOperator")
      .value("negate", KeyOperator::kNegate)
      .value("add", KeyOperator::kAdd)
      .value("subtract", KeyOperator::kSubtract)
      .value("multiply", KeyOperator::kMultiply)
      .value("divide", KeyOperator::kDivide)
      .value("modulo", KeyOperator::kModulo)
      .value("equal", KeyOperator::kEqual)
      .value("not_equal", KeyOperator::kNotEqual)
      .value("less", KeyOperator::kLess)
      .value("less_equal", KeyOperator::kLessEqual)
      .value("greater", KeyOperator::kGreater)
      .value("greater_equal", KeyOperator::kGreaterEqual)
      .value("and_", KeyOperator::kAnd)
      .value("or_", KeyOperator::kOr)
      .value("not_", KeyOperator::kNot);
}

void bind_key_expression(py::module_& module) {
  py::class_<KeyExpression>(module, "KeyExpression")
      .def_static("constant", &KeyExpression::constant, py::arg("value"))
      .def_static("component", &KeyExpression::component, py::arg("dim"))
      .def_static("truth", &KeyExpression::truth, py::arg("value"))
      .def_static("unary", &KeyExpression::unary, py::arg("op"), py::arg("operand"))
      .def_static("binary", &KeyExpression::binary, py::arg("op"), py::arg("left"), py::arg("right"))
      .def_static(
          "lookup",
          [](std::string name, std::vector<int64_t> values, const KeyExpression& index) {
            auto table = std::make_shared<const LookupTable>(LookupTable{std::move(name), std::move(values)});
            return KeyExpression::lookup(std::move(table), index);
          },
          py::arg("name"), py::arg("values"), py::arg("index"))
      .def_static(
          "parse",
          [](const std::string& text, const TableValues& tables) {
            return KeyExpression::parse(text, lookup_tables(tables));
          },
          py::arg("text"), py::arg("tables") = TableValues{})
      .def_property_readonly("is_boolean", &KeyExpression::is_boolean)
      .def_property_readonly("arity", &KeyExpression::arity)
      .def("evaluate", &KeyExpression::evaluate, py::arg("key"), py::arg("output") = 0)
      .def("__repr__", &KeyExpression::text)
      .def("__hash__", &KeyExpression::hash)
      .def(py::self == py::self);
}

void bind_key_map(py::module_& module) {
  py::class_<KeyMap>(module, "KeyMap")
      .def(py::init<std::vector<KeyExpression>>(), py::arg("components"))
      .def_static(
          "parse",
          [](const std::string& text, const TableValues& tables) { return KeyMap::parse(text, lookup_tables(tables)); },
          py::arg("text"), py::arg("tables") = TableValues{})
      .def_property_readonly("input_arity", &KeyMap::input_arity)
      .def_property_readonly("output_arity", &KeyMap::output_arity)
      .def("evaluate", &KeyMap::evaluate, py::arg("key"), py::arg("output") = 0)
      .def("__repr__", &KeyMap::text)
      .def("__hash__", &KeyMap::hash)
      .def(py::self == py::self);
}

void bind_axis(py::module_& module) {
  py::class_<Axis>(module, "Axis")
      .def_readonly("extent", &Axis::extent)
      .def_property_readonly(
          "key_dim", [](const Axis& axis) { return axis.linked() ? std::optional(axis.key_dim) : std::nullopt; })
      .def_readonly("cuts", &Axis::cuts)
      .def(py::self == py::self);
}

RelationType make_relation_type(const std::string& who, const std::string& dtype, Dims frontier, std::vector<Axis> axes,
                                std::vector<Key> keys) {
  return RelationType::make(who, dtype_named(dtype), std::move(frontier), std::move(axes),
                            std::make_shared<const std::vector<Key>>(std::move(keys)));
}

RelationType relation_type_of_tensor(const std::string& dtype, const Dims& shape, const Dims& parts) {
  return RelationType::of_tensor(dtype_named(dtype), shape, parts);
}

constexpr const char* kRelationTypeDoc =
    R"(Type of a tensor relation; prints as plans do: f32[100,50]<4,2>.

dtype, rank, axes       of the arrays; an axis has extent, key_dim (that counts its parts, or None) and cuts
arity, frontier         number of key components, and the least bound of each
unique, continuous      whether no key occurs twice; whether every key below the frontier occurs
tuples, elements, bytes of the whole relation
all_keys(), array_shape(key), text(full)

Source: TRA paper, section 3; docs/algebra.md, section 1.)";

void bind_relation_type(py::module_& module) {
  public_class<RelationType>(module, "RelationType", kRelationTypeDoc)
      .def_static("make", &make_relation_type, py::arg("who"), py::arg("dtype"), py::arg("frontier"), py::arg("axes"),
                  py::arg("keys"), WithoutGil())
      .def_static("of_tensor", &relation_type_of_tensor, py::arg("dtype"), py::arg("shape"), py::arg("parts"),
                  WithoutGil())
      .def_static("parse", py::overload_cast<const std::string&>(&RelationType::parse), py::arg("text"), WithoutGil())
      .def_property_readonly("dtype", [](const RelationType& type) { return name_of(type.dtype); })
      .def_readonly("frontier", &RelationType::frontier)
      .def_readonly("axes", &RelationType::axes)
      .def_property_readonly("arity", &RelationType::arity)
      .def_property_readonly("rank", &RelationType::rank)
      .def_property_readonly("regular", &RelationType::regular)
      .def_property_readonly("unique", &RelationType::unique)
      .def_property_readonly("continuous", &RelationType::continuous)
      .def_property_readonly("tuples", &RelationType::tuples)
      .def_property_readonly("elements", &RelationType::elements)
      .def_property_readonly("bytes", &RelationType::bytes)
      .def("all_keys", &RelationType::all_keys, WithoutGil())
      .def("array_shape", &RelationType::array_shape, py::arg("key"))
      .def("text", &RelationType::text, py::arg("full") = false, WithoutGil())
      .def("__repr__", [](const RelationType& type) { return type.text(); })
      .def("__hash__", [](const RelationType& type) { return hash_text(type.text(true)); })
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
  module.def("fit_axes", &fit_axes, py::arg("who"), py::arg("frontier"), py::arg("keys"), py::arg("shapes"),
             py::arg("preferred"), WithoutGil());
}

}  // namespace joinsum::bindings
