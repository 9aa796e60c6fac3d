// SPDX-License-Identifier: Apache-2.0
#include "residual_block.hpp"

#include <cmath>
#include <cstddef>

namespace ostrakon::tests {

[[gnu::noinline]] void slice_forward(Weights weights, int slice, const float* x, float* features,
                                     float* sum) {
  for (int i = 0; i < width; ++i) sum[i] = 0.0f;
  for (int k = 0; k < of_slice; ++k) {
    const int f = slice * of_slice + k;
    float value = 0.0f;
    for (int i = 0; i < width; ++i) value += weights.w[f * width + i] * x[i];
    features[k] = value > 0.0f ? value : 0.0f;
    for (int i = 0; i < width; ++i) sum[i] += weights.v[i * hidden + f] * features[k];
  }
}

[[gnu::noinline]] void slice_backward(Weights weights, int slice, const float* x,
                                      const float* features, const float* gradient,
                                      float* gradients, float* sum) {
  float *dw = gradients, *dv = gradients + hidden * width;
  for (int i = 0; i < width; ++i) sum[i] = 0.0f;
  for (int k = 0; k < of_slice; ++k) {
    const int f = slice * of_slice + k;
    float back = 0.0f;
    for (int i = 0; i < width; ++i) {
      back += weights.v[i * hidden + f] * gradient[i];
      dv[i * hidden + f] += gradient[i] * features[k];
    }
    if (!(features[k] > 0.0f)) continue;
    for (int i = 0; i < width; ++i) {
      dw[f * width + i] += back * x[i];
      sum[i] += back * weights.w[f * width + i];
    }
  }
}

[[gnu::noinline]] float head(const float* u, const float* y, float target, float* du,
                             float* gradient) {
  float distance = -target;
  for (int i = 0; i < width; ++i) distance += u[i] * y[i];
  for (int i = 0; i < width; ++i) {
    du[i] += distance * y[i];
    gradient[i] = distance * u[i];
  }
  return 0.5f * distance * distance;
}

[[gnu::noinline]] void scale_backward(const float* token, const float* gradient, float* gradients) {
  for (int i = 0; i < width; ++i) gradients[i] += gradient[i] * token[i];
}

[[gnu::noinline]] void update(float* weights, const float* gradients, std::int64_t elements) {
  for (std::int64_t i = 0; i < elements; ++i) weights[i] -= learning_rate * gradients[i];
}

namespace {

using Row = std::array<float, width>;

float noise(std::int64_t seed) {
  auto x = static_cast<std::uint64_t>(seed + 1) * 0x9e3779b97f4a7c15ull;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  return static_cast<float>(x >> 40) * 0x1p-24f - 0.5f;
}

}  // namespace

void read_leaf(std::int64_t leaf, float* batch) {
  for (int i = 0; i < batch_elements; ++i) batch[i] = noise(1000 * leaf + i);
}
float first_weight(int unit, std::int64_t element) {
  return element < unit_elements[static_cast<std::size_t>(unit)] ? noise(77 * unit + 5 * element)
                                                                 : 0.0f;
}

namespace {

void add(Model& sum, const Model& other) {
  for (std::size_t u = 0; u < 3; ++u)
    for (std::size_t i = 0; i < sum[u].size(); ++i) sum[u][i] += other[u][i];
}

Model zeros() {
  Model model;
  for (std::size_t u = 0; u < 3; ++u)
    model[u].assign(static_cast<std::size_t>(unit_elements[u]), 0.0f);
  return model;
}

/// Returns the gradients of one leaf, and adds its losses.
Model leaf_gradients(const Model& weights, std::int64_t leaf, std::int64_t& loss) {
  Model gradients = zeros();
  const Weights block(weights[1].data());
  std::vector<float> batch(batch_elements);
  read_leaf(leaf, batch.data());
  std::int64_t sum_of_losses = 0;
  for (int r = 0; r < rows; ++r) {
    const float* token = batch.data() + r * width;
    Row x, y, gradient;
    std::array<Row, slices> part;
    std::array<std::array<float, of_slice>, slices> features;
    for (std::size_t i = 0; i < width; ++i) x[i] = token[i] * weights[0][i];
    for (std::size_t s = 0; s < slices; ++s)
      slice_forward(block, static_cast<int>(s), x.data(), features[s].data(), part[s].data());
    for (std::size_t i = 0; i < width; ++i) y[i] = x[i] + (part[0][i] + part[1][i]);
    const float of_row =
        head(weights[2].data(), y.data(), batch[static_cast<std::size_t>(rows * width + r)],
             gradients[2].data(), gradient.data());
    sum_of_losses += std::llround(static_cast<double>(of_row) / loss_unit);
    for (std::size_t s = 0; s < slices; ++s)
      slice_backward(block, static_cast<int>(s), x.data(), features[s].data(), gradient.data(),
                     gradients[1].data(), part[s].data());
    for (std::size_t i = 0; i < width; ++i) gradient[i] += part[0][i] + part[1][i];
    scale_backward(token, gradient.data(), gradients[0].data());
  }
  loss += sum_of_losses;
  return gradients;
}

}  // namespace

Plain plain_loop() {
  Plain plain;
  plain.weights = zeros();
  for (std::size_t u = 0; u < 3; ++u)
    for (std::size_t i = 0; i < plain.weights[u].size(); ++i)
      plain.weights[u][i] = first_weight(static_cast<int>(u), static_cast<std::int64_t>(i));
  for (int step = 0; step < steps; ++step) {
    std::int64_t loss = 0;
    std::array<Model, leaves> of_leaf;
    for (std::size_t leaf = 0; leaf < leaves; ++leaf)
      of_leaf[leaf] = leaf_gradients(plain.weights, static_cast<std::int64_t>(leaf), loss);
    // The gradients are added by the tree of four leaves.
    add(of_leaf[0], of_leaf[1]);
    add(of_leaf[2], of_leaf[3]);
    add(of_leaf[0], of_leaf[2]);
    for (std::size_t u = 0; u < 3; ++u)
      update(plain.weights[u].data(), of_leaf[0][u].data(), unit_elements[u]);
    plain.losses.push_back(static_cast<double>(loss) * loss_unit);
  }
  return plain;
}

}  // namespace ostrakon::tests
