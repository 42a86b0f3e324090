// The operators `joinsum::adam_update` and `joinsum::amsgrad_update`: the update of a parameter by Adam or AdamW and
// its new state, by torch's fused kernel where numbers are on the host. Numbers are tensors of one element, as they may
// change between steps; `take1` and `take2` are 1 - beta, which single precision holds exactly enough. Source:
// torch.optim.AdamW.

#include <tuple>

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <torch/library.h>

namespace joinsum::kernels::torch_call {
namespace {

/// What an update reads besides the tensors of the parameter's shape.
struct Numbers {
  const at::Tensor& lr;
  const at::Tensor& take1;
  const at::Tensor& take2;
  const at::Tensor& eps;
  const at::Tensor& decay;
  const at::Tensor& step;
  bool decoupled;
  bool maximize;
};

/// New values of `param` and its state, whose last tensor is the maximum of AMSGrad if there are three, composed of
/// torch's operators: in single precision at least.
std::vector<at::Tensor> updated(at::Tensor param, at::Tensor grad, std::vector<at::Tensor> state, const Numbers& n) {
  const at::ScalarType given = param.scalar_type(), type = at::toOpMathType(given);
  param = param.to(type);
  grad = grad.to(type);
  for (at::Tensor& each : state) each = each.to(type);
  if (n.maximize) grad = -grad;
  if (n.decoupled) {
    param = param * (1 - n.lr * n.decay);
  } else {
    grad = grad + param * n.decay;
  }
  std::vector<at::Tensor> out{param, at::lerp(state[0], grad, n.take1), at::lerp(state[1], grad * grad, n.take2)};
  if (state.size() == 3) out.push_back(at::maximum(state[2], out[2]));
  const at::Tensor first = 1 - at::pow(1 - n.take1.to(at::kDouble), n.step);
  const at::Tensor second = at::sqrt(1 - at::pow(1 - n.take2.to(at::kDouble), n.step));
  const at::Tensor denominator = at::sqrt(out.back()) / second.to(type) + n.eps;
  out[0] = param - out[1] / denominator * (n.lr / first).to(type);
  for (at::Tensor& each : out) each = each.to(given);
  return out;
}

/// Whether torch's fused kernels take the numbers, which they read on the host.
bool is_fused(const at::Tensor& param, const Numbers& n) {
  return param.is_cpu() || (param.is_cuda() && n.lr.is_cpu());
}

/// Updates parameters and states in place by torch's kernel of AdamW, or of Adam. It takes elements as they lie, so
/// gradients lie as their parameters.
void update_in_place(at::TensorList params, at::TensorList grads, at::TensorList exp_avgs, at::TensorList exp_avg_sqs,
                     at::TensorList most, const Numbers& n) {
  std::vector<at::Tensor> own;
  for (size_t i = 0; i < params.size(); ++i) {
    const bool alike = grads[i].sizes() == params[i].sizes() && grads[i].strides() == params[i].strides();
    own.push_back(alike ? grads[i] : at::empty_like(params[i]).copy_(grads[i]));
  }
  const at::Tensor step = params[0].is_cpu() ? n.step : n.step.to(params[0].device(), at::kFloat);
  const std::vector<at::Tensor> steps(params.size(), step);
  const auto kernel = n.decoupled ? &at::_ops::_fused_adamw_::call : &at::_ops::_fused_adam_::call;
  kernel(params, own, exp_avgs, exp_avg_sqs, most, steps, n.lr.item<double>(), 1 - n.take1.item<double>(),
         1 - n.take2.item<double>(), n.decay.item<double>(), n.eps.item<double>(), !most.empty(), n.maximize, {}, {});
}

/// New values into `out`, which may be `param` and `state`.
void update_into(const at::Tensor& param, const at::Tensor& grad, const std::vector<at::Tensor>& state,
                 const Numbers& n, const std::vector<at::Tensor>& out) {
  if (!is_fused(param, n)) {
    const std::vector<at::Tensor> results = updated(param, grad, state, n);
    for (size_t i = 0; i < out.size(); ++i) out[i].copy_(results[i]);
    return;
  }
  const auto copied = [](const at::Tensor& to, const at::Tensor& from) {
    if (to.const_data_ptr() != from.const_data_ptr()) to.copy_(from);
  };
  copied(out[0], param);
  for (size_t i = 0; i < state.size(); ++i) copied(out[i + 1], state[i]);
  const std::vector<at::Tensor> most(out.begin() + 3, out.end());
  update_in_place({out[0]}, {grad}, {out[1]}, {out[2]}, most, n);
}

using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using Four = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

/// New values on the device of `param`; on the meta device results have no values.
std::vector<at::Tensor> on_device(const at::Tensor& param, const at::Tensor& grad, const std::vector<at::Tensor>& state,
                                  const Numbers& numbers) {
  if (!param.is_meta() && !is_fused(param, numbers)) return updated(param, grad, state, numbers);
  std::vector<at::Tensor> out;
  for (size_t i = 0; i <= state.size(); ++i) out.push_back(at::empty(param.sizes(), param.options()));
  if (!param.is_meta()) update_into(param, grad, state, numbers, out);
  return out;
}

Three adam_update(const at::Tensor& param, const at::Tensor& grad, const at::Tensor& exp_avg,
                  const at::Tensor& exp_avg_sq, const at::Tensor& lr, const at::Tensor& take1, const at::Tensor& take2,
                  const at::Tensor& eps, const at::Tensor& decay, const at::Tensor& step, bool decoupled,
                  bool maximize) {
  const auto out =
      on_device(param, grad, {exp_avg, exp_avg_sq}, {lr, take1, take2, eps, decay, step, decoupled, maximize});
  return {out[0], out[1], out[2]};
}

Three adam_update_out(const at::Tensor& param, const at::Tensor& grad, const at::Tensor& exp_avg,
                      const at::Tensor& exp_avg_sq, const at::Tensor& lr, const at::Tensor& take1,
                      const at::Tensor& take2, const at::Tensor& eps, const at::Tensor& decay, const at::Tensor& step,
                      bool decoupled, bool maximize, at::Tensor param_out, at::Tensor exp_avg_out,
                      at::Tensor exp_avg_sq_out) {
  update_into(param, grad, {exp_avg, exp_avg_sq}, {lr, take1, take2, eps, decay, step, decoupled, maximize},
              {param_out, exp_avg_out, exp_avg_sq_out});
  return {param_out, exp_avg_out, exp_avg_sq_out};
}

/// Updates several parameters and their states in place.
void adam_updates(at::TensorList params, at::TensorList grads, at::TensorList exp_avgs, at::TensorList exp_avg_sqs,
                  const at::Tensor& lr, const at::Tensor& take1, const at::Tensor& take2, const at::Tensor& eps,
                  const at::Tensor& decay, const at::Tensor& step, bool decoupled, bool maximize) {
  const Numbers numbers{lr, take1, take2, eps, decay, step, decoupled, maximize};
  if (is_fused(params[0], numbers)) {
    update_in_place(params, grads, exp_avgs, exp_avg_sqs, {}, numbers);
    return;
  }
  for (size_t i = 0; i < params.size(); ++i) {
    update_into(params[i], grads[i], {exp_avgs[i], exp_avg_sqs[i]}, numbers, {params[i], exp_avgs[i], exp_avg_sqs[i]});
  }
}

Four amsgrad_update(const at::Tensor& param, const at::Tensor& grad, const at::Tensor& exp_avg,
                    const at::Tensor& exp_avg_sq, const at::Tensor& max_exp_avg_sq, const at::Tensor& lr,
                    const at::Tensor& take1, const at::Tensor& take2, const at::Tensor& eps, const at::Tensor& decay,
                    const at::Tensor& step, bool decoupled, bool maximize) {
  const auto out = on_device(param, grad, {exp_avg, exp_avg_sq, max_exp_avg_sq},
                             {lr, take1, take2, eps, decay, step, decoupled, maximize});
  return {out[0], out[1], out[2], out[3]};
}

TORCH_LIBRARY_FRAGMENT(joinsum, library) {
  library.def(
      "adam_update(Tensor param, Tensor grad, Tensor exp_avg, Tensor exp_avg_sq, Tensor lr, Tensor take1, "
      "Tensor take2, Tensor eps, Tensor decay, Tensor step, bool decoupled, bool maximize) -> (Tensor, Tensor, "
      "Tensor)");
  library.def(
      "adam_update.out(Tensor param, Tensor grad, Tensor exp_avg, Tensor exp_avg_sq, Tensor lr, Tensor take1, "
      "Tensor take2, Tensor eps, Tensor decay, Tensor step, bool decoupled, bool maximize, *, Tensor(a!) param_out, "
      "Tensor(b!) exp_avg_out, Tensor(c!) exp_avg_sq_out) -> (Tensor(a!), Tensor(b!), Tensor(c!))");
  library.def(
      "adam_updates_(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] exp_avgs, Tensor(c!)[] exp_avg_sqs, Tensor lr, "
      "Tensor take1, Tensor take2, Tensor eps, Tensor decay, Tensor step, bool decoupled, bool maximize) -> ()");
  library.def(
      "amsgrad_update(Tensor param, Tensor grad, Tensor exp_avg, Tensor exp_avg_sq, Tensor max_exp_avg_sq, Tensor lr, "
      "Tensor take1, Tensor take2, Tensor eps, Tensor decay, Tensor step, bool decoupled, bool maximize) "
      "-> (Tensor, Tensor, Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(joinsum, CompositeExplicitAutograd, library) {
  library.impl("adam_update", &adam_update);
  library.impl("amsgrad_update", &amsgrad_update);
}

void register_in_place(torch::Library& library) {
  library.impl("adam_update.out", &adam_update_out);
  library.impl("adam_updates_", &adam_updates);
}

TORCH_LIBRARY_IMPL(joinsum, CPU, library) { register_in_place(library); }
TORCH_LIBRARY_IMPL(joinsum, CUDA, library) { register_in_place(library); }

}  // namespace
}  // namespace joinsum::kernels::torch_call
