#include "einsum/notation/equation.h"

#include <algorithm>
#include <cctype>
#include <set>

namespace joinsum::einsum::notation {
namespace {

constexpr size_t kNowhere = std::string::npos;

/// A letter or an ellipsis, and where it stands.
struct Term {
  std::string label;  ///< `...` for an ellipsis
  size_t offset;
};

struct Subscripts {
  std::vector<Term> terms;
  size_t begin;  ///< where they stand
};

class Reader {
 public:
  Reader(const std::string& text, const std::vector<Dims>& operands, const Extents& extents)
      : text_(text), shapes_(operands), given_extents_(extents) {}

  Equation read() {
    split();
    if (given_.size() != shapes_.size()) {
      fail(given_.size() > shapes_.size() ? given_[shapes_.size()].begin : kNowhere,
           concatenate("subscripts for another number of operands: subscripts=", given_.size(),
                       ", operands=", shapes_.size()));
    }
    Equation out;
    for (size_t i = 0; i < given_.size(); ++i) out.operands.push_back(labels_of_operand(i));
    for (size_t i = 0; i < given_.size(); ++i) meet(out, i);
    meet_given(out);
    out.result = result_ ? explicit_result() : implicit_result();
    return out;
  }

 private:
  [[noreturn]] void fail(size_t offset, const std::string& what) const {
    std::string shown = text_;
    std::replace_if(shown.begin(), shown.end(), [](unsigned char c) { return std::iscntrl(c) != 0; }, ' ');
    std::string message = "einsum: " + what + "\n  " + shown;
    if (offset != kNowhere) {
      const auto column = std::count_if(text_.begin(), text_.begin() + static_cast<int64_t>(offset), begins_character);
      message += "\n  " + std::string(static_cast<size_t>(column), ' ') + "^";
    }
    throw PlanError(message);
  }

  /// Whether a byte of UTF-8 is the first of its character.
  static bool begins_character(char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }

  [[noreturn]] void fail_at_character(size_t at) const {
    if (std::iscntrl(static_cast<unsigned char>(text_[at])) != 0) {
      fail(at, concatenate("only blanks stand between letters: code=", static_cast<int>(text_[at])));
    }
    const auto end = std::find_if(text_.begin() + static_cast<int64_t>(at) + 1, text_.end(), begins_character);
    fail(at, "not a letter: character=" + std::string(text_.begin() + static_cast<int64_t>(at), end));
  }

  void split() {
    given_.push_back({{}, 0});
    for (size_t at = 0; at < text_.size();) {
      Subscripts& now = result_ ? *result_ : given_.back();
      const char c = text_[at];
      if (c == ' ') {
        ++at;
      } else if (std::isalpha(static_cast<unsigned char>(c)) != 0) {
        now.terms.push_back({std::string(1, c), at++});
      } else if (c == '{') {
        at = word(now, at);
      } else if (text_.compare(at, 3, "...") == 0) {
        const bool second =
            std::any_of(now.terms.begin(), now.terms.end(), [](const Term& t) { return t.label == "..."; });
        if (second) fail(at, "a second ellipsis");
        now.terms.push_back({"...", at});
        at += 3;
      } else if (text_.compare(at, 2, "->") == 0) {
        if (result_) fail(at, "a second arrow");
        at += 2;
        result_ = Subscripts{{}, at};
      } else if (c == ',' && !result_) {
        given_.push_back({{}, ++at});
      } else {
        fail_at_character(at);
      }
    }
  }

  /// Reads a label in braces; gives where it ends.
  size_t word(Subscripts& now, size_t at) const {
    const size_t end = text_.find('}', at);
    if (end == kNowhere) fail(at, "a brace is not closed");
    const std::string label = text_.substr(at + 1, end - at - 1);
    const bool plain = !label.empty() && label[0] != '.' &&
                       std::all_of(label.begin(), label.end(),
                                   [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '.'; });
    if (!plain) fail(at, "a label is letters, digits, _ and .: label=" + label);
    now.terms.push_back({label, at});
    return end + 1;
  }

  /// Labels of an operand's axes; its ellipsis takes what the letters leave.
  Labels labels_of_operand(size_t i) {
    const auto& terms = given_[i].terms;
    const auto rank = static_cast<int64_t>(shapes_[i].size());
    const auto ellipsis = std::count_if(terms.begin(), terms.end(), [](const Term& t) { return t.label == "..."; });
    const int64_t rest = rank - (static_cast<int64_t>(terms.size()) - ellipsis);
    if (rest < 0 || (rest > 0 && ellipsis == 0)) {
      fail(given_[i].begin, concatenate("subscripts and axes differ in number: operand=", i,
                                        ", subscripts=", static_cast<int64_t>(terms.size()) - ellipsis, ", axes=", rank,
                                        ", shape=", shapes_[i]));
    }
    Labels labels;
    for (const Term& term : terms) {
      if (term.label == "...") {
        for (int64_t d = rest - 1; d >= 0; --d) labels.push_back("." + std::to_string(d));
        hidden_ = std::max(hidden_, rest);
      } else {
        labels.push_back(term.label);
      }
    }
    return labels;
  }

