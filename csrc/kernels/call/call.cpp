#include "kernels/call/call.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <set>
#include <tuple>

#include "kernels/table/kernel.h"
#include "kernels/table/table.h"

namespace joinsum::kernels::call {

using table::reduces_in_any_order;

namespace {

using Kind = CallArgument::Kind;

bool is_letter(unsigned char character) { return std::isalpha(character) != 0; }

bool has(const std::string& letters, char letter) { return letters.find(letter) != std::string::npos; }

class Check {
 public:
  explicit Check(const Call& call) : call_(call) {}

  void run() const {
    check(call_.output >= 0 && call_.output < static_cast<int64_t>(call_.results.size()),
          "there is no such result: results=", call_.results.size());
    for (const std::string& letters : call_.operands) check_distinct(letters);
    for (const CallResult& result : call_.results) {
      check_distinct(result.letters);
      check_groups(result.letters, result.groups);
      check(!result.entries || (*result.entries >= 0 && !result.letters.empty()),
            "a sparse result has axes, and no negative number of entries: entries=", result.entries.value_or(0));
    }
    check_arguments(call_.arguments);
    for (const auto& [letter, fresh] : call_.extents) {
      check(is_letter(letter), "letters are a-z and A-Z: letters=", std::string(1, letter));
      check(!in_operand(letter), "an extent is given for a letter that no operand has: letter=", letter);
      check(fresh.extent >= 0 && fresh.parts >= 1 && fresh.parts <= std::max<int64_t>(fresh.extent, 1),
            "a letter has an extent, and no more parts than elements: letter=", letter);
    }
    for (const auto& [letter, kernel] : call_.reduce) {
      check(reduces_in_any_order({kernel, {}}),
            "partials are reduced by an associative, commutative kernel: kernel=", kernel);
    }
    check_letters();
    check_undecomposed();
  }

 private:
  template <class... Parts>
  void check(bool condition, const Parts&... parts) const {
    JOINSUM_USER_CHECK(condition, "call: ", parts..., ", call=", call_.text());
  }

  bool in_operand(char letter) const {
    return std::any_of(call_.operands.begin(), call_.operands.end(),
                       [&](const auto& each) { return has(each, letter); });
  }

  void check_distinct(const std::string& letters) const {
    const std::set<char> once(letters.begin(), letters.end());
    check(once.size() == letters.size(), "a letter stands once in a tensor: letters=", letters);
    check(std::all_of(letters.begin(), letters.end(), is_letter), "letters are a-z and A-Z: letters=", letters);
  }

  void check_groups(const std::string& letters, const std::vector<std::string>& groups) const {
    std::string all;
    for (const std::string& group : groups) all += group;
    std::string sorted = letters;
    std::sort(all.begin(), all.end());
    std::sort(sorted.begin(), sorted.end());
    check(all == sorted, "axes have each letter of a tensor once: letters=", letters, ", axes=", groups);
  }

  void check_arguments(const std::vector<CallArgument>& arguments) const {
    for (const CallArgument& argument : arguments) {
      check_arguments(argument.items);
      if (argument.kind == Kind::kOperand) {
        check(argument.integer >= 0 && argument.integer < static_cast<int64_t>(call_.operands.size()),
              "there is no such operand: operand=", argument.integer);
        check_groups(call_.operands[argument.integer], argument.groups);
      }
      check(argument.text.find('\'') == std::string::npos, "a text has no quotes: text=", argument.text);
      if (argument.kind != Kind::kExtent && argument.kind != Kind::kOffset) continue;
      for (const char letter : argument.text) {
        check(in_operand(letter) || call_.extents.contains(letter), "no tensor has the letter: letter=", letter);
      }
      check(argument.kind == Kind::kExtent || argument.text.size() == 1, "an offset is that of one letter: offset=@",
            argument.text);
    }
  }

  void check_letters() const {
    for (const char letter : call_.undivided) {
      check((in_operand(letter) || call_.extents.contains(letter)) && !call_.reduce.contains(letter),
            "a letter that is never divided is a tensor's, and leaves no partials: letter=", letter);
    }
    for (const char letter : call_.same) {
      check(in_operand(letter) && !has(call_.undivided, letter) && !call_.reduce.contains(letter),
            "a letter of which results are the same is an operand's, and is divided freely: letter=", letter);
    }
    for (const auto& [letter, kernel] : call_.reduce) {
      check(in_operand(letter), "a letter that leaves partials is an operand's: letter=", letter);
      check(std::any_of(call_.results.begin(), call_.results.end(),
                        [&](const CallResult& result) { return !has(result.letters, letter); }),
            "some result lacks a letter that leaves partials: letter=", letter);
    }
    for (const CallResult& result : call_.results) {
      for (const char letter : result.letters) {
        check(in_operand(letter) || call_.extents.contains(letter), "a result's letter has no extent: letter=", letter);
      }
      for (const std::string& letters : call_.operands) {
        for (const char letter : letters) {
          check(has(result.letters, letter) || has(call_.undivided, letter) || has(call_.same, letter) ||
                    call_.reduce.contains(letter),
                "a result lacks a letter that is divided freely: letter=", letter);
        }
      }
    }
  }

