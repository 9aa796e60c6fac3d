// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/layers.hpp>

#include <ostrakon/base/error.hpp>
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

ParameterLocation find_bias(const std::vector<Parameter>& parameters, const std::string& layer) {
  const Parameter* bias = find(parameters, layer + ".bias");
  return bias == nullptr ? ParameterLocation{} : location_of(*bias);
}

template <class T>
void linear(const Exec& exec, const Linear& layer, FlatParameter<T> parameters, View<const T**> x,
            compute_t<T> beta, View<T**> y) {
  using math::Transpose;
  const View<const T**> weight = parameters.at(layer.weight).matrix(layer.outputs, layer.inputs);
  math::gemm<T>(exec, Transpose::no, Transpose::yes, 1, x, weight, beta, y);
  if (layer.bias.exists()) math::add_bias<T>(exec, y, parameters.at(layer.bias));
}

}  // namespace

void add_linear(std::vector<Parameter>& parameters, const std::string& name, std::int64_t outputs,
                std::int64_t inputs, bool bias, double deviation) {
  parameters.push_back({name + ".weight", {outputs, inputs}, Initializer::normal, deviation, true});
  if (bias) parameters.push_back({name + ".bias", {outputs}, Initializer::zeros});
}

Linear find_linear(const std::vector<Parameter>& parameters, const std::string& name) {
  const Parameter& weight = find_weight(parameters, name);
  return {weight.shape[1], weight.shape[0], location_of(weight), find_bias(parameters, name)};
}

template <class T>
void linear_forward(const Exec& exec, const Linear& layer, FlatParameter<T> parameters,
                    View<const T**> x, View<T**> y) {
  linear<T>(exec, layer, parameters, x, 0, y);
}

template <class T>
void linear_forward_add(const Exec& exec, const Linear& layer, FlatParameter<T> parameters,
                        View<const T**> x, View<T**> y) {
  linear<T>(exec, layer, parameters, x, 1, y);
}

template <class T>
void linear_backward_parameters(const Exec& exec, const Linear& layer, View<const T**> x,
                                View<const T**> dy, View<compute_t<T>*> gradients) {
  using math::Transpose;
  if (layer.weight.trained()) {
    const View<compute_t<T>**> dweight =
        gradient_at(gradients, layer.weight).matrix(layer.outputs, layer.inputs);
    math::gemm<T>(exec, Transpose::yes, Transpose::no, 1, dy, x, 0, dweight);
  }
  if (layer.bias.trained()) math::column_sums<T>(exec, dy, gradient_at(gradients, layer.bias));
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
  return {kind, epsilon, location_of(find_weight(parameters, name)), find_bias(parameters, name)};
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
void norm_backward(const Exec& exec, const Norm& layer, FlatParameter<T> parameters,
                   View<const T**> x, NormStatistics<T> statistics, View<const T**> dy,
                   View<compute_t<T>*> gradients, View<T**> dx, math::GradientUpdate update) {
  math::norm_backward_parameters<T>(exec, layer.kind, x, statistics.mean, statistics.rstd, dy,
                                    gradient_at(gradients, layer.weight),
                                    gradient_at(gradients, layer.bias));
  math::norm_backward_input<T>(exec, layer.kind, x, parameters.at(layer.weight), statistics.mean,
                               statistics.rstd, dy, dx, update);
}

#define OSTRAKON_INSTANTIATE_LAYERS(T)                                                           \
  template void linear_forward<T>(const Exec&, const Linear&, FlatParameter<T>, View<const T**>, \
                                  View<T**>);                                                    \
  template void linear_forward_add<T>(const Exec&, const Linear&, FlatParameter<T>,              \
                                      View<const T**>, View<T**>);                               \
  template void linear_backward_parameters<T>(const Exec&, const Linear&, View<const T**>,       \
                                              View<const T**>, View<compute_t<T>*>);             \
  template void linear_backward_input<T>(const Exec&, const Linear&, FlatParameter<T>,           \
                                         View<const T**>, View<T**>);                            \
  template void norm_forward<T>(const Exec&, const Norm&, FlatParameter<T>, View<const T**>,     \
                                NormStatistics<T>, View<T**>);                                   \
  template void norm_apply<T>(const Exec&, const Norm&, FlatParameter<T>, View<const T**>,       \
                              NormStatistics<T>, View<T**>);                                     \
  template void norm_backward<T>(const Exec&, const Norm&, FlatParameter<T>, View<const T**>,    \
                                 NormStatistics<T>, View<const T**>, View<compute_t<T>*>,        \
                                 View<T**>, math::GradientUpdate);

OSTRAKON_INSTANTIATE_LAYERS(float)
OSTRAKON_INSTANTIATE_LAYERS(double)
OSTRAKON_INSTANTIATE_LAYERS(bf16)
OSTRAKON_INSTANTIATE_LAYERS(fp16)

}  // namespace ostrakon::model
