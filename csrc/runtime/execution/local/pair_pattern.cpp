#include "runtime/execution/local/pair_pattern.h"

#include <algorithm>
#include <tuple>

#include "kernels/pairs/terms.h"
#include "kernels/table/expression_kernel.h"

namespace joinsum::runtime::execution::local {

using kernels::expression::Expression;
using kernels::expression::Function;
using kernels::pairs::Lettered;
using kernels::pairs::Winners;
using kernels::semiring::Join;
using kernels::semiring::Term;
using kernels::table::Form;
using kernels::table::Kernel;
using kernels::table::Row;

namespace {

using Two = std::pair<size_t, size_t>;

/// Two arrays that are joined.
struct Joined {
  Join join;
  size_t first, second;
};

/// What each element of a sum is multiplied from.
struct Factors {
  std::vector<size_t> arrays;
  std::vector<size_t> others;
};

class Recognizer {
 public:
  explicit Recognizer(const TileProgram& program) : program_(program) {
    for (const auto& [letter, extent] : program.extents()) {
      if (program.labels().result.find(letter) == std::string::npos) inner_ += letter;
    }
  }

  std::optional<PairPattern> pattern() const {
    const Row& row = kernels::table::row_of(program_.reduction());
    if (row.user) return std::nullopt;
    std::optional<PairPattern> found;
    if (row.reduction == "min" && row.combine == "expression") found = position();
    if (row.reduction == "add" && (row.combine == "mul" || program_.reduced().size() == 1)) found = sum();
    if (found && found->term == Term::kTied) {
      found->compared = compared(*found->left, {found->join, found->own, found->right});
    } else if (found && (found->term == Term::kPosition || found->term == Term::kCount)) {
      found->compared = compared(found->own, {found->join, *found->left, found->right});
    }
    return found;
  }

 private:
  // --- steps ---------------------------------------------------------------------------------------------------------

  /// The step that holds the elements of `step`, below kernels that only name axes.
  size_t below(size_t step) const {
    const auto& at = program_.step(step);
    const bool names_axes = at.kernel.name == "insert_dim" || at.kernel.name == "arrange" || at.kernel.name == "id";
    return !at.read && names_axes ? below(at.operands[0]) : step;
  }

  bool is_array(size_t step) const { return program_.step(step).read.has_value(); }

  /// The tuple that an array's elements come from, and the letters of its axes.
  std::tuple<const ia::Node*, Key, std::string> source(size_t array) const {
    const ReadTuple& read = program_.reads()[*program_.step(array).read];
    const ia::Node* node = read.node;
    std::string letters = program_.step(array).letters;
    for (const auto* map = node->as<ia::LocalMap>(); map != nullptr; map = node->as<ia::LocalMap>()) {
      const Kernel& kernel = map->array_map;
      const bool same_keys = map->outputs == 1 && map->key_map.is_identity(node->input(0)->type().relation.arity());
      if (!same_keys || !kernel.epilogue.empty() || (kernel.name != "arrange" && kernel.name != "insert_dim")) break;
      letters = letters_below(kernel, letters);
      node = node->input(0).get();
    }
    std::erase(letters, kRepeats);
    return {node, read.key, letters};
  }

  /// Letters of the operand of a kernel that names axes, for those of its result.
  static std::string letters_below(const Kernel& kernel, std::string letters) {
    if (kernel.name == "insert_dim") return letters.erase(static_cast<size_t>(kernel.integer(0)), 1);
    const auto labels = kernels::table::row_of(kernel).labels(kernel);
    std::string below;
    for (const char letter : labels.operands[0]) below += letters[labels.result.find(letter)];
    return below;
  }

  bool is_same(size_t a, size_t b) const { return is_array(a) && is_array(b) && source(a) == source(b); }

  bool is_inner(size_t array) const { return program_.step(array).letters.find_first_of(inner_) != std::string::npos; }

  /// The elementwise kernel of a step, of whatever form.
  std::optional<Kernel> kernel_of(size_t step) const {
    const auto& at = program_.step(step);
    if (at.read) return std::nullopt;
    const Row& row = kernels::table::row_of(at.kernel);
    if (row.form == Form::kElementwise) return at.kernel;
    if (row.form != Form::kLabelled || at.operands.size() != 2) return std::nullopt;
    return kernels::table::combined_by(at.kernel);
  }

