#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace joinsum {

/// Base of every error joinsum raises on purpose.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The caller's fault: a plan, type or argument that cannot be right. `joinsum.PlanError` in Python.
class PlanError : public Error {
 public:
  using Error::Error;
};

/// A kernel that is unknown, misdeclared or failed on its operands. `joinsum.KernelError` in Python.
class KernelError : public Error {
 public:
  using Error::Error;
};

/// A site that is lost, silent or in disagreement. `joinsum.TransportError` in Python.
class TransportError : public Error {
 public:
  using Error::Error;
};

/// Our fault: an invariant of joinsum does not hold.
class InternalError : public Error {
 public:
  using Error::Error;
};

namespace detail {

template <class T>
void write(std::ostream& out, const T& value) {
  out << value;
}

template <class T>
void write(std::ostream& out, const std::vector<T>& values) {
  out << '[';
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out << ", ";
    write(out, values[i]);
  }
  out << ']';
}

}  // namespace detail

/// Joins the printed forms of `parts`; vectors print as `[0, 1]`.
template <class... Parts>
std::string concatenate(const Parts&... parts) {
  std::ostringstream out;
  (detail::write(out, parts), ...);
  return out.str();
}

}  // namespace joinsum

/// Raises PlanError unless `condition`; the message reads `operator: what is wrong: name=value, ...`.
#define JOINSUM_USER_CHECK(condition, ...)                                             \
  do {                                                                                 \
    if (!(condition)) throw ::joinsum::PlanError(::joinsum::concatenate(__VA_ARGS__)); \
  } while (false)

/// Raises KernelError unless `condition`.
#define JOINSUM_KERNEL_CHECK(condition, ...)                                             \
  do {                                                                                   \
    if (!(condition)) throw ::joinsum::KernelError(::joinsum::concatenate(__VA_ARGS__)); \
  } while (false)

/// Raises InternalError unless `condition`: a false one is a defect of joinsum.
#define JOINSUM_CHECK(condition, ...)                                                                                 \
  do {                                                                                                                \
    if (!(condition))                                                                                                 \
      throw ::joinsum::InternalError(                                                                                 \
          ::joinsum::concatenate("joinsum defect: ", __FILE__, ":", __LINE__, ": ", #condition, " ", ##__VA_ARGS__)); \
  } while (false)
