// SPDX-License-Identifier: Apache-2.0
#pragma once

// A model whose middle unit is the residual block y = x + V relu(W x), divided along its hidden
// features into two slices: its functions for a row and a slice, its data, and its training by a
// plain loop over leaves, without plans.

#include <array>
#include <cstdint>
#include <vector>

namespace ostrakon::tests {

constexpr int rows = 4, width = 8, hidden = 12, slices = 2, leaves = 4, steps = 12;
constexpr int of_slice = hidden / slices;  // hidden features per slice
constexpr float learning_rate = 0.05f;
constexpr double loss_unit = 0x1p-30;  // losses are summed as integers of this unit
// --- The functions for a row and a slice. They are not inlined, as compilers may round sums of
// products differently depending on the surrounding code.

/// W is hidden x width, V is width x hidden; V is stored behind W.
struct Weights {
  const float* w;
  const float* v;
  explicit Weights(const float* flat) : w(flat), v(flat + hidden * width) {}
};
constexpr int block_elements = 2 * hidden * width;

/// Writes relu(W x) of the slice's features to `features`, and adds V times these to `sum`.
void slice_forward(Weights weights, int slice, const float* x, float* features, float* sum);
/// Adds to the gradients of the slice's weights, and to `sum` the gradient of x.
void slice_backward(Weights weights, int slice, const float* x, const float* features,
                    const float* gradient, float* gradients, float* sum);
/// Returns half the squared distance of u . y from the target; computes the gradient of y.
float head(const float* u, const float* y, float target, float* du, float* gradient);
/// Adds to the gradients of the weights that scale each feature of a token.
void scale_backward(const float* token, const float* gradient, float* gradients);
/// Makes a step of gradient descent.
void update(float* weights, const float* gradients, std::int64_t elements);

// --- data and initial weights

constexpr std::array<int, 3> unit_elements = {width, block_elements, width};
constexpr int batch_elements = rows * width + rows;

void read_leaf(std::int64_t leaf, float* batch);
float first_weight(int unit, std::int64_t element);

// --- the plain loop

using Model = std::array<std::vector<float>, 3>;

struct Plain {
  Model weights;
  std::vector<double> losses;  // one per step
};

Plain plain_loop();

}  // namespace ostrakon::tests
