// SPDX-License-Identifier: Apache-2.0
#pragma once

// Linear layers and norms as parts of a unit: they have the locations of their parameters in the
// unit's flat parameter, and call the kernels with them. Gradients of frozen parameters are not
// computed.

#include <ostrakon/math/norm.hpp>
#include <ostrakon/model/decoder.hpp>
#include <ostrakon/model/leaf_sums.hpp>
#include <string>
#include <vector>

namespace ostrakon::model {

/// Where a unit's flat parameter holds one of its arrays.
struct ParameterLocation {
  static constexpr std::int64_t nowhere = -1;

  std::int64_t offset = nowhere;  ///< in its segment; `nowhere` if the array does not exist
  bool frozen = false;            ///< in the frozen segment, not in the trained one
  std::int64_t elements = 0;

  bool exists() const { return offset != nowhere; }
  /// Whether backward computes a gradient of it.
  bool trained() const { return exists() && !frozen; }
};

inline ParameterLocation location_of(const Parameter& parameter) {
  return {parameter.offset, parameter.frozen, parameter.elements()};
}

/// A flat parameter, by its two segments.
template <class T>
struct FlatParameter {
  View<const T*> trained;
  View<const T*> frozen;

  /// The array at `location`.
  View<const T*> at(const ParameterLocation& location) const {
    if (!location.exists()) return {};
    return (location.frozen ? frozen : trained)
        .range(location.offset, location.offset + location.elements);
  }
};

template <class T>
FlatParameter<T> own_parameters(const UnitBuffers<T>& buffers) {
  return {buffers.parameters, buffers.frozen};
}

/// The gradient of the array at `location`, if it has one, among those of the trained segment.
template <class C>
View<C*> gradient_at(View<C*> gradients, const ParameterLocation& location) {
  if (!location.trained()) return {};
  return gradients.range(location.offset, location.offset + location.elements);
}

/// y = x W^T + b. Weight (outputs, inputs) and bias (outputs).
struct Linear {
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  ParameterLocation weight;
  ParameterLocation bias;

  /// Whether it has any gradient.
  bool trained() const { return weight.trained() || bias.trained(); }
};

/// Appends `name`.weight and, with `bias`, `name`.bias.
void add_linear(std::vector<Parameter>& parameters, const std::string& name, std::int64_t outputs,
                std::int64_t inputs, bool bias, double deviation);

/// The parameter `name` among parameters that are laid out; nowhere if there is none.
ParameterLocation find_parameter(const std::vector<Parameter>& parameters, const std::string& name);

/// The layer `name` among parameters that are laid out. Throws Error where there is none.
Linear find_linear(const std::vector<Parameter>& parameters, const std::string& name);

/// What kernels do for `rows` rows of a layer: in forward, for the gradient of x (a product alone,
/// whatever the dtype), and for those of the parameters that are trained.
template <class T>
plan::KernelWork linear_forward_work(const Linear& layer, double rows);
plan::KernelWork linear_input_work(const Linear& layer, double rows);
template <class T>
plan::KernelWork linear_parameters_work(const Linear& layer, double rows);

/// y = x W^T + b. Shapes: x (rows, inputs), y (rows, outputs).
template <class T>
void linear_forward(const Exec& exec, const Linear& layer, FlatParameter<T> parameters,
                    View<const T**> x, View<T**> y);

// linear_forward, and the gradient of its input, for some of a leaf's rows, as many as an expert
// has: no row's bits depend on how many they are. workspace: by_row_workspace(layer).

template <class T>
void linear_forward_by_row(const Exec& exec, const Linear& layer, FlatParameter<T> parameters,
                           View<const T**> x, View<T**> y, View<T*> workspace);
/// dx = dy W, overwritten.
template <class T>
void linear_backward_input_by_row(const Exec& exec, const Linear& layer,
                                  FlatParameter<T> parameters, View<const T**> dy, View<T**> dx,
                                  View<T*> workspace);
/// Elements of T.
template <class T>
std::int64_t by_row_workspace(const Linear& layer, math::KernelForm form);

/// dW = dy^T x and db = column sums of dy, overwritten in `gradients`, those of the trained
/// segment. x is not read where the weight is frozen.
template <class T>
void linear_backward_parameters(const Exec& exec, const Linear& layer, View<const T**> x,
                                View<const T**> dy, View<compute_t<T>*> gradients,
                                const LeafSums<T>& sums = {});

/// dx = dy W, overwritten.
template <class T>
void linear_backward_input(const Exec& exec, const Linear& layer, FlatParameter<T> parameters,
                           View<const T**> dy, View<T**> dx);

/// Layer norm or RMS norm. Weight (width) and bias (width).
struct Norm {
  math::NormKind kind = math::NormKind::rmsnorm;
  double epsilon = 1e-5;
  ParameterLocation weight;
  ParameterLocation bias;

