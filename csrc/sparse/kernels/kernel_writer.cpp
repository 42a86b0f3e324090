#include "sparse/kernels/kernel_writer.h"

#include <algorithm>

#include "sparse/kernels/generate.h"
#include "sparse/kernels/walks.h"

namespace joinsum::sparse::kernels {
namespace {

bool is_float(DType dtype) { return dtype == DType::kFloat32 || dtype == DType::kFloat64; }

/// Whether the order in which elements are reduced shows in the result.
bool depends_on_order(const Kernel& kernel, DType dtype) {
  const auto op = kernel.aggregate;
  return is_float(dtype) && (op == Operator::kAdd || op == Operator::kMultiply || op == Operator::kLogAddExp);
}

}  // namespace

KernelWriter::KernelWriter(const Kernel& kernel, DType dtype)
    : kernel_(kernel),
      dtype_(dtype),
      type_(generated_type(dtype)),
      way_(way_of(kernel)),
      prefix_(prefix_of(kernel)),
      counted_(counts_visits(kernel, dtype)),
      element_depth_(kernel.output.empty() ? 0 : *std::ranges::max_element(kernel.output) + 1),
      steps_(body_steps(kernel)),
      fills_(fills_of(kernel)),
      guarded_(kernel.body.size()) {
  if (is_float(dtype)) guarded_ = nodes_to_guard(kernel);
  guards_ = std::ranges::find(guarded_, true) != guarded_.end();
  for (const Operand& operand : kernel.operands) present_.push_back(!operand.loops.empty());
  // As the interpreter does: what the last loop reduces to is added to the element each time that the loop has run.
  const int64_t last = loops() - 1;
  if (element_depth_ < last && depends_on_order(kernel, dtype)) {
    if (way_ == ResultWay::kInOrder) {
      reduces_alone_ = !kernel.loops[last].single;
    } else {
      element_depth_ = kernel.loops[last].single ? loops() : last;
    }
  }
}

void KernelWriter::line(const std::string& text) { text_ += std::string(2 * indent_, ' ') + text + "\n"; }

void KernelWriter::open(const std::string& text) {
  line(text + " {");
  ++indent_;
}

void KernelWriter::close() {
  --indent_;
  line("}");
}

std::string KernelWriter::function(const std::string& name) {
  const bool has_workspace = way_ == ResultWay::kWorkspace;
  line("namespace {\n");
  if (has_workspace) line("template <bool kIsArray>");
  open("void run_" + name + "(const Call& call)");
  declare_arguments();
  steps_at(-1);
  loop(0);
  close();
  line("\n}  // namespace\n");
  open("extern \"C\" void " + name + "(const Call* call)");
  if (has_workspace) {
    line("if (call->touched != nullptr) return run_" + name + "<true>(*call);");
    line("run_" + name + "<false>(*call);");
  } else {
    line("run_" + name + "(*call);");
  }
  close();
  return text_;
}

void KernelWriter::declare_arguments() {
  line("using T = " + type_ + ";");
  for (int64_t o = 0; o < std::ssize(kernel_.operands); ++o) {
    const std::string n = number(o);
    line("const T* const values" + n + " = static_cast<const T*>(call.values[" + n + "]);");
    for (int64_t l = 0; l < std::ssize(kernel_.operands[o].loops); ++l) {
      line("const Level level" + n + "_" + number(l) + " = call.levels[" + n + "][" + number(l) + "];");
    }
    if (!kernel_.operands[o].loops.empty()) continue;
    line("const int64_t root" + n + " = call.roots[" + n + "];");
    if (kernel_.required[o]) {
      line("if (root" + n + " < 0) return;");
      present_[o] = true;
    }
  }
  for (int64_t d = 0; d < loops(); ++d)
    line("const int64_t extent" + number(d) + " = call.extents[" + number(d) + "];");
  for (int64_t l = prefix_; l + 1 < std::ssize(kernel_.output); ++l) {
    const std::string loop = number(kernel_.output[l]);
    line("const int64_t stride" + loop + " = call.strides[" + loop + "];");
  }
  line("T* __restrict elements = static_cast<T*>(call.elements);");
  if (counted_ || way_ == ResultWay::kInOrder) line("int64_t* const counts = call.counts;");
  if (way_ == ResultWay::kDense) return;
  line("int64_t* const order = call.order;");
  if (way_ == ResultWay::kWorkspace) line("uint64_t* const touched = call.touched;");
  line("int64_t noted = 0;");
}

/// One loop and all inside it.
void KernelWriter::loop(int64_t depth) {
  before_loop(depth);
  if (depth == loops()) {
    visit();
  } else {
    open_loop(depth);
    steps_at(depth);
    loop(depth + 1);
    close();
  }
  after_loop(depth);
}

void KernelWriter::before_loop(int64_t depth) {
  if (reduces_alone_ && depth == loops() - 1) {
    line("T alone = " + generated_identity(dtype_, *kernel_.aggregate) + ";");
    line("int64_t count = 0;");
  }
  if (depth != element_depth_ || depth == loops()) return;
  line("T reduced = " + generated_identity(dtype_, *kernel_.aggregate) + ";");
  line("int64_t visits = 0;");
}

void KernelWriter::after_loop(int64_t depth) {
  if (reduces_alone_ && depth == loops() - 1) {
    open("if (count > 0)");
    line("reduced = " + reduced("reduced", "alone") + ";");
    line("visits += count;");
    close();
  }
  if (depth == element_depth_ && depth != loops()) {
    open("if (visits > 0)");
    add_element("reduced", "visits");
    close();
  }
  // The loop of a fiber of the result, in whose body its elements or its workspace were filled.
  const bool is_fiber =
      way_ == ResultWay::kInOrder ? depth == kernel_.output.back() : depth == loops_of_prefix(kernel_, prefix_);
  if (way_ != ResultWay::kDense && is_fiber) end_fiber(false);
}

void KernelWriter::visit() {
  const std::string value = steps_.empty() ? "" : "x" + number(std::ssize(kernel_.body) - 1);
  if (element_depth_ == loops()) return add_element(value, "1");
  const std::string into = reduces_alone_ ? "alone" : "reduced";
  line(into + " = " + reduced(into, value) + ";");
  line(reduces_alone_ ? "++count;" : "++visits;");
}

std::string KernelWriter::reduced(const std::string& a, const std::string& b) const {
  return kernel_.aggregate ? generated_apply(*kernel_.aggregate, a, b) : b;
}

std::string KernelWriter::base() const {
  if (kernel_.output.empty()) return "0";
  std::string sum;
  for (int64_t l = prefix_; l + 1 < std::ssize(kernel_.output); ++l) {
    const std::string loop = number(kernel_.output[l]);
    sum += "stride" + loop + " * i" + loop + " + ";
  }
  // The stride of the last level is one.
  return sum + "i" + number(kernel_.output.back());
}

void KernelWriter::add_element(const std::string& value, const std::string& count) {
  if (way_ == ResultWay::kInOrder) {
    const bool is_truth = kernel_.aggregate && count == "1";
    line("order[noted] = i" + number(kernel_.output.back()) + ";");
    line("elements[noted] = " +
         (is_truth ? reduced("T(" + generated_identity(dtype_, *kernel_.aggregate) + ")", value) : value) + ";");
    line("counts[noted] = " + count + ";");
    open("if (++noted == " + number(kGeneratedChunk) + ")");
    end_fiber(true);
    close();
    return;
  }
  line("const int64_t at = " + base() + ";");
  const auto reduce_into = [&](const std::string& element) { line(element + " = " + reduced(element, value) + ";"); };
  if (way_ == ResultWay::kDense) {
    reduce_into("elements[at]");
    if (counted_) line("counts[at] += " + count + ";");
    return;
  }
  open("if constexpr (kIsArray)");
  open("if ((touched[at / 64] >> (at % 64) & 1) == 0)");
  line("touched[at / 64] |= uint64_t(1) << (at % 64);");
  line("order[noted++] = at;");
  line("elements[at] = " + (kernel_.aggregate ? generated_identity(dtype_, *kernel_.aggregate) : "T()") + ";");
  if (counted_) line("counts[at] = 0;");
  close();
  reduce_into("elements[at]");
  if (counted_) line("counts[at] += " + count + ";");
  --indent_;
  open("} else");
  line("T& element = *static_cast<T*>(call.element(call.context, at, " + count + "));");
  reduce_into("element");
  close();
}

void KernelWriter::set_prefix(int64_t levels) {
  for (int64_t l = 0; l < levels; ++l) line("call.prefix[" + number(l) + "] = i" + number(kernel_.output[l]) + ";");
}

void KernelWriter::end_fiber(bool is_chunk) {
  if (way_ == ResultWay::kInOrder && !is_chunk) open("if (noted > 0)");
  set_prefix(way_ == ResultWay::kInOrder ? std::ssize(kernel_.output) - 1 : prefix_);
  line("call.fiber(call.context, noted);");
  line("noted = 0;");
  if (way_ == ResultWay::kInOrder && !is_chunk) close();
}

void KernelWriter::steps_at(int64_t depth) {
  for (const BodyStep& step : steps_) {
    if (step.depth != depth) continue;
    const std::string n = number(step.node);
    const BodyNode& node = kernel_.body[step.node];
    if (guards_ && step.finishes) line("const bool f" + n + " = " + at_fill(node) + ";");
    line("const T " + step.name + " = " + value_of_step(step) + ";");
  }
}

std::string KernelWriter::value_of_step(const BodyStep& step) const {
  const BodyNode& node = kernel_.body[step.node];
  const std::string fill = generated_literal(dtype_, fills_[step.node]);
  if (step.kind == BodyStep::Kind::kLiteral) return fill;
  if (step.kind == BodyStep::Kind::kOperand) {
    const std::string at = entry(node.operand, step.depth);
    const std::string read = "values" + number(node.operand) + "[" + at + "]";
    return present_[node.operand] ? read : at + " < 0 ? " + fill + " : " + read;
  }
  const std::string value =
      step.right.empty() ? generated_apply(node.op, step.left) : generated_apply(node.op, step.left, step.right);
  const bool guarded = guarded_[step.node] && step.finishes;
  return guarded ? "f" + number(step.node) + " ? " + fill + " : " + value : value;
}

/// Whether absent operands put a node at its fill.
std::string KernelWriter::at_fill(const BodyNode& node) const {
  if (node.kind == BodyNode::Kind::kLiteral) return "true";
  if (node.kind == BodyNode::Kind::kOperand) {
    const std::vector<int64_t>& operand_loops = kernel_.operands[node.operand].loops;
    if (present_[node.operand]) return "false";
    return entry(node.operand, operand_loops.empty() ? -1 : operand_loops.back()) + " < 0";
  }
  const double fill = fills_[&node - kernel_.body.data()];
  std::string any;
  std::string all;
  for (const int64_t child : node.children) {
    const std::string flag = "f" + number(child);
    if (tensor::decides(node.op, fills_[child], fill)) any += flag + " || ";
    all += (all.empty() ? "" : " && ") + flag;
  }
  return any + "(" + all + ")";
}

}  // namespace joinsum::sparse::kernels