  std::optional<size_t> one(size_t step, const Kernel& kernel) const {
    const auto own = kernel_of(below(step));
    if (!own || !(*own == kernel)) return std::nullopt;
    return below(program_.step(below(step)).operands[0]);
  }

  std::optional<Two> two(size_t step, const Kernel& kernel) const {
    const auto own = kernel_of(below(step));
    if (!own || !(*own == kernel)) return std::nullopt;
    const auto& operands = program_.step(below(step)).operands;
    return Two{below(operands[0]), below(operands[1])};
  }

  std::optional<Two> two_arrays(size_t step, const Kernel& kernel) const {
    const auto both = two(step, kernel);
    return both && is_array(both->first) && is_array(both->second) ? both : std::nullopt;
  }

  std::optional<Joined> joined(size_t step) const {
    const auto kernel = kernel_of(step);
    const Row* row = kernel ? kernels::table::find_row(kernel->name) : nullptr;
    if (row == nullptr || !row->joins_by) return std::nullopt;
    const auto both = two_arrays(step, *kernel);
    if (!both) return std::nullopt;
    return Joined{*row->joins_by, both->first, both->second};
  }

  // --- extremes ------------------------------------------------------------------------------------------------------

  /// Whether a value is a minimum, or a maximum, of others; moves between sites leave it one.
  static std::optional<bool> is_least(const ia::Node* node) {
    while (node->as<ia::Broadcast>() != nullptr || node->as<ia::Shuffle>() != nullptr) node = node->input(0).get();
    const auto* join = node->as<ia::LocalJoin>();
    const auto* aggregate = node->as<ia::LocalAggregate>();
    if (join == nullptr && aggregate == nullptr) return std::nullopt;
    const Row& row = kernels::table::row_of(join != nullptr ? join->kernel.first() : aggregate->kernel.first());
    const Row* by = row.reduction.empty() ? &row : kernels::table::find_row(row.reduction);
    if (by == nullptr || by->reduces_by == kernels::semiring::Reduction::kMax) {
      return by == nullptr ? std::nullopt : std::optional(false);
    }
    return by->reduces_by == kernels::semiring::Reduction::kMin ? std::optional(true) : std::nullopt;
  }

  /// The extreme that joined elements are compared with, where the array is one and has all letters that are not
  /// reduced.
  std::optional<ComparedExtreme> compared(size_t extreme, Joined both) const {
    auto whole = source(extreme), first = source(both.first), second = source(both.second);
    const auto least = is_least(std::get<0>(whole));
    if (!least) return std::nullopt;
    if (std::tie(std::get<0>(second), std::get<1>(second)) < std::tie(std::get<0>(first), std::get<1>(first))) {
      std::swap(first, second);
      both = {kernels::pairs::reversed(both.join), both.second, both.first};
    }
    std::string letters = std::get<2>(whole), inner;
    for (const char letter : std::get<2>(first) + std::get<2>(second)) {
      if (letters.find(letter) != std::string::npos) continue;
      letters += letter;
      inner += letter;
    }
    for (auto* tuple : {&whole, &first, &second}) {
      for (char& letter : std::get<2>(*tuple)) letter = static_cast<char>('A' + letters.find(letter));
    }
    return ComparedExtreme{{whole, first, second, both.join, *least}, letters, inner, extreme, both.first, both.second};
  }

  // --- positions -----------------------------------------------------------------------------------------------------

  /// The least position whose element equals the extreme, as einsums write argmax and argmin.
  std::optional<PairPattern> position() const {
    const Expression place = kernels::table::expression_of(program_.reduction());
    if (place.function != Function::kWhere || place.arguments[2].function != Function::kNumber) return std::nullopt;
    const double none = place.arguments[2].number;
    if (!(place == Expression::parse("where(x0==1,x1," + place.arguments[2].text() + ")", 2))) return std::nullopt;
    const size_t positions = below(program_.reduced()[1]);
    const auto found = one(program_.reduced()[0], Kernel::parse("cast[i64]"));
    const auto same = found ? two(*found, Kernel::parse("expression[2, where(x0==x1,1,x0!=x0)]")) : std::nullopt;
    if (!same || !is_array(same->second) || is_inner(same->second) || !is_array(positions)) return std::nullopt;
    const auto operands = joined(same->first);
    std::string sorted = program_.step(positions).letters;
    std::sort(sorted.begin(), sorted.end());
    if (!operands || sorted != inner_) return std::nullopt;
    PairPattern out = between(Term::kPosition, *operands, same->second);
    out.inner = program_.step(positions).letters;
    out.positions = positions;
    out.no_position = static_cast<int64_t>(none);
    return out;
  }

