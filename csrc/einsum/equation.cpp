#include "einsum/equation.h"

#include <algorithm>
#include <cctype>

namespace joinsum::einsum {
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
  Reader(const std::string& text, const std::vector<Dims>& operands) : text_(text), shapes_(operands) {}

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
    out.result = result_ ? explicit_result() : implicit_result();
    return out;
  }

 private:
  [[noreturn]] void fail(size_t offset, const std::string& what) const {
    std::string message = "einsum: " + what + "\n  " + text_;
    if (offset != kNowhere) message += "\n  " + std::string(offset, ' ') + "^";
    throw PlanError(message);
  }

  void split() {
    given_.push_back({{}, 0});
    for (size_t at = 0; at < text_.size();) {
      Subscripts& now = result_ ? *result_ : given_.back();
      const char c = text_[at];
      if (std::isspace(static_cast<unsigned char>(c)) != 0) {
        ++at;
      } else if (std::isalpha(static_cast<unsigned char>(c)) != 0) {
        now.terms.push_back({std::string(1, c), at++});
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
        fail(at, std::string("not a letter: character=") + c);
      }
    }
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
      if (occurrences(term.label) == 0)
        fail(term.offset, "a label of the result is in no operand: label=" + term.label);
      labels.push_back(term.label);
    }
    return labels;
  }

  Labels implicit_result() const {
    Labels labels = hidden();
    std::string letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    for (const char letter : letters) {
      if (occurrences(std::string(1, letter)) == 1) labels.emplace_back(1, letter);
    }
    return labels;
  }

  const std::string& text_;
  const std::vector<Dims>& shapes_;
  std::vector<Subscripts> given_;
  std::optional<Subscripts> result_;
  std::map<std::string, size_t> from_;  ///< the operand that gave a label its extent
  int64_t hidden_ = 0;                  ///< axes that the longest ellipsis stands for
};

}  // namespace

Equation parse_equation(const std::string& text, const std::vector<Dims>& operands) {
  return Reader(text, operands).read();
}

}  // namespace joinsum::einsum