  /// Notes the extents of operand `i`, of which 1 fits any.
  void meet(Equation& out, size_t i) {
    const Labels& labels = out.operands[i];
    Extents own;
    for (size_t a = 0; a < labels.size(); ++a) {
      const int64_t extent = shapes_[i][a];
      const auto [seen, first] = own.try_emplace(labels[a], extent);
      if (seen->second != extent) {
        fail(last_offset(i, labels[a]), concatenate("extents of a repeated label differ: label=", shown(labels[a]),
                                                    ", operand=", i, ", extents=", seen->second, " and ", extent));
      }
      const auto [known, fresh] = out.extents.try_emplace(labels[a], extent);
      if (fresh || known->second == 1) {
        known->second = extent;
        if (fresh || extent != 1) from_[labels[a]] = i;
      } else if (extent != 1 && extent != known->second) {
        fail(last_offset(i, labels[a]),
             concatenate("extents of a label differ: label=", shown(labels[a]), ", operand ", from_.at(labels[a]), "=",
                         known->second, ", operand ", i, "=", extent));
      }
    }
  }

  /// Notes extents of labels that only the result has.
  void meet_given(Equation& out) const {
    for (const auto& [label, extent] : given_extents_) {
      const auto [known, fresh] = out.extents.try_emplace(label, extent);
      if (known->second != extent) {
        fail(last_offset(from_.at(label), label), concatenate("extents of a label differ: label=", label, ", operand ",
                                                              from_.at(label), "=", known->second, ", given=", extent));
      }
      const bool used = !fresh || (result_ && std::any_of(result_->terms.begin(), result_->terms.end(),
                                                          [&](const Term& term) { return term.label == label; }));
      if (!used) fail(kNowhere, "an extent is given for a label that is not there: label=" + label);
      if (extent < 0) fail(kNowhere, concatenate("an extent is negative: label=", label, ", extent=", extent));
    }
  }

  static std::string shown(const std::string& label) { return label[0] == '.' ? "..." : label; }

  size_t last_offset(size_t operand, const std::string& label) const {
    size_t offset = given_[operand].begin;
    for (const Term& term : given_[operand].terms) {
      if (term.label == shown(label)) offset = term.offset;
    }
    return offset;
  }

  Labels hidden() const {
    Labels labels;
    for (int64_t d = hidden_ - 1; d >= 0; --d) labels.push_back("." + std::to_string(d));
    return labels;
  }

  int64_t occurrences(const std::string& label) const {
    int64_t count = 0;
    for (const Subscripts& each : given_) {
      count +=
          std::count_if(each.terms.begin(), each.terms.end(), [&](const Term& term) { return term.label == label; });
    }
    return count;
  }

  Labels explicit_result() const {
    Labels labels;
    for (const Term& term : result_->terms) {
      if (term.label == "...") {
        for (const std::string& label : hidden()) labels.push_back(label);
        continue;
      }
      if (has(labels, term.label)) fail(term.offset, "a label stands twice in the result: label=" + term.label);
      if (occurrences(term.label) == 0 && !given_extents_.contains(term.label)) {
        fail(term.offset, "a label of the result is in no operand: label=" + term.label);
      }
      labels.push_back(term.label);
    }
    return labels;
  }

  Labels implicit_result() const {
    Labels labels = hidden();
    std::set<std::string> sorted;
    for (const Subscripts& each : given_) {
      for (const Term& term : each.terms) {
        if (term.label != "..." && occurrences(term.label) == 1) sorted.insert(term.label);
      }
    }
    labels.insert(labels.end(), sorted.begin(), sorted.end());
    return labels;
  }

  const std::string& text_;
  const std::vector<Dims>& shapes_;
  const Extents& given_extents_;
  std::vector<Subscripts> given_;
  std::optional<Subscripts> result_;
  std::map<std::string, size_t> from_;  ///< the operand that gave a label its extent
  int64_t hidden_ = 0;                  ///< axes that the longest ellipsis stands for
};

}  // namespace

Equation parse_equation(const std::string& text, const std::vector<Dims>& operands, const Extents& extents) {
  return Reader(text, operands, extents).read();
}

}  // namespace joinsum::einsum::notation