  /// Of the joined elements of two operands, compared with `own`. Vectors run along the letters of one operand.
  PairPattern between(Term term, const Joined& operands, size_t own) const {
    const auto only = [&](size_t mine, size_t other) {
      int64_t count = 1;
      for (const auto& [letter, extent] : program_.extents()) {
        const auto has = [&](const std::string& letters) { return letters.find(letter) != std::string::npos; };
        if (has(program_.labels().result) && has(program_.step(mine).letters) && !has(program_.step(other).letters)) {
          count *= extent;
        }
      }
      return count;
    };
    const bool swaps =
        only(operands.second, operands.first) < std::min<int64_t>(32, only(operands.first, operands.second));
    if (!swaps) return {term, operands.join, own, operands.first, std::nullopt, operands.second, inner_};
    return {term, kernels::pairs::reversed(operands.join), own, operands.second, std::nullopt, operands.first, inner_};
  }

  // --- sums ----------------------------------------------------------------------------------------------------------

  void multiply(size_t step, Factors& factors) const {
    const size_t at = below(step);
    if (is_array(at)) {
      factors.arrays.push_back(at);
    } else if (const auto both = two(at, Kernel{"mul", {}})) {
      multiply(both->first, factors);
      multiply(both->second, factors);
    } else {
      factors.others.push_back(at);
    }
  }

  std::optional<PairPattern> sum() const {
    Factors factors;
    for (const size_t step : program_.reduced()) multiply(step, factors);
    for (size_t i = 0; i < factors.others.size(); ++i) {
      Factors rest = factors;
      rest.others.erase(rest.others.begin() + static_cast<int64_t>(i));
      if (const auto both = two(factors.others[i], Kernel{"equal", {}})) return of_joined(Term::kTied, *both, rest);
      const auto exponent = one(factors.others[i], Kernel{"exp", {}});
      const auto share = exponent ? two(*exponent, Kernel{"sub", {}}) : std::nullopt;
      if (share && joined(share->first)) return of_joined(Term::kShare, *share, rest);
    }
    return of_slope(factors);
  }

  /// Of terms that compare joined elements, `both.first`, with an array.
  std::optional<PairPattern> of_joined(Term term, const Two& both, Factors rest) const {
    const auto operands = joined(both.first);
    if (!operands || !is_array(both.second)) return std::nullopt;
    if (term == Term::kTied && rest.arrays.empty() && rest.others.empty() && !is_inner(both.second)) {
      return between(Term::kCount, *operands, both.second);
    }
    const bool second = is_inner(operands->first);
    const size_t own = second ? operands->second : operands->first, right = second ? operands->first : operands->second;
    if (is_inner(own) || !is_inner(right)) return std::nullopt;
    const Join join = second ? kernels::pairs::reversed(operands->join) : operands->join;
    if (!takes_slope(join, own, right, rest)) return std::nullopt;
    return PairPattern{term, join, own, both.second, rest.arrays[0], right, inner_};
  }

