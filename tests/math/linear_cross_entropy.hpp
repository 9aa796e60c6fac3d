// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <ostrakon/base/text.hpp>
#include <ostrakon/math/cross_entropy/linear_cross_entropy.hpp>
#include <string>
#include <vector>

#include "math/compare.hpp"
#include "support/device_array.hpp"

// Heads of small sizes, and their losses and gradients in plain loops.

namespace ostrakon::test::heads {

struct Shape {
  std::int64_t rows, width, vocabulary;
};

inline std::string name_of(const Shape& s) {
  return text("rows ", s.rows, ", width ", s.width, ", vocabulary ", s.vocabulary);
}

/// One row, one word, odd sizes, more rows than in a chunk with a small and a large vocabulary.
inline std::vector<Shape> head_shapes() {
  return {{1, 1, 1},     {1, 4, 7},    {5, 3, 1},      {37, 13, 19},
          {64, 16, 257}, {2500, 3, 5}, {120, 2, 42000}};
}

/// `some`: whether every third row does not count, from the first one on.
inline std::vector<std::int32_t> targets_of(const Shape& shape, bool some = false) {
  std::vector<std::int32_t> targets(shape.rows);
  for (std::int64_t r = 0; r < shape.rows; ++r)
    targets[r] =
        some && r % 3 == 0
            ? -1
            : static_cast<std::int32_t>((r * 7919 + shape.vocabulary - 1) % shape.vocabulary);
  return targets;
}

/// What becomes of logits, with and without a bias, whether only some rows count, and what backward
/// minimizes.
struct Form {
  math::LogitForm logits;
  bool has_bias = false;
  bool some_count = false;
  math::LossForm loss = {};
};
inline std::vector<Form> forms() {
  return {{},
          {{}, true},
          {{0.25, 0.0}},
          {{1.0, 1.5}},
          {{3.0, 2.0}, true},
          {{}, false, true},
          {{3.0, 2.0}, true, true},
          {{}, false, false, {0.1, 0.0}},
          {{}, false, false, {0.0, 0.01}},
          {{}, true, true, {0.25, 0.02}},
          {{3.0, 2.0}, true, true, {0.3, 0.05}}};
}
/// Heads of many words take long: two forms, without anything and with all.
inline std::vector<Form> forms_of(const Shape& shape) {
  const std::vector<Form> all = forms();
  return shape.vocabulary < 10000 ? all : std::vector<Form>{all.front(), all.back()};
}
inline std::string name_of(const Form& form) {
  return text("times ", form.logits.scale, ", cap ", form.logits.soft_cap,
              form.has_bias ? ", bias" : "", form.some_count ? ", some rows" : "", ", smoothing ",
              form.loss.smoothing, ", z-loss ", form.loss.z_loss);
}

/// losses: what is minimized; cross_entropies: what forward has.
struct HeadReference {
  std::vector<double> losses, cross_entropies, margins, dx, dweight, dbias;

