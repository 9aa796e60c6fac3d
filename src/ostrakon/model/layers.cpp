// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/layers.hpp>

#include <algorithm>
#include <cmath>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/activation.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/gemm.hpp>

namespace ostrakon::model {
namespace {

const Parameter* find(const std::vector<Parameter>& parameters, const std::string& name) {
  for (const Parameter& parameter : parameters)
    if (parameter.name == name) return &parameter;
  return nullptr;
}

const Parameter& find_weight(const std::vector<Parameter>& parameters, const std::string& layer) {
  const Parameter* weight = find(parameters, layer + ".weight");
  require(weight != nullptr, "unit has no parameter ", layer, ".weight");
  return *weight;
}

}  // namespace

void add_linear(std::vector<Parameter>& parameters, const std::string& name, std::int64_t outputs,
                std::int64_t inputs, bool bias, double deviation) {
  parameters.push_back({name + ".weight", {outputs, inputs}, Initializer::normal, deviation, true});
  if (bias) parameters.push_back({name + ".bias", {outputs}, Initializer::zeros});
}

ParameterLocation find_parameter(const std::vector<Parameter>& parameters,
                                 const std::string& name) {
  const Parameter* parameter = find(parameters, name);
  return parameter == nullptr ? ParameterLocation{} : location_of(*parameter);
}

Linear find_linear(const std::vector<Parameter>& parameters, const std::string& name) {
  const Parameter& weight = find_weight(parameters, name);
  return {weight.shape[1], weight.shape[0], location_of(weight),
          find_parameter(parameters, name + ".bias")};
}

namespace {

/// The bytes of `columns` columns.
template <class T>
double bytes_of_columns(double rows, std::int64_t columns) {
  return rows * static_cast<double>(columns) * static_cast<double>(sizeof(T));
}

}  // namespace

plan::KernelWork linear_input_work(const Linear& layer, double rows) {
  return plan::product_work(2.0 * rows * static_cast<double>(layer.inputs * layer.outputs),
                            layer.inputs, layer.outputs);
}

template <class T>
plan::KernelWork linear_forward_work(const Linear& layer, double rows) {
  plan::KernelWork work = linear_input_work(layer, rows);  // as many operations
  if (layer.bias.exists()) work += plan::row_work(bytes_of_columns<T>(rows, 2 * layer.outputs));
  return work;
}

template <class T>
plan::KernelWork linear_parameters_work(const Linear& layer, double rows) {
  plan::KernelWork work;
  if (layer.weight.trained()) work += linear_input_work(layer, rows);
  if (layer.bias.trained()) work += plan::row_work(bytes_of_columns<T>(rows, layer.outputs));
  return work;
}

template <class T>
void linear_forward(const Exec& exec, const Linear& layer, FlatParameter<T> parameters,
                    View<const T**> x, View<T**> y) {
  using math::Transpose;
  const View<const T**> weight = parameters.at(layer.weight).matrix(layer.outputs, layer.inputs);
  math::gemm<T>(exec, Transpose::no, Transpose::yes, 1, x, weight, 0, y);
  if (layer.bias.exists()) math::add_bias<T>(exec, y, parameters.at(layer.bias));
}

template <class T>
void linear_forward_by_row(const Exec& exec, const Linear& layer, FlatParameter<T> parameters,
                           View<const T**> x, View<T**> y, View<T*> workspace) {
  const View<const T**> weight = parameters.at(layer.weight).matrix(layer.outputs, layer.inputs);
  math::gemm_by_row<T>(exec, math::Transpose::yes, x, weight, y, workspace);
  if (layer.bias.exists()) math::add_bias<T>(exec, y, parameters.at(layer.bias));
}

template <class T>
void linear_backward_input_by_row(const Exec& exec, const Linear& layer,
                                  FlatParameter<T> parameters, View<const T**> dy, View<T**> dx,
                                  View<T*> workspace) {
  const View<const T**> weight = parameters.at(layer.weight).matrix(layer.outputs, layer.inputs);
  math::gemm_by_row<T>(exec, math::Transpose::no, dy, weight, dx, workspace);
}

template <class T>
std::int64_t by_row_workspace(const Linear& layer, math::KernelForm form) {
  return math::gemm_by_row_workspace<T>(layer.inputs, layer.outputs,
                                        math::rows_of_a_product_in<T>(form));
}

template <class T>
void linear_backward_parameters(const Exec& exec, const Linear& layer, View<const T**> x,
                                View<const T**> dy, View<compute_t<T>*> gradients,
                                const LeafSums<T>& sums) {
  sum_weight_gradient<T>(
      exec, x, dy, gradient_at(gradients, layer.weight).matrix(layer.outputs, layer.inputs), sums);
  sum_bias_gradient<T>(exec, dy, gradient_at(gradients, layer.bias), sums);
}

template <class T>
void linear_backward_input(const Exec& exec, const Linear& layer, FlatParameter<T> parameters,
                           View<const T**> dy, View<T**> dx) {
  using math::Transpose;
  const View<const T**> weight = parameters.at(layer.weight).matrix(layer.outputs, layer.inputs);
  math::gemm<T>(exec, Transpose::no, Transpose::no, 1, dy, weight, 0, dx);
}

void add_norm(std::vector<Parameter>& parameters, const std::string& name, math::NormKind kind,
              std::int64_t width, bool bias) {
  parameters.push_back({name + ".weight", {width}, Initializer::ones});
  if (bias && kind == math::NormKind::layernorm)
    parameters.push_back({name + ".bias", {width}, Initializer::zeros});
}

Norm find_norm(const std::vector<Parameter>& parameters, const std::string& name,
               math::NormKind kind, double epsilon) {
  return {kind, epsilon, location_of(find_weight(parameters, name)),
          find_parameter(parameters, name + ".bias")};
}

std::string name_of_up(const DecoderSettings& settings, const std::string& mlp) {
  return mlp + (settings.activation == Activation::gelu ? ".up" : ".gate_up");
}

std::string name_of_expert(std::int64_t index) { return "mlp.experts." + std::to_string(index); }

namespace {

/// Each block adds two projections to the residual stream; its variance must not grow with depth.
double residual_deviation(const DecoderSettings& settings) {
  return settings.initializer_deviation / std::sqrt(2.0 * settings.layers);
}

/// Cuts of the parameters of a layer into tensor pieces: of its outputs, those of each section by
/// themselves; or of its inputs.
void cut_outputs(std::vector<Parameter>& parameters, const std::string& name,
                 const std::vector<std::int64_t>& sections) {
  for (Parameter& parameter : parameters)
    if (parameter.name == name + ".weight" || parameter.name == name + ".bias")
      parameter.cut = {false, sections};
}
void cut_inputs(std::vector<Parameter>& parameters, const std::string& name) {
  for (Parameter& parameter : parameters)
    if (parameter.name == name + ".weight") parameter.cut = {true, {}};
}

/// An MLP whose inner columns are cut.
void add_mlp(std::vector<Parameter>& parameters, const DecoderSettings& settings,
             const std::string& name, std::int64_t inner) {
  const std::int64_t up = settings.activation == Activation::gelu ? inner : 2 * inner;
  add_linear(parameters, name_of_up(settings, name), up, settings.width, settings.mlp_bias(),
             settings.initializer_deviation);
  add_linear(parameters, name + ".down", settings.width, inner, settings.mlp_bias(),
             residual_deviation(settings));
  cut_outputs(parameters, name_of_up(settings, name),
              up == inner ? std::vector{inner} : std::vector{inner, inner});
  cut_inputs(parameters, name + ".down");
}

}  // namespace

std::vector<Parameter> expert_parameters(const DecoderSettings& settings) {
  std::vector<Parameter> parameters;
  for (std::int64_t e = 0; e < settings.experts.count; ++e)
    add_mlp(parameters, settings, name_of_expert(e), settings.experts.width);
  for (Parameter& parameter : parameters) parameter.cut = {};  // whole experts are divided
  return parameters;
}

std::vector<Parameter> block_parameters(const DecoderSettings& settings, bool with_experts) {
  const std::int64_t width = settings.width;
  const std::int64_t heads = settings.query_width();
  const std::int64_t qkv = heads + 2 * settings.kv_heads * settings.head_width();
  const double deviation = settings.initializer_deviation;
  std::vector<Parameter> parameters;
  add_norm(parameters, "attention.norm", settings.norm, width, settings.bias);
  add_linear(parameters, "attention.qkv", qkv, width, settings.bias, deviation);
  cut_outputs(parameters, "attention.qkv", {heads, (qkv - heads) / 2, (qkv - heads) / 2});
  if (settings.query_key_norm)
    for (const char* name : {"attention.query_norm", "attention.key_norm"})
      add_norm(parameters, name, math::NormKind::rmsnorm, settings.head_width(), false);
  add_linear(parameters, "attention.out", width, heads, settings.bias,
             residual_deviation(settings));
  cut_inputs(parameters, "attention.out");
  add_norm(parameters, "mlp.norm", settings.norm, width, settings.bias);
  const ExpertSettings& experts = settings.experts;
  if (!experts.exist()) {
    add_mlp(parameters, settings, "mlp", settings.ffn_width);
    return parameters;
  }
  add_linear(parameters, "mlp.router", experts.count, width, false, deviation);
  parameters.back().orthogonalize = false;  // its rows give logits
  if (experts.balance == RouterBalance::bias) {
    parameters.push_back(Parameter::zeros("mlp.router.balance", {experts.count}));
    parameters.back().sign_rate = experts.balance_rate;
  }
  if (with_experts)
    for (Parameter& parameter : expert_parameters(settings))
      parameters.push_back(std::move(parameter));
  if (experts.shared > 0) add_mlp(parameters, settings, "mlp.shared", experts.shared_width());
  return parameters;
}

template <class T>
void activate(const Exec& exec, Activation activation, View<const T**> up, View<T**> activated) {
  if (activation == Activation::gelu)
    math::gelu_forward<T>(exec, up, activated);
  else
    math::swiglu_forward<T>(exec, up, activated);
}

template <class T>
void activate_backward(const Exec& exec, Activation activation, View<const T**> up,
                       View<const T**> dactivated, View<T**> dup) {
  if (activation == Activation::gelu)
    math::gelu_backward<T>(exec, up, dactivated, dup);
  else
    math::swiglu_backward<T>(exec, up, dactivated, dup);
}

template <class T>
void norm_forward(const Exec& exec, const Norm& layer, FlatParameter<T> parameters,
                  View<const T**> x, NormStatistics<T> statistics, View<T**> y) {
  math::norm_forward<T>(exec, layer.kind, layer.epsilon, x, parameters.at(layer.weight),
                        parameters.at(layer.bias), y, statistics.mean, statistics.rstd);
}

template <class T>
void norm_apply(const Exec& exec, const Norm& layer, FlatParameter<T> parameters, View<const T**> x,
                NormStatistics<T> statistics, View<T**> y) {
  math::norm_apply<T>(exec, layer.kind, x, parameters.at(layer.weight), parameters.at(layer.bias),
                      statistics.mean, statistics.rstd, y);
}

template <class T>
void norm_again(const Exec& exec, const Norm& layer, FlatParameter<T> parameters, View<const T**> x,
                NormStatistics<T> statistics, bool lost, bool output_needed, View<T**> y) {
  if (lost)
    norm_forward<T>(exec, layer, parameters, x, statistics, y);
  else if (output_needed)
    norm_apply<T>(exec, layer, parameters, x, statistics, y);
}

std::int64_t leaf_sums_workspace(const Linear& layer, std::int64_t leaves) {
  return std::max(weight_sums_workspace(layer.outputs, layer.inputs, leaves),
                  bias_sums_workspace(layer.outputs, leaves));
}

template <class T>
void norm_backward(const Exec& exec, const Norm& layer, FlatParameter<T> parameters,
                   View<const T**> x, NormStatistics<T> statistics, View<const T**> dy,
                   View<compute_t<T>*> gradients, View<T**> dx, math::GradientUpdate update,
                   const LeafSums<T>& sums) {
  sum_norm_gradients<T>(exec, layer.kind, x, statistics.mean, statistics.rstd, dy,
                        gradient_at(gradients, layer.weight), gradient_at(gradients, layer.bias),
                        sums);
  math::norm_backward_input<T>(exec, layer.kind, x, parameters.at(layer.weight), statistics.mean,
                               statistics.rstd, dy, dx, update);
}

namespace {

/// The norm whose parameters, and their gradients, are in a DeferredNorm.
Norm with_copies(const Norm& layer) {
  Norm copy = layer;
  copy.weight.offset = 0;
  if (copy.bias.exists()) copy.bias.offset = layer.weight.elements;
  return copy;
}

}  // namespace

template <class T>
void norm_backward(const Exec& exec, const Norm& layer, FlatParameter<T> parameters,
                   View<const T**> x, NormStatistics<T> statistics, View<const T**> dy,
                   const DeferredNorm<T>& deferred, View<T**> dx, math::GradientUpdate update,
                   const LeafSums<T>& sums) {
  const Norm copy = with_copies(layer);
  for (const auto& [from, to] : {std::pair{layer.weight, copy.weight}, {layer.bias, copy.bias}})
    if (from.exists())
      math::copy<T>(exec, parameters.at(from),
                    deferred.parameters.range(to.offset, to.offset + to.elements));
  norm_backward<T>(exec, copy, {deferred.parameters, deferred.parameters}, x, statistics, dy,
                   deferred.gradients, dx, update, sums);
}

template <class T>
void norm_apply(const Exec& exec, const Norm& layer, const DeferredNorm<T>& deferred,
                View<const T**> x, NormStatistics<T> statistics, View<T**> y) {
  norm_apply<T>(exec, with_copies(layer),
                FlatParameter<T>{deferred.parameters, deferred.parameters}, x, statistics, y);
}

template <class T>
void norm_gradients(const Exec& exec, const Norm& layer, const DeferredNorm<T>& deferred,
                    View<compute_t<T>*> gradients) {
  using C = compute_t<T>;
  const Norm copy = with_copies(layer);
  for (const auto& [from, to] : {std::pair{copy.weight, layer.weight}, {copy.bias, layer.bias}})
    if (to.trained())
      math::copy<C>(exec, View<const C*>(gradient_at(deferred.gradients, from)),
                    gradient_at(gradients, to));
}

#define OSTRAKON_INSTANTIATE_LAYERS(T)                                                           \
  template plan::KernelWork linear_forward_work<T>(const Linear&, double);                       \
  template plan::KernelWork linear_parameters_work<T>(const Linear&, double);                    \
  template void linear_forward<T>(const Exec&, const Linear&, FlatParameter<T>, View<const T**>, \
                                  View<T**>);                                                    \
  template void linear_forward_by_row<T>(const Exec&, const Linear&, FlatParameter<T>,           \
                                         View<const T**>, View<T**>, View<T*>);                  \
  template void linear_backward_input_by_row<T>(const Exec&, const Linear&, FlatParameter<T>,    \
                                                View<const T**>, View<T**>, View<T*>);           \
  template std::int64_t by_row_workspace<T>(const Linear&, math::KernelForm);                    \
  template void norm_again<T>(const Exec&, const Norm&, FlatParameter<T>, View<const T**>,       \
                              NormStatistics<T>, bool, bool, View<T**>);                         \
  template void linear_backward_parameters<T>(const Exec&, const Linear&, View<const T**>,       \
                                              View<const T**>, View<compute_t<T>*>,              \
                                              const LeafSums<T>&);                               \
  template void linear_backward_input<T>(const Exec&, const Linear&, FlatParameter<T>,           \
                                         View<const T**>, View<T**>);                            \
  template void norm_forward<T>(const Exec&, const Norm&, FlatParameter<T>, View<const T**>,     \
                                NormStatistics<T>, View<T**>);                                   \
  template void norm_apply<T>(const Exec&, const Norm&, FlatParameter<T>, View<const T**>,       \
                              NormStatistics<T>, View<T**>);                                     \
  template void norm_backward<T>(const Exec&, const Norm&, FlatParameter<T>, View<const T**>,    \
                                 NormStatistics<T>, View<const T**>, View<compute_t<T>*>,        \
                                 View<T**>, math::GradientUpdate, const LeafSums<T>&);           \
  template void norm_backward<T>(const Exec&, const Norm&, FlatParameter<T>, View<const T**>,    \
                                 NormStatistics<T>, View<const T**>, const DeferredNorm<T>&,     \
                                 View<T**>, math::GradientUpdate, const LeafSums<T>&);           \
  template void norm_apply<T>(const Exec&, const Norm&, const DeferredNorm<T>&, View<const T**>, \
                              NormStatistics<T>, View<T**>);                                     \
  template void norm_gradients<T>(const Exec&, const Norm&, const DeferredNorm<T>&,              \
                                  View<compute_t<T>*>);                                          \
  template void activate<T>(const Exec&, Activation, View<const T**>, View<T**>);                \
  template void activate_backward<T>(const Exec&, Activation, View<const T**>, View<const T**>,  \
                                     View<T**>);

OSTRAKON_INSTANTIATE_LAYERS(float)
OSTRAKON_INSTANTIATE_LAYERS(double)
OSTRAKON_INSTANTIATE_LAYERS(bf16)
OSTRAKON_INSTANTIATE_LAYERS(fp16)

}  // namespace ostrakon::model
