#include "kernels/reference/facts.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <random>
#include <set>

#include "kernels/reference/reference.h"
#include "kernels/table/rows.h"

namespace joinsum::kernels::reference {

using table::check_parameters;
using table::Distribution;
using table::Facts;
using table::find_row;
using table::Form;
using table::Kernel;
using table::result_shape;
using table::Row;
using table::Subscripts;

namespace {

using Arrays = std::vector<Array>;
using Shapes = std::vector<Dims>;

constexpr double kTolerance = 1e-8;
constexpr int kRounds = 12;

bool agree(double a, double b) {
  if (std::isfinite(a) != std::isfinite(b)) return false;
  if (!std::isfinite(a)) return std::isnan(a) || std::isnan(b) || a == b;
  return std::abs(a - b) <= kTolerance * std::max({1.0, std::abs(a), std::abs(b)});
}

bool agree(const Array& a, const Array& b) {
  return a.shape == b.shape && std::equal(a.values.begin(), a.values.end(), b.values.begin(), b.values.end(),
                                          [](double x, double y) { return agree(x, y); });
}

/// Prints a scalar as `2`, a matrix as `[[1, 2], [3, 4]]`.
std::string array_text(const Array& array, size_t axis = 0, size_t begin = 0) {
  if (axis == array.shape.size()) {
    std::array<char, 32> buffer{};
    return {buffer.data(), std::to_chars(buffer.data(), buffer.data() + buffer.size(), array.values[begin]).ptr};
  }
  size_t step = 1;
  for (size_t d = axis + 1; d < array.shape.size(); ++d) step *= static_cast<size_t>(array.shape[d]);
  std::string out = "[";
  for (size_t i = 0; i < static_cast<size_t>(array.shape[axis]); ++i) {
    out += (i > 0 ? ", " : "") + array_text(array, axis + 1, begin + i * step);
  }
  return out + "]";
}

struct Named {
  std::string name;
  Array value;
};

/// Checks the facts of one row with one choice of parameters.
class Checker {
 public:
  Checker(const Row& row, Kernel kernel, const Evaluate& evaluate, uint64_t seed)
      : row_(row), facts_(row.facts), kernel_(std::move(kernel)), evaluate_(evaluate), random_(seed) {}

  /// Facts of any operands that the kernel takes.
  void check_on(const Shapes& shapes) {
    check_shape(shapes);
    if (facts_.commutative) check_commutative(shapes);
    if (facts_.additive) check_additive(shapes);
    if (facts_.moves_elements) check_moves(shapes);
    for (const auto& [over, operand] : distributions()) check_distribution(over, operand, shapes);
    if (facts_.annihilator) check_annihilator(shapes);
  }

  /// Facts that feed a result back as an operand; `shapes` let that be done.
  void check_closed_on(const Shapes& shapes) {
    if (facts_.associative) check_associative(shapes);
    if (facts_.idempotent) check_idempotent(shapes);
    if (facts_.identity) check_identity(shapes);
  }

  bool has_closed_facts() const { return facts_.associative || facts_.idempotent || facts_.identity; }

 private:
  Array random_array(const Dims& shape) {
    Array out = Array::zeros(shape);
    const bool integers = random_() % 2 == 0;
    for (double& value : out.values) {
      const auto draw = random_();
      value = integers ? static_cast<double>(draw % 9) - 4 : (static_cast<double>(draw >> 11) * 0x1p-53 - 0.5) * 6;
    }
    return out;
  }

  Arrays random_arrays(const Shapes& shapes) {
    Arrays out;
    for (const Dims& shape : shapes) out.push_back(random_array(shape));
    return out;
  }

  static Array filled(const Dims& shape, double value) {
    Array out = Array::zeros(shape);
    std::fill(out.values.begin(), out.values.end(), value);
    return out;
  }

  Array run(const Kernel& kernel, const Arrays& operands) const {
    const Row* known = kernel.name == row_.name ? nullptr : find_row(kernel.name);
    try {
      return known != nullptr && !known->user ? reference::run(kernel, operands) : evaluate_(kernel, operands);
    } catch (const std::exception& error) {
      std::string text;
      for (const Array& operand : operands) text += (text.empty() ? "" : ", ") + array_text(operand);
      if (!fact_.empty()) refuse(concatenate("operands=", text, ", error=", error.what()));
      throw KernelError(concatenate("register_kernel: kernel fails: kernel=", kernel.text(), ", operands=", text,
                                    ", error=", error.what()));
    }
  }

  Array run(const Arrays& operands) const { return run(kernel_, operands); }

  [[noreturn]] void refuse(const std::string& counterexample) const {
    throw KernelError(concatenate("register_kernel: declared fact does not hold: kernel=", kernel_.text(),
                                  ", fact=", fact_, ", counterexample: ", counterexample));
  }

  void require(bool holds, const std::vector<Named>& example) const {
    if (holds) return;
    std::string text;
    for (const auto& [name, value] : example) text += (text.empty() ? "" : ", ") + name + "=" + array_text(value);
    refuse(text);
  }