  /// `bias` may be empty.
  HeadReference(const Shape& s, const std::vector<double>& x, const std::vector<double>& weight,
                const std::vector<std::int32_t>& targets, double scale,
                const math::LogitForm& form = {}, const std::vector<double>& bias = {},
                const math::LossForm& loss = {})
      : dx(s.rows * s.width, 0.0), dweight(s.vocabulary * s.width, 0.0), dbias(s.vocabulary, 0.0) {
    const double cap = form.soft_cap;
    std::vector<double> logits(s.vocabulary);
    for (std::int64_t r = 0; r < s.rows; ++r) {
      if (targets[r] < 0) {
        losses.push_back(0.0);
        cross_entropies.push_back(0.0);
        margins.push_back(0.0);
        continue;
      }
      double total = 0, sum = 0;
      for (std::int64_t v = 0; v < s.vocabulary; ++v) {
        logits[v] = bias.empty() ? 0.0 : bias[v];
        for (std::int64_t j = 0; j < s.width; ++j)
          logits[v] += x[r * s.width + j] * weight[v * s.width + j];
        logits[v] *= form.scale;
        if (cap > 0) logits[v] = cap * std::tanh(logits[v] / cap);
        total += std::exp(logits[v]);
        sum += logits[v];
      }
      const double log_sum = std::log(total), words = static_cast<double>(s.vocabulary),
                   cross_entropy = log_sum - logits[targets[r]];
      cross_entropies.push_back(cross_entropy);
      losses.push_back((1 - loss.smoothing) * cross_entropy +
                       loss.smoothing * (log_sum - sum / words) + loss.z_loss * log_sum * log_sum);
      margins.push_back(logits[targets[r]] - *std::max_element(logits.begin(), logits.end()));
      for (std::int64_t v = 0; v < s.vocabulary; ++v) {
        double dlogit =
            scale * ((1 + 2 * loss.z_loss * log_sum) * std::exp(logits[v]) / total -
                     (v == targets[r] ? 1 - loss.smoothing : 0) - loss.smoothing / words);
        if (cap > 0) dlogit *= 1 - logits[v] * logits[v] / (cap * cap);
        dlogit *= form.scale;
        dbias[v] += dlogit;
        for (std::int64_t j = 0; j < s.width; ++j) {
          dx[r * s.width + j] += dlogit * weight[v * s.width + j];
          dweight[v * s.width + j] += dlogit * x[r * s.width + j];
        }
      }
    }
  }
};

/// The arrays of one call; outputs begin as NaN.
template <class T>
struct Head {
  Shape shape;
  DeviceArray<T> x, weight;
  DeviceArray<std::int32_t> targets;
  DeviceArray<T> losses, margins, dx, dweight, workspace;
  Form form;
  DeviceArray<T> bias, dbias;

  Head(const Shape& s, const std::vector<T>& x_, const std::vector<T>& weight_, const Form& form_)
      : shape(s),
        x(x_),
        weight(weight_),
        targets(targets_of(s, form_.some_count)),
        losses(s.rows),
        margins(s.rows),
        dx(s.rows * s.width),
        dweight(s.vocabulary * s.width),
        workspace(math::linear_cross_entropy_workspace<T>(s.rows, s.vocabulary, math::kernel_form,
                                                          form_.has_bias)),
        form(form_),
        bias(random_values<T>(s.vocabulary, 3)),
        dbias(s.vocabulary) {}

  math::Logits<T> logits() const {
    return {form.logits, form.has_bias ? View<const T*>(bias) : View<const T*>()};
  }
  math::LossForm loss() const { return {form.loss.smoothing, form.loss.z_loss, shape.vocabulary}; }
  View<T*> dbias_or_none() const { return form.has_bias ? dbias.view() : View<T*>(); }
  HeadReference reference(double scale) const {
    return {shape,
            converted<double>(x.host()),
            converted<double>(weight.host()),
            targets_of(shape, form.some_count),
            scale,
            form.logits,
            form.has_bias ? converted<double>(bias.host()) : std::vector<double>(),
            form.loss};
  }

  View<T**> by_row(const DeviceArray<T>& array) const {
    return {array.data(), shape.rows, shape.width};
  }
  View<T**> by_word(const DeviceArray<T>& array) const {
    return {array.data(), shape.vocabulary, shape.width};
  }
  void forward() const {
    math::linear_cross_entropy_forward<T>(Exec(), by_row(x), by_word(weight), targets, losses,
                                          workspace, logits(), margins);
    Exec().fence();
  }
  void backward(T scale) const {
    math::linear_cross_entropy_backward<T>(Exec(), by_row(x), by_word(weight),
                                           {targets, {}, loss()}, scale, losses, by_row(dx),
                                           by_word(dweight), workspace, logits(), dbias_or_none());
    Exec().fence();
  }
};

template <class T>
Head<T> random_head(const Shape& s, T size = 2, const Form& form = {}) {
  std::vector<T> x = random_values<T>(s.rows * s.width, 1);
  for (T& value : x) value *= size;
  return Head<T>(s, x, random_values<T>(s.vocabulary * s.width, 2), form);
}

template <class T>
constexpr double tolerance = std::is_same<T, float>::value ? 1e-5 : 1e-12;

}  // namespace ostrakon::test::heads
