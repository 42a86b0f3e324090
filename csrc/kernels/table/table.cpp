#include "kernels/table/table.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <memory>
#include <mutex>
#include <numeric>
#include <shared_mutex>
#include <unordered_map>
#include <utility>

#include "kernels/table/expression_kernel.h"
#include "kernels/table/rows.h"

namespace joinsum::kernels::table {
namespace {

/// Built-in rows never change, so they are found without a lock. Rows that users take back are kept, for those who
/// still hold them.
class Registry {
 public:
  static Registry& instance() {
    static Registry registry;
    return registry;
  }

  const Row* find(const std::string& name) const {
    if (const auto found = builtin_index_.find(name); found != builtin_index_.end()) return found->second;
    const std::shared_lock lock(mutex_);
    const auto found = user_index_.find(name);
    return found == user_index_.end() ? nullptr : found->second;
  }

  std::vector<const Row*> all() const {
    std::vector<const Row*> rows;
    for (const Row& row : builtin_) rows.push_back(&row);
    const std::shared_lock lock(mutex_);
    for (const auto& row : user_) {
      const auto found = user_index_.find(row->name);
      if (found != user_index_.end() && found->second == row.get()) rows.push_back(row.get());
    }
    return rows;
  }

  void add(Row row) {
    const std::unique_lock lock(mutex_);
    const bool taken = builtin_index_.contains(row.name) || user_index_.contains(row.name);
    JOINSUM_KERNEL_CHECK(!taken, "register_kernel: name is taken: name=", row.name);
    user_.push_back(std::make_unique<const Row>(std::move(row)));
    user_index_[user_.back()->name] = user_.back().get();
  }

  void remove(const std::string& name) {
    JOINSUM_KERNEL_CHECK(!builtin_index_.contains(name), "unregister_kernel: kernel is built in: name=", name);
    const std::unique_lock lock(mutex_);
    JOINSUM_KERNEL_CHECK(user_index_.erase(name) == 1, "unregister_kernel: unknown name: name=", name);
  }

 private:
  Registry() : builtin_(builtin_rows()) {
    for (const Row& row : builtin_) builtin_index_[row.name] = &row;
  }