  void require_equal(std::vector<Named> example, const Named& left, const Named& right) const {
    example.push_back(left);
    example.push_back(right);
    require(agree(left.value, right.value), example);
  }

  /// The operands as a counterexample names them.
  static std::vector<Named> named(const Arrays& operands) {
    std::vector<Named> out;
    for (size_t i = 0; i < operands.size(); ++i)
      out.push_back({std::string(1, static_cast<char>('a' + i)), operands[i]});
    return out;
  }

  void check_shape(const Shapes& shapes) {
    fact_.clear();
    const Array result = run(random_arrays(shapes));
    const Dims wanted = result_shape(row_, kernel_, shapes, 0);
    JOINSUM_KERNEL_CHECK(result.shape == wanted,
                         "register_kernel: result has another shape than the row says: kernel=", kernel_.text(),
                         ", operand shapes=", shapes, ", result=", result.shape, ", wanted=", wanted);
  }

  void check_commutative(const Shapes& shapes) {
    fact_ = "commutative";
    const Arrays x = random_arrays(shapes);
    require_equal(named(x), {"f(a,b)", run(x)}, {"f(b,a)", run({x[1], x[0]})});
  }

  void check_additive(const Shapes& shapes) {
    fact_ = "additive";
    const Arrays x = random_arrays(shapes);
    const Arrays more = random_arrays(shapes);
    const auto sum = [&](const Array& a, const Array& b) { return run({"add", {}}, {a, b}); };
    std::vector<Named> example = named(x);
    for (size_t i = 0; i < more.size(); ++i) example.push_back({named(x)[i].name + "'", more[i]});
    require_equal(example, {"f(a + a',b + b')", run({sum(x[0], more[0]), sum(x[1], more[1])})},
                  {"f(a,b) + f(a',b')", sum(run(x), run(more))});
  }

  void check_associative(const Shapes& shapes) {
    fact_ = "associative";
    const Arrays x = random_arrays({shapes[0], shapes[1], shapes[0]});
    require_equal(named(x), {"f(f(a,b),c)", run({run({x[0], x[1]}), x[2]})},
                  {"f(a,f(b,c))", run({x[0], run({x[1], x[2]})})});
  }

  void check_idempotent(const Shapes& shapes) {
    fact_ = "idempotent";
    const Array a = random_array(shapes[0]);
    require_equal({}, {"a", a}, {"f(a,a)", run({a, a})});
  }

  void check_identity(const Shapes& shapes) {
    fact_ = "identity";
    const Array a = random_array(shapes[0]);
    const Array e = filled(shapes[0], *facts_.identity);
    require_equal({{"e", e}}, {"a", a}, {"f(a,e)", run({a, e})});
    require_equal({{"e", e}}, {"a", a}, {"f(e,a)", run({e, a})});
  }

  void check_annihilator(const Shapes& shapes) {
    fact_ = "annihilator";
    const Array z = filled(result_shape(row_, kernel_, shapes, 0), *facts_.annihilator);
    for (size_t i = 0; i < shapes.size(); ++i) {
      Arrays x = random_arrays(shapes);
      x[i] = filled(shapes[i], *facts_.annihilator);
      require_equal(named(x), {"f", run(x)}, {"wanted", z});
    }
  }

  void check_moves(const Shapes& shapes) {
    fact_ = "moves_elements";
    const Arrays x = random_arrays(shapes);
    const Array result = run(x);
    const std::set<double> values(x[0].values.begin(), x[0].values.end());
    std::vector<Named> example = named(x);
    example.push_back({"f", result});
    require(std::all_of(result.values.begin(), result.values.end(), [&](double v) { return values.contains(v); }),
            example);
  }

  /// Pairs of ⊕ and operand over which the row says that it distributes.
  std::vector<std::pair<Kernel, size_t>> distributions() const {
    std::vector<std::pair<Kernel, size_t>> out;
    const auto count = static_cast<size_t>(row_.operands == 0 ? kernel_.integer(0) : row_.operands);
    const auto declare = [&](const std::string& over, size_t operand) { out.push_back({Kernel{over, {}}, operand}); };
    for (size_t i = 0; i < count; ++i) {
      for (const char* over : {"add", "sub"}) {
        if (facts_.linear) declare(over, i);
      }
      for (const char* over : {"max", "mul", "squared_difference"}) {
        if (facts_.moves_elements) declare(over, i);
      }
      for (const Distribution& known : facts_.distributes_over) {
        if (i == 0 ? known.left : known.right) declare(known.over, i);
      }
    }
    return out;
  }

  void check_distribution(const Kernel& over, size_t operand, const Shapes& shapes) {
    fact_ = "distributes over " + over.name + " in operand " + std::to_string(operand);
    const Arrays x = random_arrays(shapes);
    const Array other = random_array(shapes[operand]);
    const auto with = [&](const Array& replacement) {
      Arrays operands = x;
      operands[operand] = replacement;
      return run(operands);
    };
    std::vector<Named> example = named(x);
    const std::string varied = example[operand].name;
    example.push_back({varied + "'", other});
    const std::string sum = varied + " " + over.name + " " + varied + "'";
    require_equal(example, {"f(" + sum + ")", with(run(over, {x[operand], other}))},
                  {"f(" + varied + ") " + over.name + " f(" + varied + "')", run(over, {run(x), with(other)})});
  }