  /// Whether the factors are a weight and the slope of the join.
  bool takes_slope(Join join, size_t own, size_t right, Factors& rest) const {
    const auto is = [&](const std::optional<Two>& both, size_t first, size_t second) {
      return both && is_same(both->first, first) && is_same(both->second, second);
    };
    const size_t slopes = rest.others.size();
    if (slopes > 1 || rest.arrays.empty()) return false;
    const auto kernel = [&](const char* name) { return two(rest.others[0], Kernel{name, {}}); };
    switch (join) {
      case Join::kAdd:
      case Join::kSub:
      case Join::kReversedSub:
        return slopes == 0 && rest.arrays.size() == 1;
      case Join::kMul: {
        const auto at =
            std::find_if(rest.arrays.rbegin(), rest.arrays.rend(), [&](size_t x) { return is_same(x, right); });
        if (slopes > 0 || rest.arrays.size() != 2 || at == rest.arrays.rend()) return false;
        rest.arrays.erase(std::next(at).base());
        return true;
      }
      case Join::kMax:
        return slopes == 1 && rest.arrays.size() == 1 && is(kernel("above"), own, right);
      case Join::kMin:
        return slopes == 1 && rest.arrays.size() == 1 && is(kernel("above"), right, own);
      case Join::kSquaredDifference:
        return slopes == 1 && rest.arrays.size() == 1 && is(kernel("sub"), own, right);
      case Join::kAbsDifference: {
        const auto difference = slopes == 1 ? one(rest.others[0], Kernel{"sign", {}}) : std::nullopt;
        return difference && rest.arrays.size() == 1 && is(two(*difference, Kernel{"sub", {}}), own, right);
      }
      default:
        return false;
    }
  }

  /// Of a weight and the slope of |x - y|, or of the larger or the smaller of them.
  std::optional<PairPattern> of_slope(Factors factors) const {
    if (factors.others.size() != 1) return std::nullopt;
    const auto difference = one(factors.others[0], Kernel{"sign", {}});
    const auto both =
        difference ? two_arrays(*difference, Kernel{"sub", {}}) : two_arrays(factors.others[0], Kernel{"above", {}});
    if (!both) return std::nullopt;
    const bool second = is_inner(both->first);
    const size_t own = second ? both->second : both->first, right = second ? both->first : both->second;
    const Join join = difference ? Join::kAbsDifference : second ? Join::kMin : Join::kMax;
    if (is_inner(own) || !is_inner(right) || !takes_slope(join, own, right, factors)) return std::nullopt;
    return PairPattern{Term::kSlope, join, own, std::nullopt, factors.arrays[0], right, inner_};
  }

  const TileProgram& program_;
  std::string inner_;
};

/// The array of a step that reads one; along axes that repeat it has its only element.
Lettered lettered(std::optional<size_t> step, const TileProgram& program, const std::vector<at::Tensor>& arrays) {
  if (!step) return {};
  const auto& at = program.step(*step);
  Lettered out{arrays[*at.read], at.letters};
  for (size_t axis = out.letters.size(); axis-- > 0;) {
    if (out.letters[axis] != kRepeats) continue;
    out.letters.erase(axis, 1);
    out.array = out.array.select(static_cast<int64_t>(axis), 0);
  }
  return out;
}

/// The winners of the extreme that a pattern compares with, by the program's letters; only positions and counts look
/// for them.
std::optional<Winners> winners_of(const PairPattern& pattern, const TileProgram& program,
                                  const std::vector<at::Tensor>& arrays, FoundWinners& winners) {
  if (!pattern.compared) return std::nullopt;
  const ComparedExtreme& compared = *pattern.compared;
  const auto renamed = [](std::string text, const std::string& from, const std::string& to) {
    for (char& letter : text) letter = to[from.find(letter)];
    return text;
  };
  std::string names = compared.letters;
  for (size_t i = 0; i < names.size(); ++i) names[i] = static_cast<char>('A' + i);
  const std::optional<Winners>* known = winners.at(compared.name);
  if (known == nullptr) {
    if (pattern.term == Term::kTied) return std::nullopt;
    const auto array = [&](size_t step) { return lettered(step, program, arrays); };
    auto found =
        kernels::pairs::winners({compared.name.join, compared.name.least, array(compared.first), array(compared.second),
                                 array(compared.extreme), compared.inner, program.extents()});
    if (found) {
      found->places.letters = renamed(found->places.letters, compared.letters, names);
      found->inner = renamed(found->inner, compared.letters, names);
    }
    known = &winners.add(compared.name, std::move(found));
  }
  if (!*known) return std::nullopt;
  Winners own = **known;
  own.places.letters = renamed(own.places.letters, names, compared.letters);
  own.inner = renamed(own.inner, names, compared.letters);
  return own;
}

/// Whether the result has the letters of the winners' places, in whatever order, and no array has others.
bool fits(const Winners& found, const PairPattern& pattern, const Lettered& out) {
  const auto sorted = [](std::string letters) {
    std::sort(letters.begin(), letters.end());
    return letters;
  };
  return sorted(found.places.letters) == sorted(out.letters) && sorted(found.inner) == sorted(pattern.inner);
}

bool rise(const int64_t* values, int64_t count) {
  return std::adjacent_find(values, values + count, std::greater_equal<>()) == values + count;
}

}  // namespace

namespace {

/// A contraction to an extreme that finds the winners, too.
class ExtremeContraction final : public LocalOperator {
 public:
  ExtremeContraction(const ia::Node& node, ExtremeName name, LocalOperatorPtr contraction)
      : name_(std::move(name)),
        swaps_(std::get<0>(name_.first) != node.input(0).get()),
        shape_(storage::Layout(node.type().relation).shape(Box::single({}))),
        contraction_(std::move(contraction)) {}