  /// Rows of statistics that are kept: RMS norm has no mean.
  std::int64_t mean_elements(std::int64_t rows) const {
    return kind == math::NormKind::layernorm ? rows : 0;
  }
};

/// A norm between a backward that defers gradients of parameters and what it defers, which finds
/// copies of the parameters, so that none are gathered for it, and the gradients of them, which
/// come with those of the input: weight and bias, (2 width) each.
template <class T>
struct DeferredNorm {
  View<T*> parameters;
  View<compute_t<T>*> gradients;
};

/// What forward keeps of each row: mean (rows; none for RMS norm) and 1 / deviation (rows).
template <class T>
struct NormStatistics {
  View<compute_t<T>*> mean;
  View<compute_t<T>*> rstd;

  NormStatistics row_range(std::int64_t begin, std::int64_t end) const {
    return {mean.range(begin, end), rstd.range(begin, end)};
  }
};

/// Appends `name`.weight and, for a layer norm with `bias`, `name`.bias.
void add_norm(std::vector<Parameter>& parameters, const std::string& name, math::NormKind kind,
              std::int64_t width, bool bias);

/// The layer `name` among parameters that are laid out. Throws Error where there is none.
Norm find_norm(const std::vector<Parameter>& parameters, const std::string& name,
               math::NormKind kind, double epsilon);

/// The MLP's activation: up (rows, ffn_width), for swiglu gate and up (rows, 2 ffn_width);
/// activated (rows, ffn_width).
template <class T>
void activate(const Exec& exec, Activation activation, View<const T**> up, View<T**> activated);

/// dup = the gradient of `up`, from that of `activated`. It may replace `up`, or for gelu
/// `dactivated`.
template <class T>
void activate_backward(const Exec& exec, Activation activation, View<const T**> up,
                       View<const T**> dactivated, View<T**> dup);

/// The parameters of a transformer block, see Decoder, not laid out, with or without those of its
/// experts; those of these alone; and the layer before the activation.
std::vector<Parameter> block_parameters(const DecoderSettings& settings, bool with_experts = true);
std::vector<Parameter> expert_parameters(const DecoderSettings& settings);
std::string name_of_up(const DecoderSettings& settings, const std::string& mlp = "mlp");
/// "mlp.experts.3"
std::string name_of_expert(std::int64_t index);

/// y = norm(x), writes the statistics. Shapes: x, y (rows, width).
template <class T>
void norm_forward(const Exec& exec, const Norm& layer, FlatParameter<T> parameters,
                  View<const T**> x, NormStatistics<T> statistics, View<T**> y);

/// y = norm(x) again, from the statistics.
template <class T>
void norm_apply(const Exec& exec, const Norm& layer, FlatParameter<T> parameters, View<const T**> x,
                NormStatistics<T> statistics, View<T**> y);

/// What norm_forward wrote, bit for bit, as far as it is needed: where the statistics are `lost`
/// both, else the output from them if it is needed.
template <class T>
void norm_again(const Exec& exec, const Norm& layer, FlatParameter<T> parameters, View<const T**> x,
                NormStatistics<T> statistics, bool lost, bool output_needed, View<T**> y);

/// Elements of compute_t<T> that LeafSums needs for the gradients of a layer.
std::int64_t leaf_sums_workspace(const Linear& layer, std::int64_t leaves);

/// Overwrites the norm's part of `gradients`, those of the trained segment; dx += or = dL/dx, where
/// `dy` is dL/dy.
template <class T>
void norm_backward(const Exec& exec, const Norm& layer, FlatParameter<T> parameters,
                   View<const T**> x, NormStatistics<T> statistics, View<const T**> dy,
                   View<compute_t<T>*> gradients, View<T**> dx, math::GradientUpdate update,
                   const LeafSums<T>& sums = {});

/// norm_backward that leaves gradients of parameters, and a copy of these, in `deferred`.
template <class T>
void norm_backward(const Exec& exec, const Norm& layer, FlatParameter<T> parameters,
                   View<const T**> x, NormStatistics<T> statistics, View<const T**> dy,
                   const DeferredNorm<T>& deferred, View<T**> dx, math::GradientUpdate update,
                   const LeafSums<T>& sums);

/// What it left: y = norm(x) again, from the statistics; and the norm's part of `gradients`.
template <class T>
void norm_apply(const Exec& exec, const Norm& layer, const DeferredNorm<T>& deferred,
                View<const T**> x, NormStatistics<T> statistics, View<T**> y);
template <class T>
void norm_gradients(const Exec& exec, const Norm& layer, const DeferredNorm<T>& deferred,
                    View<compute_t<T>*> gradients);

}  // namespace ostrakon::model
