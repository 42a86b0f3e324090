#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "kernels/semiring/pair_operations.h"
#include "kernels/table/kernel.h"

namespace joinsum::kernels::table {

/// How a kernel's result axes come from its operands' axes.
enum class Form {
  kElementwise,  ///< result[i] = f(a[i], b[i]); shapes broadcast as in torch
  kLabelled,     ///< axes are named by letters: `ij,jk->ik`; letters that disappear are reduced inside the kernel
  kInsertAxis,   ///< a new axis, along which the elements repeat
  kEmbed,        ///< a new axis; the elements stand on its diagonal with another one, and zeros beside it
  kTile,         ///< several results: the pieces of one axis
  kDuplicate,    ///< several results: equal copies
  kConcat,       ///< joins the operands along one axis
  kOpaque,       ///< only the shape rule is known
};

/// Letters of a labelled kernel: one string per operand, and the result's.
struct Subscripts {
  std::vector<std::string> operands;
  std::string result;
  /// Reads `ij,jk->ik`; raises KernelError with the reason.
  static Subscripts parse(const std::string& text);
  std::string text() const;
};

/// f(a ⊕ b) = f(a) ⊕ f(b) in the named operand, the other one held fixed; ⊕ is the kernel `over`.
struct Distribution {
  std::string over;
  bool left = true;
  bool right = true;
};

/// Algebraic facts that rules and placement inference ask: laws of the real numbers, which floats keep up to rounding.
/// NaN counts as a value: sqrt distributes over min, but not over max.
struct Facts {
  bool associative = false;
  bool commutative = false;
  bool idempotent = false;      ///< f(a, a) = a
  bool additive = false;        ///< of two operands: f(a + a', b + b') = f(a, b) + f(a', b')
  bool linear = false;          ///< distributes over `add`, and so over `sub`, in each operand
  bool moves_elements = false;  ///< result elements are operand elements: distributes over every elementwise ⊕
  std::vector<Distribution> distributes_over = {};
  std::optional<double> identity = {};     ///< e with f(a, e) = f(e, a) = a, the array e being filled with it
  std::optional<double> annihilator = {};  ///< z with f(a, z) = f(z, a) = z
};

/// Value of an elementwise kernel at elements `x` of its operands; `n` holds the kernel's numbers.
using Element = double (*)(const double* x, const double* n);

/// One row of the kernel table: all that the rest of joinsum asks of a kernel by its name.
struct Row {
  std::string name;
  std::string summary;
  int64_t operands = 1;         ///< 0 where the kernel's first parameter says how many
  std::string parameters = {};  ///< one letter each: i integer, n number (or `$scalar`), l label (the last one only)
  Form form = Form::kElementwise;
  Domain domain = Domain::kAny;   ///< of the built-in kernels only min, max and those that move or cast take booleans
  int64_t flops_per_element = 1;  ///< of the result; a labelled kernel: per point of the space of all its letters.
                                  ///< An arithmetic operation and a call of exp, log, sqrt or tanh count one each
  Facts facts = {};
  /// kLabelled: its letters.
  std::function<Subscripts(const Kernel&)> labels = {};
  std::string combine = {};    ///< built-in kLabelled of two operands: the elementwise kernel of their elements (of
                               ///< `expression`, the one that the label holds)
  std::string reduction = {};  ///< built-in kLabelled: the kernel by which letters disappear; none where none do
  /// kOpaque: result shape of the operands' shapes; raises KernelError.
  std::function<Dims(const Kernel&, const std::vector<Dims>&)> shape = {};
  /// Flops per element where they depend on the parameters.
  std::function<int64_t(const Kernel&)> flops = {};
  /// Result dtype where it differs from the operands' (cast) or depends on the parameters.
  std::function<DType(const Kernel&, DType)> dtype = {};
  /// Built-in kElementwise: the reference, in double precision; none of a cast and of an expression, which their label
  /// determines.
  Element element = nullptr;
  /// kElementwise: the gradient for each operand, or one formula for all where they may change places (see
  /// kernels/table/derivative.h): kernels of `d`, which arrives at the result, of the operand `x`, the other operand
  /// `y` and the result `z`. It is linear in `d`; `this` is the kernel itself, `cast` without a dtype casts to x's,
  /// and `zero` stands for a kernel that is constant almost everywhere. A kernel without a formula has no gradient.
  std::vector<std::string> derivative = {};
  /// The step by which joinsum's loops join two elements; the table then has a contraction with each reduction.
  std::optional<semiring::Join> joins_by = {};
  /// The step by which those loops reduce; the table then has a reduction, and a contraction with each join.
  std::optional<semiring::Reduction> reduces_by = {};
  std::string aggregation = {};  ///< of a kernel with `reduces_by`: the name under which einsums aggregate by it
  bool user = false;             ///< registered by a user
};

/// Row of `kernel`; raises KernelError naming near names, or the parameters that do not fit.
const Row& row_of(const Kernel& kernel);
/// Row of that name, or null. A row stays readable after it is unregistered.
const Row* find_row(const std::string& name);
/// Whether a kernel of that name exists.
bool has_row(const std::string& name);
/// All rows, built-in ones first, in table order.
std::vector<const Row*> all_rows();
/// The built-in kernels that reduce, in the order of `semiring::Reduction`.
std::vector<const Row*> reducing_rows();
/// Adds a user's row; raises KernelError when the name is taken or the row is incomplete.
void register_row(Row row);
void unregister_row(const std::string& name);

/// Number of operands, and flops per element as Row has them, of a kernel without those that follow it.
int64_t operands_of(const Kernel& kernel);
int64_t flops_per_element(const Kernel& kernel);
/// The elementwise kernel by which a built-in labelled one of two operands combines their elements.
Kernel combined_by(const Kernel& kernel);

/// Whether `kernel` distributes over ⊕ = `over` in operand `operand` (0 or 1).
bool distributes(const Kernel& kernel, const std::string& over, int64_t operand);
/// Whether `kernel` of partial values of two operands under ⊕ = `over` gives those of its result: f(a ⊕ a', b ⊕ b') =
/// f(a, b) ⊕ f(a', b').
bool joins_partials(const Kernel& kernel, const std::string& over);
/// Whether `join` takes operands in any order, and labels may be reduced by `reduction` as soon as no other operand has
/// them.
bool reorders(const Kernel& join, const std::string& reduction);
/// Whether reductions by `kernel` may be regrouped and reordered.
bool reduces_in_any_order(const Kernel& kernel);

/// Whether the kernel, with all that follow it, is elementwise, of one operand, and zero at zero.
bool keeps_zero(const Kernel& kernel);
/// The step of reductions by the built-in kernel `reduction`; raises KernelError where there is none.
semiring::Reduction reduction_of(const std::string& reduction);
/// Names of the labelled kernels that reduce by `reduction`: of one operand, and of what `join` makes of two. There may
/// be none.
std::string reduction_name(const std::string& reduction);
std::string contraction_name(const std::string& join, const std::string& reduction);
/// Whether `kernel` is a contraction: labelled, and linear in its operands.
bool contracts(const Kernel& kernel);

/// Shape of the result (output number `output` of a kernel with several). Raises KernelError naming the shapes.
Dims result_shape(const Kernel& kernel, const std::vector<Dims>& operands, int64_t output = 0);
/// Result dtype; raises KernelError when the operands' dtypes differ or lie outside the kernel's domain.
DType result_dtype(const Kernel& kernel, const std::vector<DType>& operands);
/// Extent of the axis that a kernel of the form kInsertAxis makes.
int64_t inserted_extent(const Kernel& kernel);
/// Floating-point operations of one call.
int64_t flops(const Kernel& kernel, const std::vector<Dims>& operands);

}  // namespace joinsum::kernels::table