  std::vector<PinnedPiece> run(const std::vector<PinnedOperand>& operands, const std::vector<Box>& boxes,
                               const RunContext& context) const override {
    auto found = operands[0].pieces.size() == 1 && operands[1].pieces.size() == 1
                     ? extremes(operands[0].pieces[0].array, operands[1].pieces[0].array)
                     : std::nullopt;
    if (!found) {
      context.winners.add(name_, std::nullopt);
      return contraction_->run(operands, boxes, context);
    }
    const at::Tensor& first = operands[0].pieces[0].array;
    context.flops += 2 * found->first.numel() * (first.numel() / std::max<int64_t>(1, rows_of(first)));
    context.winners.add(name_, std::move(found->second));
    const at::Tensor out = context.store.allocate(shape_, found->first.options());
    out.copy_(found->first.reshape(shape_));
    return {{Box::single({}), out}};
  }

  std::string text() const override { return contraction_->text() + ", winners"; }

 private:
  std::optional<std::pair<at::Tensor, Winners>> extremes(const at::Tensor& left, const at::Tensor& right) const {
    const auto& whole = std::get<2>(name_.extreme);
    kernels::pairs::WinnerProblem problem{name_.join,
                                          name_.least,
                                          {swaps_ ? right : left, std::get<2>(name_.first)},
                                          {swaps_ ? left : right, std::get<2>(name_.second)},
                                          {{}, whole},
                                          {},
                                          {}};
    for (const Lettered* each : {&problem.left, &problem.right}) {
      if (each->array.dim() != static_cast<int64_t>(each->letters.size())) return std::nullopt;
      for (size_t axis = 0; axis < each->letters.size(); ++axis) {
        const char letter = each->letters[axis];
        const int64_t extent = each->array.size(static_cast<int64_t>(axis));
        if (!problem.extents.emplace(letter, extent).second && problem.extents.at(letter) != extent)
          return std::nullopt;
        const bool known = (whole + problem.inner).find(letter) != std::string::npos;
        if (!known) problem.inner += letter;
      }
    }
    std::sort(problem.inner.begin(), problem.inner.end());
    int64_t elements = 1;
    for (const char letter : whole) {
      if (!problem.extents.contains(letter)) return std::nullopt;
      elements *= problem.extents.at(letter);
    }
    if (elements != shape_elements()) return std::nullopt;
    return kernels::pairs::extremes(problem);
  }

  int64_t shape_elements() const {
    int64_t count = 1;
    for (const int64_t extent : shape_) count *= extent;
    return count;
  }

  /// Elements of an operand for each reduced index.
  int64_t rows_of(const at::Tensor& operand) const {
    const std::string& letters = std::get<2>(swaps_ ? name_.second : name_.first);
    int64_t count = 1;
    for (size_t axis = 0; axis < letters.size(); ++axis) {
      const bool stays = std::get<2>(name_.extreme).find(letters[axis]) != std::string::npos;
      if (stays) count *= operand.size(static_cast<int64_t>(axis));
    }
    return count;
  }