  const Row& row_;
  const Facts& facts_;
  const Kernel kernel_;
  const Evaluate& evaluate_;
  std::mt19937_64 random_;
  std::string fact_;  ///< that is being checked
};

/// Kernels of the row with parameters that are likely to break a law: a negative factor, a fraction.
std::vector<Kernel> sample_kernels(const Row& row) {
  std::vector<Kernel> out;
  const std::vector<double> numbers{0.5, -2.0, 3.0};
  for (size_t choice = 0; choice < (row.parameters.empty() ? 1 : numbers.size()); ++choice) {
    Kernel kernel{row.name, {}};
    for (size_t i = 0; i < row.parameters.size(); ++i) {
      JOINSUM_KERNEL_CHECK(row.parameters[i] != 'l',
                           "register_kernel: a kernel with a label needs samples: name=", row.name);
      if (row.parameters[i] == 'i')
        kernel.parameters.emplace_back(static_cast<int64_t>(i == 0 ? choice % 2 : choice + 1));
      if (row.parameters[i] == 'n') kernel.parameters.emplace_back(numbers[(choice + i) % numbers.size()]);
    }
    out.push_back(std::move(kernel));
  }
  return out;
}

/// Shapes of a labelled kernel's operands; with `closed`, all letters have one extent, so that results may be operands.
std::vector<Shapes> labelled_shapes(const Subscripts& labels, bool closed) {
  std::vector<Shapes> out;
  for (int64_t trial = 0; trial < 4; ++trial) {
    std::map<char, int64_t> extents;
    Shapes shapes;
    for (const std::string& operand : labels.operands) {
      shapes.emplace_back();
      for (const char letter : operand) {
        const int64_t extent = closed ? trial : (trial + 2 * static_cast<int64_t>(extents.size())) % 4;
        shapes.back().push_back(extents.try_emplace(letter, extent).first->second);
      }
    }
    out.push_back(std::move(shapes));
  }
  return out;
}

std::vector<Shapes> equal_shapes(int64_t operands, const std::vector<Dims>& shapes) {
  std::vector<Shapes> out;
  for (const Dims& shape : shapes) out.emplace_back(static_cast<size_t>(operands), shape);
  return out;
}

/// Operand shapes to try, small ones first, so that a counterexample is short.
std::vector<Shapes> sample_shapes(const Row& row, const Kernel& kernel, bool closed) {
  std::vector<Shapes> out;
  const int64_t operands = row.operands == 0 ? kernel.integer(0) : row.operands;
  if (row.form == Form::kLabelled) {
    out = labelled_shapes(row.labels(kernel), closed);
  } else {
    out = equal_shapes(operands, {{}, {1}, {5}, {2, 3}, {3, 3}, {0, 2}, {2, 3, 4}});
  }
  if (row.form == Form::kElementwise && operands == 2) out.push_back({{2, 1}, {3}});
  if (row.form == Form::kConcat) out.push_back({{2, 3}, {2, 3}});
  std::erase_if(out, [&](const Shapes& shapes) {
    try {
      const Dims result = result_shape(row, kernel, shapes, 0);
      return false;
    } catch (const Error&) {
      return true;
    }
  });
  JOINSUM_KERNEL_CHECK(
      !out.empty(), "register_kernel: the shape rule refuses every sample; give some shapes: kernel=", kernel.text());
  return out;
}

void check_arity(const Row& row) {
  const Facts& facts = row.facts;
  const bool binary = facts.associative || facts.commutative || facts.idempotent || facts.additive || facts.identity ||
                      facts.annihilator;
  JOINSUM_KERNEL_CHECK(row.operands == 2 || !binary,
                       "register_kernel: associative, commutative, idempotent, additive, identity and annihilator ",
                       "are facts of two operands: name=", row.name, ", operands=", row.operands);
  JOINSUM_KERNEL_CHECK(row.operands == 1 || !facts.moves_elements,
                       "register_kernel: moves_elements is a fact of one operand: name=", row.name,
                       ", operands=", row.operands);
}

}  // namespace

void check_facts(const Row& row, const Evaluate& evaluate, const FactSamples& samples) {
  check_arity(row);
  for (const Kernel& kernel : samples.kernels.empty() ? sample_kernels(row) : samples.kernels) {
    check_parameters(row, kernel);
    Checker checker(row, kernel, evaluate, samples.seed);
    const auto open = samples.shapes.empty() ? sample_shapes(row, kernel, false) : samples.shapes;
    const auto closed = checker.has_closed_facts() && samples.shapes.empty() ? sample_shapes(row, kernel, true) : open;
    for (int round = 0; round < kRounds; ++round) {
      for (const Shapes& shapes : open) checker.check_on(shapes);
      for (const Shapes& shapes : closed) checker.check_closed_on(shapes);
    }
  }
}

}  // namespace joinsum::kernels::reference
