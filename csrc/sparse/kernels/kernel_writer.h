#pragma once

#include <string>
#include <vector>

#include "sparse/kernels/body_steps.h"
#include "sparse/kernels/generated_text.h"
#include "sparse/kernels/kernel.h"
#include "sparse/kernels/prepared.h"
#include "sparse/tensor/levels.h"

namespace joinsum::sparse::kernels {

/// Writes the function of one kernel.
class KernelWriter {
 public:
  KernelWriter(const Kernel& kernel, DType dtype);

  std::string function(const std::string& name);

 private:
  // Loops.
  void loop(int64_t depth);
  void open_loop(int64_t depth);
  void open_range(int64_t depth);
  void open_list(int64_t depth, int64_t walker);
  void open_intersection(int64_t depth, int64_t walker, int64_t other);
  void open_union(int64_t depth);
  void declare_searches(int64_t depth);
  void look_up(int64_t depth, int64_t operand);
  std::string found(int64_t depth, int64_t operand) const;

  // Values and elements.
  void declare_arguments();
  void steps_at(int64_t depth);
  std::string value_of_step(const BodyStep& step) const;
  std::string at_fill(const BodyNode& node) const;
  void before_loop(int64_t depth);
  void after_loop(int64_t depth);
  void visit();
  void add_element(const std::string& value, const std::string& count);
  void end_fiber(bool is_chunk);
  void set_prefix(int64_t levels);

  // Names.
  std::string lower(int64_t depth) const { return depth == 0 ? "call.lower" : "0"; }
  std::string upper(int64_t depth) const;
  std::string level(int64_t operand, int64_t depth) const;
  std::string entry(int64_t operand, int64_t depth) const;
  std::string above(int64_t operand, int64_t depth) const;
  std::string base() const;
  std::string reduced(const std::string& a, const std::string& b) const;
  LevelFormat format(int64_t operand, int64_t depth) const;
  int64_t level_number(int64_t operand, int64_t depth) const;
  bool lists(int64_t operand, int64_t depth) const { return lists_coordinates(format(operand, depth)); }
  /// The required operand of a loop with which its only walker, a list, can be intersected; -1: none.
  int64_t intersected(int64_t depth) const;

  int64_t loops() const { return std::ssize(kernel_.loops); }
  void line(const std::string& text);
  void open(const std::string& text);
  void close();

  const Kernel& kernel_;
  DType dtype_;
  std::string type_;
  ResultWay way_;
  int64_t prefix_;
  bool counted_;
  int64_t element_depth_;       ///< the first loop that is reduced before what it reduces to is added to an element
  bool reduces_alone_ = false;  ///< whether the last loop is, too, within others whose elements are visited once
  std::vector<BodyStep> steps_;
  std::vector<double> fills_;
  std::vector<bool> guarded_;
  bool guards_ = false;
  std::vector<bool> present_;  ///< of each operand: whether it is surely there so far
  std::string text_;
  int64_t indent_ = 0;
};

}  // namespace joinsum::sparse::kernels
