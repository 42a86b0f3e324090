// Adam on the rows of a weight that a batch touches. A row without a gradient still moves, by its moments; it is caught
// up with when a batch reads it, or at the end, by the steps that it has missed. Results are those of Adam on all rows
// in every step, up to rounding: the moments of a row that rests for so long that it stands still are scaled at once.

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>
#include <vector>

#include <ATen/ATen.h>
#include <torch/library.h>

#include "kernels/torch_call/adam_row_loops.h"
#include "kernels/torch_call/touched_rows.h"

namespace joinsum::kernels::torch_call {
namespace {

using Four = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

/// A weight [i, h] and its state: both moments, and for each row the last step that it has seen.
struct State {
  at::Tensor param, exp_avg, exp_avg_sq, done;

  State copied() const { return {param.clone(), exp_avg.clone(), exp_avg_sq.clone(), done.clone()}; }
  Four results() const { return {param, exp_avg, exp_avg_sq, done}; }
};

/// Features [n, i] that are in the batch.
TouchedRows touched_by(const at::Tensor& features) {
  const at::Tensor columns = features._indices().select(0, 1).contiguous();
  const auto* first = columns.const_data_ptr<int64_t>();
  return {std::vector<int64_t>(first, first + columns.numel()), features.size(1)};
}

void check(const State& state, const at::Tensor& features) {
  for (const at::Tensor& each : {state.param, state.exp_avg, state.exp_avg_sq}) {
    TORCH_CHECK(each.scalar_type() == at::kFloat && each.is_cpu() && each.is_contiguous() && each.dim() == 2 &&
                    each.sizes() == state.param.sizes(),
                "adam_rows: a weight and its moments are float32 matrices of one shape on the CPU");
  }
  TORCH_CHECK(state.done.scalar_type() == at::kLong && state.done.is_contiguous() && state.done.dim() == 1 &&
                  state.done.size(0) == state.param.size(0),
              "adam_rows: each row has the number of its last step");
  TORCH_CHECK(features.is_sparse() && features.dense_dim() == 0 && features.dim() == 2 &&
                  features.size(1) == state.param.size(0),
              "adam_rows: features are a sparse matrix with a column for each row of the weight");
}

/// Steps 1, 2, ... as far as they differ, to `last` at least. Each thread keeps those of its last constants.
const std::vector<AdamStep>& first_steps(const AdamConstants& c, int64_t last) {
  constexpr double kNothing = 1e-9;
  thread_local std::optional<AdamConstants> known;
  thread_local std::vector<AdamStep> steps;
  thread_local double power1 = 1, power2 = 1;
  if (known != c) {
    known = c;
    steps.clear();
    power1 = power2 = 1;
  }
  while (static_cast<int64_t>(steps.size()) < last && (power1 > kNothing || power2 > kNothing)) {
    power1 *= c.first;
    power2 *= c.second;
    steps.emplace_back(c, power1, power2);
  }
  return steps;
}

/// Steps without a gradient after which a row moves by less than its rounding: its move falls by `ratio` in each.
int64_t longest_rest(const AdamConstants& c) {
  const double ratio = c.first / std::sqrt(c.second);
  if (!(ratio < 1)) return std::numeric_limits<int64_t>::max();
  return static_cast<int64_t>(std::ceil(std::log(1e-9) / std::log(std::max(ratio, 1e-3))));
}

/// All steps before `step`, of the rows that are touched.
void catch_up(const State& state, const at::Tensor& features, const at::Tensor& step, const AdamConstants& c) {
  check(state, features);
  const int64_t longest = longest_rest(c);
  const auto last = static_cast<int64_t>(step.item<double>()) - 1;
  const TouchedRows touched = touched_by(features);
  const int64_t width = state.param.size(1);
  auto* param = state.param.mutable_data_ptr<float>();
  auto* m = state.exp_avg.mutable_data_ptr<float>();
  auto* v = state.exp_avg_sq.mutable_data_ptr<float>();
  auto* done = state.done.mutable_data_ptr<int64_t>();
  const std::vector<AdamStep>& steps = first_steps(c, last);
  touched.for_each(width, [&](int64_t place) {
    const int64_t row = touched.row(place), at = row * width;
    const int64_t missed = last - done[row];
    if (missed <= 0) return;
    for (int64_t k = 0; k < std::min(missed, longest); ++k) {
      const auto t = std::min(done[row] + 1 + k, static_cast<int64_t>(steps.size()));
      adam_resting_row(param + at, m + at, v + at, width, steps[t - 1]);
    }
    if (missed > longest) {
      const auto rest = static_cast<double>(missed - longest);
      const auto scale1 = static_cast<float>(std::pow(c.first, rest));
      const auto scale2 = static_cast<float>(std::pow(c.second, rest));
      for (int64_t i = at; i < at + width; ++i) {
        m[i] *= scale1;
        v[i] *= scale2;
      }
    }
    done[row] = last;
  });
}

/// Step `step` of the rows that are touched; the gradient of row i is Σ_n features[n, i] slopes[n].
void update(const State& state, const at::Tensor& features, const at::Tensor& slopes, const at::Tensor& step,
            const AdamConstants& c) {
  check(state, features);
  TORCH_CHECK(slopes.is_cpu() && slopes.scalar_type() == at::kFloat && slopes.dim() == 2 &&
                  slopes.size(0) == features.size(0) && slopes.size(1) == state.param.size(1),
              "adam_rows_update: slopes are a float32 matrix with a row for each point");
  const auto t = static_cast<int64_t>(step.item<double>());
  const AdamStep constants(c, t);
  const TouchedRows touched = touched_by(features);
  const int64_t width = state.param.size(1);
  const at::Tensor points = features._indices().select(0, 0).contiguous();
  const at::Tensor values = features._values().to(at::kFloat).contiguous();
  const at::Tensor given = slopes.contiguous();
  const auto* point = points.const_data_ptr<int64_t>();
  const auto* value = values.const_data_ptr<float>();
  const auto* slope = given.const_data_ptr<float>();
  auto* param = state.param.mutable_data_ptr<float>();
  auto* m = state.exp_avg.mutable_data_ptr<float>();
  auto* v = state.exp_avg_sq.mutable_data_ptr<float>();
  auto* done = state.done.mutable_data_ptr<int64_t>();
  touched.for_each(width, [&](int64_t place) {
    thread_local std::vector<float> grad;
    grad.assign(width, 0.0F);
    touched.for_each_entry(place,
                           [&](int64_t e) { add_multiple(grad.data(), slope + point[e] * width, value[e], width); });
    const int64_t row = touched.row(place), at = row * width;
    adam_row(param + at, m + at, v + at, grad.data(), width, constants);
    done[row] = t;
  });
}

/// Where a run computes into given arrays: copies of what they do not share.
void copy_into(const State& from, const State& to) {
  const auto copied = [](const at::Tensor& source, const at::Tensor& target) {
    if (source.const_data_ptr() != target.const_data_ptr()) target.copy_(source);
  };
  copied(from.param, to.param);
  copied(from.exp_avg, to.exp_avg);
  copied(from.exp_avg_sq, to.exp_avg_sq);
  copied(from.done, to.done);
}

Four adam_rows_catch_up(const at::Tensor& param, const at::Tensor& exp_avg, const at::Tensor& exp_avg_sq,
                        const at::Tensor& done, const at::Tensor& features, const at::Tensor& step, double rate,
                        double first, double second, double epsilon) {
  const State state = State{param, exp_avg, exp_avg_sq, done}.copied();
  catch_up(state, features, step, {rate, first, second, epsilon});
  return state.results();
}

Four adam_rows_catch_up_out(const at::Tensor& param, const at::Tensor& exp_avg, const at::Tensor& exp_avg_sq,
                            const at::Tensor& done, const at::Tensor& features, const at::Tensor& step, double rate,
                            double first, double second, double epsilon, at::Tensor param_out, at::Tensor exp_avg_out,
                            at::Tensor exp_avg_sq_out, at::Tensor done_out) {
  const State out{param_out, exp_avg_out, exp_avg_sq_out, done_out};
  copy_into({param, exp_avg, exp_avg_sq, done}, out);
  catch_up(out, features, step, {rate, first, second, epsilon});
  return out.results();
}

Four adam_rows_update(const at::Tensor& param, const at::Tensor& exp_avg, const at::Tensor& exp_avg_sq,
                      const at::Tensor& done, const at::Tensor& features, const at::Tensor& slopes,
                      const at::Tensor& step, double rate, double first, double second, double epsilon) {
  const State state = State{param, exp_avg, exp_avg_sq, done}.copied();
  update(state, features, slopes, step, {rate, first, second, epsilon});
  return state.results();
}

Four adam_rows_update_out(const at::Tensor& param, const at::Tensor& exp_avg, const at::Tensor& exp_avg_sq,
                          const at::Tensor& done, const at::Tensor& features, const at::Tensor& slopes,
                          const at::Tensor& step, double rate, double first, double second, double epsilon,
                          at::Tensor param_out, at::Tensor exp_avg_out, at::Tensor exp_avg_sq_out,
                          at::Tensor done_out) {
  const State out{param_out, exp_avg_out, exp_avg_sq_out, done_out};
  copy_into({param, exp_avg, exp_avg_sq, done}, out);
  update(out, features, slopes, step, {rate, first, second, epsilon});
  return out.results();
}

TORCH_LIBRARY_FRAGMENT(joinsum, library) {
  library.def(
      "adam_rows_catch_up(Tensor param, Tensor exp_avg, Tensor exp_avg_sq, Tensor done, Tensor features, Tensor step, "
      "float rate, float first, float second, float epsilon) -> (Tensor, Tensor, Tensor, Tensor)");
  library.def(
      "adam_rows_catch_up.out(Tensor param, Tensor exp_avg, Tensor exp_avg_sq, Tensor done, Tensor features, Tensor "
      "step, float rate, float first, float second, float epsilon, *, Tensor(a!) param_out, Tensor(b!) exp_avg_out, "
      "Tensor(c!) exp_avg_sq_out, Tensor(d!) done_out) -> (Tensor(a!), Tensor(b!), Tensor(c!), Tensor(d!))");
  library.def(
      "adam_rows_update(Tensor param, Tensor exp_avg, Tensor exp_avg_sq, Tensor done, Tensor features, Tensor slopes, "
      "Tensor step, float rate, float first, float second, float epsilon) -> (Tensor, Tensor, Tensor, Tensor)");
  library.def(
      "adam_rows_update.out(Tensor param, Tensor exp_avg, Tensor exp_avg_sq, Tensor done, Tensor features, Tensor "
      "slopes, Tensor step, float rate, float first, float second, float epsilon, *, Tensor(a!) param_out, Tensor(b!) "
      "exp_avg_out, Tensor(c!) exp_avg_sq_out, Tensor(d!) done_out) -> (Tensor(a!), Tensor(b!), Tensor(c!), "
      "Tensor(d!))");
}

// A sparse operand takes a call to torch's keys of sparse tensors.
TORCH_LIBRARY_IMPL(joinsum, SparseCPU, library) {
  library.impl("adam_rows_catch_up", &adam_rows_catch_up);
  library.impl("adam_rows_catch_up.out", &adam_rows_catch_up_out);
  library.impl("adam_rows_update", &adam_rows_update);
  library.impl("adam_rows_update.out", &adam_rows_update_out);
}

// Where it is seen whether a kernel computes into given arrays.
TORCH_LIBRARY_IMPL(joinsum, CPU, library) {
  library.impl("adam_rows_catch_up.out", &adam_rows_catch_up_out);
  library.impl("adam_rows_update.out", &adam_rows_update_out);
}

}  // namespace
}  // namespace joinsum::kernels::torch_call