  ExtremeName name_;
  bool swaps_;
  Dims shape_;
  LocalOperatorPtr contraction_;
};

/// Whether an extreme is reduced by those labels, of the operands in the name's order.
bool has_labels(const ExtremeName& name, const kernels::table::Subscripts& labels) {
  std::string letters = labels.result;
  for (const char letter : labels.operands[0] + labels.operands[1]) {
    if (letters.find(letter) == std::string::npos) letters += letter;
  }
  const auto named = [&](std::string text) {
    for (char& letter : text) letter = static_cast<char>('A' + letters.find(letter));
    return text;
  };
  return std::get<2>(name.extreme) == named(labels.result) && std::get<2>(name.first) == named(labels.operands[0]) &&
         std::get<2>(name.second) == named(labels.operands[1]);
}

}  // namespace

LocalOperatorPtr with_winners(const ia::Node& node, const ExtremeName& name, LocalOperatorPtr contraction) {
  const auto* join = node.as<ia::LocalJoin>();
  if (join == nullptr || std::get<0>(name.extreme) != &node || node.type().relation.arity() != 0) return contraction;
  const Row& row = kernels::table::row_of(join->kernel.first());
  const Row* combine = row.combine.empty() ? nullptr : kernels::table::find_row(row.combine);
  const Row* reduction = row.reduction.empty() ? nullptr : kernels::table::find_row(row.reduction);
  if (combine == nullptr || reduction == nullptr || !combine->joins_by) return contraction;
  const auto wanted = name.least ? kernels::semiring::Reduction::kMin : kernels::semiring::Reduction::kMax;
  if (reduction->reduces_by != wanted) return contraction;
  const bool names_axes = std::all_of(join->kernel.epilogue.begin(), join->kernel.epilogue.end(),
                                      [](const Kernel& each) { return each.name == "insert_dim"; });
  const ia::Node *left = node.input(0).get(), *right = node.input(1).get();
  const ia::Node *first = std::get<0>(name.first), *second = std::get<0>(name.second);
  const bool same = first == left && second == right && name.join == *combine->joins_by;
  const bool swapped = first == right && second == left && name.join == kernels::pairs::reversed(*combine->joins_by);
  const bool single = left->type().relation.arity() == 0 && right->type().relation.arity() == 0;
  if (!names_axes || !single || left == right || (!same && !swapped)) return contraction;
  auto labels = row.labels(join->kernel.first());
  if (swapped) std::swap(labels.operands[0], labels.operands[1]);
  if (!has_labels(name, labels)) return contraction;
  return std::make_unique<ExtremeContraction>(node, name, std::move(contraction));
}

std::optional<PairPattern> pair_pattern(const TileProgram& program) { return Recognizer(program).pattern(); }

bool runs_pattern(const PairPattern& pattern, const TileProgram& program, const std::vector<at::Tensor>& arrays,
                  FoundWinners& winners, const at::Tensor& result, bool accumulate) {
  const auto array = [&](std::optional<size_t> step) { return lettered(step, program, arrays); };
  const kernels::pairs::TermProblem problem{pattern.term,        pattern.join,          array(pattern.own),
                                            array(pattern.left), array(pattern.weight), array(pattern.right),
                                            pattern.inner,       program.extents()};
  at::Tensor positions;
  if (pattern.positions) {
    positions = arrays[*program.step(*pattern.positions).read].contiguous();
    if (positions.scalar_type() != at::kLong || !positions.is_cpu()) return false;
    if (!rise(positions.const_data_ptr<int64_t>(), positions.numel())) return false;
  }
  if (!accumulate) result.fill_(pattern.no_position);
  const Lettered out{result, program.labels().result};
  const int64_t* rising = pattern.positions ? positions.const_data_ptr<int64_t>() : nullptr;
  if (const auto found = winners_of(pattern, program, arrays, winners)) {
    if (pattern.term == Term::kTied && kernels::pairs::adds_tied(problem, *found, out)) return true;
    if (pattern.term == Term::kCount && fits(*found, pattern, out)) return add_counts(*found, out), true;
    if (pattern.term == Term::kPosition && fits(*found, pattern, out) && found->inner == pattern.inner) {
      return take_positions(*found, rising, out), true;
    }
  }
  return kernels::pairs::adds_terms(problem, out, rising);
}

}  // namespace joinsum::runtime::execution::local
