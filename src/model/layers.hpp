// SPDX-License-Identifier: Apache-2.0
#pragma once

// Linear layers and norms as parts of a unit: they know where their parameters lie in the unit's
// flat parameter, and call the kernels with them.

#include <ostrakon/math/norm.hpp>
#include <ostrakon/model/unit.hpp>
#include <string>
#include <vector>

namespace ostrakon::model {

/// Offset of a bias that does not exist.
constexpr std::int64_t no_bias = -1;

/// y = x W^T + b. Offsets of weight (outputs, inputs) and bias (outputs) in the flat parameter.
struct Linear {
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  std::int64_t weight = 0;
  std::int64_t bias = no_bias;
};

/// Appends `name`.weight and, with `bias`, `name`.bias.
void add_linear(std::vector<Parameter>& parameters, const std::string& name, std::int64_t outputs,
                std::int64_t inputs, bool bias, double deviation);

/// The layer `name` among parameters that are laid out. Throws Error where there is none.
Linear find_linear(const std::vector<Parameter>& parameters, const std::string& name);

/// y = x W^T + b. Shapes: x (rows, inputs), y (rows, outputs).
template <class T>
void linear_forward(const Exec& exec, const Linear& layer, const T* parameters, ConstMatrix<T> x,
                    Matrix<T> y);

/// y += x W^T + b.
template <class T>
void linear_forward_add(const Exec& exec, const Linear& layer, const T* parameters,
                        ConstMatrix<T> x, Matrix<T> y);

/// dW = dy^T x and db = column sums of dy, overwritten in the flat `gradients`.
template <class T>
void linear_backward_parameters(const Exec& exec, const Linear& layer, ConstMatrix<T> x,
                                ConstMatrix<T> dy, compute_t<T>* gradients);

/// dx = dy W, overwritten.
template <class T>
void linear_backward_input(const Exec& exec, const Linear& layer, const T* parameters,
                           ConstMatrix<T> dy, Matrix<T> dx);

/// Layer norm or RMS norm. Offsets of weight (width) and bias (width) in the flat parameter.
struct Norm {
  math::NormKind kind = math::NormKind::rmsnorm;
  double epsilon = 1e-5;
  std::int64_t weight = 0;
  std::int64_t bias = no_bias;

  /// Rows of statistics that are kept: RMS norm has no mean.
  std::int64_t mean_elements(std::int64_t rows) const {
    return kind == math::NormKind::layernorm ? rows : 0;
  }
};

/// What forward keeps of each row: mean (rows; null for RMS norm) and 1 / deviation (rows).
template <class T>
struct NormStatistics {
  compute_t<T>* mean = nullptr;
  compute_t<T>* rstd = nullptr;

  NormStatistics from_row(std::int64_t row) const {
    return {mean == nullptr ? nullptr : mean + row, rstd + row};
  }
};

/// Appends `name`.weight and, for a layer norm with `bias`, `name`.bias.
void add_norm(std::vector<Parameter>& parameters, const std::string& name, math::NormKind kind,
              std::int64_t width, bool bias);

/// The layer `name` among parameters that are laid out. Throws Error where there is none.
Norm find_norm(const std::vector<Parameter>& parameters, const std::string& name,
               math::NormKind kind, double epsilon);

/// y = norm(x), writes the statistics. Shapes: x, y (rows, width).
template <class T>
void norm_forward(const Exec& exec, const Norm& layer, const T* parameters, ConstMatrix<T> x,
                  NormStatistics<T> statistics, Matrix<T> y);

/// y = norm(x) again, from the statistics.
template <class T>
void norm_apply(const Exec& exec, const Norm& layer, const T* parameters, ConstMatrix<T> x,
                NormStatistics<T> statistics, Matrix<T> y);

/// Overwrites the norm's part of the flat `gradients` and *adds* to dx; `dy` is dL/dy.
template <class T>
void norm_backward_add(const Exec& exec, const Norm& layer, const T* parameters, ConstMatrix<T> x,
                       NormStatistics<T> statistics, ConstMatrix<T> dy, compute_t<T>* gradients,
                       Matrix<T> dx);

}  // namespace ostrakon::model