  void check_undecomposed() const {
    if (call_.undecomposed.empty()) return;
    const Call& undecomposed = call_.undecomposed.front();
    check(undecomposed.undecomposed.empty() && undecomposed.extents.empty() &&
              undecomposed.operands.size() == call_.undecomposed_operands.size(),
          "an undecomposed call has as many operands as are named, and adds no letters: operands=",
          call_.undecomposed_operands);
    for (size_t i = 0; i < undecomposed.operands.size(); ++i) {
      const int64_t from = call_.undecomposed_operands[i];
      check(from >= 0 && from < static_cast<int64_t>(call_.operands.size()),
            "there is no such operand: operand=", from);
      check(call_.operands[from].size() == undecomposed.operands[i].size(),
            "an operand has as many letters in the undecomposed call: operand=", from);
    }
    check(undecomposed.result().letters.size() == call_.result().letters.size() &&
              undecomposed.result().dtype == call_.result().dtype,
          "a result has as many letters, and its dtype, in the undecomposed call: result=",
          undecomposed.result().letters);
  }

  const Call& call_;
};

}  // namespace

void check(const Call& call) { Check(call).run(); }

/// Numbers bit by bit: one that is none equals itself.
bool CallArgument::operator==(const CallArgument& other) const {
  return kind == other.kind && name == other.name && integer == other.integer &&
         std::bit_cast<uint64_t>(number) == std::bit_cast<uint64_t>(other.number) && text == other.text &&
         groups == other.groups && items == other.items;
}

uint64_t Call::hash() const { return hash_text(text()); }

bool Call::runs_with(const Call& other) const {
  const auto all = [](const Call& call) {
    return std::tie(call.function, call.operands, call.results, call.arguments, call.undivided, call.same, call.reduce,
                    call.extents, call.flops, call.undecomposed_operands);
  };
  if (all(*this) != all(other) || undecomposed.size() != other.undecomposed.size()) return false;
  return undecomposed.empty() || undecomposed.front().runs_with(other.undecomposed.front());
}

std::map<char, int64_t> extents_of(const Call& call, const std::vector<Dims>& operands) {
  JOINSUM_USER_CHECK(operands.size() == call.operands.size(),
                     "call: another number of operands: operands=", operands.size(), ", call=", call.text());
  std::map<char, int64_t> out;
  for (size_t i = 0; i < operands.size(); ++i) {
    JOINSUM_USER_CHECK(operands[i].size() == call.operands[i].size(),
                       "call: letters and axes of an operand differ in number: operand=", i, ", extents=", operands[i],
                       ", call=", call.text());
    for (size_t a = 0; a < operands[i].size(); ++a) {
      const char letter = call.operands[i][a];
      const auto known = out.emplace(letter, operands[i][a]).first;
      JOINSUM_USER_CHECK(known->second == operands[i][a], "call: extents of a letter differ: letter=", letter,
                         ", operand ", i, "=", operands[i][a], ", before=", known->second, ", call=", call.text());
    }
  }
  for (const auto& [letter, fresh] : call.extents) out[letter] = fresh.extent;
  return out;
}

void fail_to_interpret(const Call& call) {
  throw PlanError("interpret: a call of a torch operator has no reference here; run the plan: call=" + call.text());
}

namespace {

bool is_adam_of_rows(const Call& call) {
  return call.function == "joinsum::adam_rows_catch_up" || call.function == "joinsum::adam_rows_update";
}

bool has_letters_of_a_result(const Call& call, const std::string& letters) {
  return std::any_of(call.results.begin(), call.results.end(),
                     [&](const CallResult& result) { return result.letters == letters; });
}

}  // namespace

bool takes_sparse(const Call& call) { return is_adam_of_rows(call) || counts_entries(call); }

bool counts_entries(const Call& call) { return call.function == "joinsum::sparse_query"; }

bool changes_rows(const Call& call) {
  return is_adam_of_rows(call) || call.function == "joinsum::sgd_lookup_update" ||
         call.function == "joinsum::adagrad_lookup_update" || call.function == "joinsum::sparse_adam_lookup_update";
}

double moved_bytes(const Call& call, const std::vector<double>& operands, double result) {
  const bool changes = changes_rows(call);
  const bool looks_up = call.function == "joinsum::embedding_shard";
  double out = changes ? 0 : result;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (changes && has_letters_of_a_result(call, call.operands[i])) continue;
    out += looks_up && i == 0 ? std::min(operands[i], result) : operands[i];
  }
  // Rows of each result are read and written; the others are read once for all results.
  return changes ? out * (2 + 1 / static_cast<double>(call.results.size())) : out;
}

double flops(const Call& call, const std::map<char, double>& extents) {
  double out = 0;
  for (const auto& [factor, letters] : call.flops) {
    double term = factor;
    for (const char letter : letters) term *= extents.at(letter);
    out += term;
  }
  return out;
}

}  // namespace joinsum::kernels::call