  const std::vector<Row> builtin_;
  std::unordered_map<std::string, const Row*> builtin_index_;
  mutable std::shared_mutex mutex_;
  std::vector<std::unique_ptr<const Row>> user_;
  std::unordered_map<std::string, const Row*> user_index_;
};

/// Least number of insertions, deletions and substitutions that make `b` of `a`.
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> distance(b.size() + 1);
  std::iota(distance.begin(), distance.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(distance[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t substituted = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = distance[j + 1];
      distance[j + 1] = std::min({substituted, diagonal + 1, distance[j] + 1});
    }
  }
  return distance[b.size()];
}

/// The nearest name, and up to two more that share half of the letters.
std::vector<std::string> near_names(const std::string& name) {
  std::vector<std::pair<size_t, std::string>> ranked;
  for (const Row* row : all_rows()) ranked.emplace_back(edit_distance(name, row->name), row->name);
  std::sort(ranked.begin(), ranked.end());
  std::vector<std::string> names;
  for (const auto& [distance, known] : ranked) {
    if (!names.empty() && (names.size() == 3 || distance > name.size() / 2 + 1)) break;
    names.push_back(known);
  }
  return names;
}

const char* kind_name(char kind) { return kind == 'i' ? "integer" : kind == 'n' ? "number or $scalar" : "label"; }

/// Labels print bare, so they hold nothing that the text of a plan gives a meaning to; brackets of expressions match.
bool printable_label(const std::string& label) {
  int depth = 0;
  for (const char c : label) {
    if (std::isgraph(static_cast<unsigned char>(c)) == 0 || std::string("[]{}#;").find(c) != std::string::npos) {
      return false;
    }
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (depth < 0) return false;
  }
  return !label.empty() && depth == 0;
}

bool fits(char kind, const Parameter& parameter) {
  if (kind == 'i') return std::holds_alternative<int64_t>(parameter);
  if (const auto* label = std::get_if<std::string>(&parameter)) return kind == 'l' && printable_label(*label);
  if (const auto* real = std::get_if<double>(&parameter); real != nullptr && std::isnan(*real)) return false;
  return kind == 'n';
}

}  // namespace

void check_parameters(const Row& row, const Kernel& kernel) {
  if (row.parameters.size() != kernel.parameters.size()) {
    std::vector<std::string> kinds;
    for (const char kind : row.parameters) kinds.emplace_back(kind_name(kind));
    throw KernelError(concatenate(row.name, ": wrong number of parameters: kernel=", kernel.text(),
                                  ", given=", kernel.parameters.size(), ", wanted=", kinds));
  }
  for (size_t i = 0; i < kernel.parameters.size(); ++i) {
    JOINSUM_KERNEL_CHECK(fits(row.parameters[i], kernel.parameters[i]), row.name,
                         ": parameter does not fit: kernel=", kernel.text(), ", index=", i,
                         ", wanted=", kind_name(row.parameters[i]));
  }
}

void check_row(const Row& row) {
  const std::string who = "register_kernel: ";
  Scanner scanner(row.name);
  JOINSUM_KERNEL_CHECK(scanner.peek_name() && scanner.name() == row.name, who,
                       "name is not an identifier: name=", row.name);
  JOINSUM_KERNEL_CHECK(row.operands >= 1, who, "a kernel has operands: name=", row.name, ", operands=", row.operands);
  JOINSUM_KERNEL_CHECK(row.flops_per_element >= 0, who, "negative flops: name=", row.name,
                       ", flops per element=", row.flops_per_element);
  for (size_t i = 0; i < row.parameters.size(); ++i) {
    const char kind = row.parameters[i];
    const bool known = kind == 'i' || kind == 'n' || (kind == 'l' && i + 1 == row.parameters.size());
    JOINSUM_KERNEL_CHECK(known, who, "parameters are letters i, n and at the end l: name=", row.name,
                         ", parameters=", row.parameters);
  }
  const bool open = row.form == Form::kElementwise || row.form == Form::kLabelled || row.form == Form::kOpaque;
  JOINSUM_KERNEL_CHECK(open, who, "a user's kernel is elementwise, labelled or opaque: name=", row.name);
  JOINSUM_KERNEL_CHECK(row.form != Form::kLabelled || row.labels, who,
                       "labelled kernel without labels: name=", row.name);
  JOINSUM_KERNEL_CHECK(row.form != Form::kOpaque || row.shape, who,
                       "opaque kernel without shape rule: name=", row.name);
  for (const Distribution& distribution : row.facts.distributes_over) {
    const Row* over = distribution.over == row.name ? &row : find_row(distribution.over);
    JOINSUM_KERNEL_CHECK(over != nullptr && over->operands == 2 && over->parameters.empty(), who,
                         "a kernel distributes over one of two operands and no parameters: name=", row.name,
                         ", over=", distribution.over);
  }
}

const Row* find_row(const std::string& name) { return Registry::instance().find(name); }

bool has_row(const std::string& name) { return find_row(name) != nullptr; }

std::vector<const Row*> all_rows() { return Registry::instance().all(); }

const Row& row_of(const Kernel& kernel) {
  const Row* row = find_row(kernel.name);
  if (row == nullptr) {
    throw KernelError(concatenate("kernel: unknown name: name=", kernel.name, ", near=", near_names(kernel.name)));
  }
  check_parameters(*row, kernel);
  return *row;
}

void register_row(Row row) {
  check_row(row);
  row.user = true;
  Registry::instance().add(std::move(row));
}

void unregister_row(const std::string& name) { Registry::instance().remove(name); }

int64_t operands_of(const Kernel& kernel) {
  const Row& row = row_of(kernel);
  return row.operands == 0 ? kernel.integer(0) : row.operands;
}

int64_t flops_per_element(const Kernel& kernel) {
  const Row& row = row_of(kernel);
  return row.flops ? row.flops(kernel) : row.flops_per_element;
}

Kernel combined_by(const Kernel& kernel) {
  const Row& row = row_of(kernel);
  if (row.combine != "expression") return {row.combine, {}};
  return {"expression", {int64_t{2}, expression_of(kernel).text()}};
}

bool distributes(const Kernel& kernel, const std::string& over, int64_t operand) {
  for (const Kernel& next : kernel.epilogue) {
    if (!distributes(next, over, 0)) return false;
  }
  const Row& row = row_of(kernel);
  if (operand >= operands_of(kernel)) return false;
  if (row.facts.linear && (over == "add" || over == "sub")) return true;
  if (row.facts.moves_elements) {
    const Row* reduction = find_row(over);
    if (reduction != nullptr && reduction->form == Form::kElementwise && reduction->operands == 2) return true;
  }
  return std::any_of(row.facts.distributes_over.begin(), row.facts.distributes_over.end(), [&](const auto& known) {
    return known.over == over && (operand == 0 ? known.left : known.right);
  });
}

bool joins_partials(const Kernel& kernel, const std::string& over) {
  for (const Kernel& next : kernel.epilogue) {
    if (!distributes(next, over, 0)) return false;
  }
  if (operands_of(kernel) != 2) return false;
  if (over == "add" && row_of(kernel).facts.additive) return true;
  return kernel.name == over && reduces_in_any_order(kernel.first());
}

bool reduces_in_any_order(const Kernel& kernel) {
  const Facts& facts = row_of(kernel).facts;
  return facts.associative && facts.commutative && kernel.epilogue.empty();
}

bool keeps_zero(const Kernel& kernel) {
  for (const Kernel& next : kernel.epilogue) {
    if (!keeps_zero(next)) return false;
  }
  const Row& row = row_of(kernel);
  if (row.form != Form::kElementwise || row.user || operands_of(kernel) != 1) return false;
  if (row.facts.linear || kernel.name == "cast") return true;
  if (row.element == nullptr || !kernel.scalar_names().empty()) return false;
  std::vector<double> numbers;
  for (size_t i = 0; i < kernel.parameters.size(); ++i) numbers.push_back(kernel.number(i, {}));
  const double zero = 0;
  return row.element(&zero, numbers.data()) == 0;
}

bool reorders(const Kernel& join, const std::string& reduction) {
  return reduces_in_any_order(join) && distributes(join, reduction, 0) && distributes(join, reduction, 1);
}

std::vector<const Row*> reducing_rows() {
  std::vector<const Row*> rows = all_rows();
  std::erase_if(rows, [](const Row* row) { return !row->reduces_by; });
  std::sort(rows.begin(), rows.end(), [](const Row* a, const Row* b) { return *a->reduces_by < *b->reduces_by; });
  return rows;
}

semiring::Reduction reduction_of(const std::string& reduction) {
  const Row* row = find_row(reduction);
  JOINSUM_KERNEL_CHECK(row != nullptr && row->reduces_by, reduction, ": not a kernel that reduces");
  return *row->reduces_by;
}

bool contracts(const Kernel& kernel) {
  const Row& row = row_of(kernel);
  return row.form == Form::kLabelled && row.facts.linear;
}

}  // namespace joinsum::kernels::table
