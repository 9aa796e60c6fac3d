// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <ostrakon/math/activation.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/model/block_unit.hpp>
#include <ostrakon/model/layout.hpp>
#include <string>

namespace ostrakon::model {

// ---- forward ------------------------------------------------------------------------------------

template <class T>
void BlockUnit<T>::forward(const Exec& exec, const UnitBuffers<T>& buffers, RowRange rows) const {
  leaf_.require_row_range(rows.begin, rows.end);
  attention_forward(exec, buffers, rows);
  mlp_forward(exec, buffers, rows);
}

/// middle = x + attention(norm(x) Wqkv^T) Wout^T
template <class T>
void BlockUnit<T>::attention_forward(const Exec& exec, const UnitBuffers<T>& buffers,
                                     RowRange rows) const {
  const auto [begin, end] = rows;
  const T* parameters = buffers.parameters;
  const Saved saved = saved_in(buffers.saved);
  const auto x = Matrix<const T>(buffers.input, rows_, width_).row_range(begin, end);
  const auto qkv = saved.qkv.row_range(begin, end);
  const auto middle = saved.middle.row_range(begin, end);
  const Matrix<T> normed(buffers.workspace + forward_.normed, end - begin, width_);

  norm_forward<T>(exec, attention_norm_, parameters, x, saved.attention_norm.from_row(begin),
                  normed);
  linear_forward<T>(exec, qkv_, parameters, normed, qkv);
  rotate(exec, math::Rotation::forward, qkv, begin);

  // Rows of one sequence are queries of it; all rows are all queries of every sequence. Keys and
  // values of the rows before `begin` are still in saved.qkv.
  const std::int64_t query_end = end - begin == rows_ ? leaf_.tokens : end;
  math::attention_forward<T>(exec, attention_, saved.qkv, begin, query_end, saved.attention,
                             saved.log_sum_exp, buffers.workspace + forward_.attention_scores);

  math::copy<T>(exec, x.data, middle.data, (end - begin) * width_);
  linear_forward_add<T>(exec, out_, parameters, saved.attention.row_range(begin, end), middle);
}

/// y = middle + activation(norm(middle) Wup^T) Wdown^T
template <class T>
void BlockUnit<T>::mlp_forward(const Exec& exec, const UnitBuffers<T>& buffers,
                               RowRange rows) const {
  const auto [begin, end] = rows;
  const T* parameters = buffers.parameters;
  const Saved saved = saved_in(buffers.saved);
  const auto middle = saved.middle.row_range(begin, end);
  const auto up = saved.up.row_range(begin, end);
  const auto y = Matrix<T>(buffers.output, rows_, width_).row_range(begin, end);
  const Matrix<T> normed(buffers.workspace + forward_.normed, end - begin, width_);
  const Matrix<T> activated(buffers.workspace + forward_.activated, end - begin, ffn_width_);

  norm_forward<T>(exec, mlp_norm_, parameters, middle, saved.mlp_norm.from_row(begin), normed);
  linear_forward<T>(exec, up_, parameters, normed, up);
  activate(exec, up, activated);

  math::copy<T>(exec, middle.data, y.data, (end - begin) * width_);
  linear_forward_add<T>(exec, down_, parameters, activated, y);
}

/// Queries and keys, which are next to each other in a row, turn; values do not.
template <class T>
void BlockUnit<T>::rotate(const Exec& exec, math::Rotation rotation, Matrix<T> qkv,
                          std::int64_t first_position) const {
  if (positions_ != Positions::rotary) return;
  const std::int64_t head_width = attention_.head_width;
  const std::int64_t rotated_width = (attention_.heads + attention_.kv_heads) * head_width;
  math::rotate<T>(exec, rotation, qkv.column_range(0, rotated_width), head_width, rotary_base_,
                  leaf_.tokens, first_position);
}

template <class T>
void BlockUnit<T>::activate(const Exec& exec, Matrix<const T> up, Matrix<T> activated) const {
  if (activation_ == Activation::gelu)
    math::gelu_forward<T>(exec, up, activated);
  else
    math::swiglu_forward<T>(exec, up, activated);
}

// ---- backward -----------------------------------------------------------------------------------

/// `gradient` is dL/dy, then dL/dmiddle, then dL/dx: each branch adds its part to what the residual
/// connection hands on unchanged.
template <class T>
void BlockUnit<T>::backward(const Exec& exec, const UnitBuffers<T>& buffers, T /*loss_scale*/,
                            bool /*gradients_opened*/) const {
  mlp_backward(exec, buffers);
  attention_backward(exec, buffers);
}

template <class T>
void BlockUnit<T>::mlp_backward(const Exec& exec, const UnitBuffers<T>& buffers) const {
  const T* parameters = buffers.parameters;
  T* gradients = buffers.parameter_gradients;
  const Saved saved = saved_in(buffers.saved);
  const Matrix<T> gradient(buffers.gradient, rows_, width_);
  const Matrix<T> activated(buffers.workspace + backward_.activated, rows_, ffn_width_);
  const Matrix<T> normed(buffers.workspace + backward_.mlp_normed, rows_, width_);

  activate(exec, saved.up, activated);
  linear_backward_parameters<T>(exec, down_, activated, gradient, gradients);
  const Matrix<T> dactivated = activated;
  linear_backward_input<T>(exec, down_, parameters, gradient, dactivated);

  // The gradient of gate and up, the widest array of a block, replaces gate and up themselves.
  const bool gelu = activation_ == Activation::gelu;
  const Matrix<T> dup = gelu ? dactivated : saved.up;
  if (gelu)
    math::gelu_backward<T>(exec, saved.up, dactivated, dup);
  else
    math::swiglu_backward<T>(exec, saved.up, dactivated, dup);

  norm_apply<T>(exec, mlp_norm_, parameters, saved.middle, saved.mlp_norm, normed);
  linear_backward_parameters<T>(exec, up_, normed, dup, gradients);
  const Matrix<T> dnormed = normed;
  linear_backward_input<T>(exec, up_, parameters, dup, dnormed);
  norm_backward_add<T>(exec, mlp_norm_, parameters, saved.middle, saved.mlp_norm, dnormed,
                       gradients, gradient);
}

template <class T>
void BlockUnit<T>::attention_backward(const Exec& exec, const UnitBuffers<T>& buffers) const {
  const T* parameters = buffers.parameters;
  T* gradients = buffers.parameter_gradients;
  const Saved saved = saved_in(buffers.saved);
  const Matrix<const T> x(buffers.input, rows_, width_);
  const Matrix<T> gradient(buffers.gradient, rows_, width_);
  const Matrix<T> dattention(buffers.workspace + backward_.dattention, rows_, width_);
  const Matrix<T> dqkv(buffers.workspace + backward_.dqkv, rows_, qkv_width_);

  linear_backward_parameters<T>(exec, out_, saved.attention, gradient, gradients);
  linear_backward_input<T>(exec, out_, parameters, gradient, dattention);
  math::attention_backward<T>(exec, attention_, saved.qkv, saved.attention, saved.log_sum_exp,
                              dattention, dqkv, buffers.workspace + backward_.attention_scores);
  rotate(exec, math::Rotation::inverse, dqkv, 0);

  const Matrix<T> normed = dattention;
  norm_apply<T>(exec, attention_norm_, parameters, x, saved.attention_norm, normed);
  linear_backward_parameters<T>(exec, qkv_, normed, dqkv, gradients);
  const Matrix<T> dnormed = normed;
  linear_backward_input<T>(exec, qkv_, parameters, dqkv, dnormed);
  norm_backward_add<T>(exec, attention_norm_, parameters, x, saved.attention_norm, dnormed,
                       gradients, gradient);
}

// ---- parameters, buffers, sizes -----------------------------------------------------------------

template <class T>
BlockUnit<T>::BlockUnit(const DecoderSettings& settings, LeafShape leaf, std::int64_t index)
    : leaf_(leaf),
      attention_{leaf.batch, leaf.tokens, settings.heads, settings.kv_heads, settings.head_width()},
      rows_(leaf.rows()),
      width_(settings.width),
      qkv_width_((settings.heads + 2 * settings.kv_heads) * settings.head_width()),
      ffn_width_(settings.ffn_width),
      up_width_(settings.activation == Activation::gelu ? ffn_width_ : 2 * ffn_width_),
      activation_(settings.activation),
      positions_(settings.positions),
      rotary_base_(settings.rotary_base) {
  description_.name = "block." + std::to_string(index);
  add_parameters(settings);
  lay_out_buffers();
  describe();
}

template <class T>
void BlockUnit<T>::add_parameters(const DecoderSettings& settings) {
  const std::string up = activation_ == Activation::gelu ? "mlp.up" : "mlp.gate_up";
  const double deviation = settings.initializer_deviation;
  // Each block adds two projections to the residual stream; its variance must not grow with depth.
  const double residual_deviation = deviation / std::sqrt(2.0 * settings.layers);

  add_norm(parameters_, "attention.norm", settings.norm, width_, settings.bias);
  add_linear(parameters_, "attention.qkv", qkv_width_, width_, settings.bias, deviation);
  add_linear(parameters_, "attention.out", width_, width_, settings.bias, residual_deviation);
  add_norm(parameters_, "mlp.norm", settings.norm, width_, settings.bias);
  add_linear(parameters_, up, up_width_, width_, settings.bias, deviation);
  add_linear(parameters_, "mlp.down", width_, ffn_width_, settings.bias, residual_deviation);
  description_.parameter_elements = lay_out_parameters(parameters_, description_.name);

  attention_norm_ = find_norm(parameters_, "attention.norm", settings.norm, settings.norm_epsilon);
  qkv_ = find_linear(parameters_, "attention.qkv");
  out_ = find_linear(parameters_, "attention.out");
  mlp_norm_ = find_norm(parameters_, "mlp.norm", settings.norm, settings.norm_epsilon);
  up_ = find_linear(parameters_, up);
  down_ = find_linear(parameters_, "mlp.down");
}

template <class T>
void BlockUnit<T>::lay_out_buffers() {
  Layout saved;
  saved_.attention_mean = saved.place(attention_norm_.mean_elements(rows_));
  saved_.attention_rstd = saved.place(rows_);
  saved_.qkv = saved.place(rows_ * qkv_width_);
  saved_.attention = saved.place(rows_ * width_);
  saved_.log_sum_exp = saved.place(rows_ * attention_.heads);
  saved_.middle = saved.place(rows_ * width_);
  saved_.mlp_mean = saved.place(mlp_norm_.mean_elements(rows_));
  saved_.mlp_rstd = saved.place(rows_);
  saved_.up = saved.place(rows_ * up_width_);
  saved_.elements = saved.elements();

  Layout forward;
  forward_.normed = forward.place(rows_ * width_);
  forward.start_over();
  forward_.attention_scores = forward.place(math::attention_forward_workspace(attention_));
  forward.start_over();
  forward_.activated = forward.place(rows_ * ffn_width_);
  forward_.elements = forward.elements();

  Layout backward;
  backward_.activated = backward.place(rows_ * ffn_width_);
  backward_.mlp_normed = backward.place(rows_ * width_);
  backward.start_over();
  backward_.dattention = backward.place(rows_ * width_);
  backward_.dqkv = backward.place(rows_ * qkv_width_);
  backward_.attention_scores = backward.place(math::attention_backward_workspace(attention_));
  backward_.elements = backward.elements();
}

template <class T>
typename BlockUnit<T>::Saved BlockUnit<T>::saved_in(T* saved) const {
  const auto statistics = [&](const Norm& norm, std::int64_t mean, std::int64_t rstd) {
    return NormStatistics<T>{norm.mean_elements(rows_) == 0 ? nullptr : saved + mean, saved + rstd};
  };
  return {statistics(attention_norm_, saved_.attention_mean, saved_.attention_rstd),
          Matrix<T>(saved + saved_.qkv, rows_, qkv_width_),
          Matrix<T>(saved + saved_.attention, rows_, width_),
          saved + saved_.log_sum_exp,
          Matrix<T>(saved + saved_.middle, rows_, width_),
          statistics(mlp_norm_, saved_.mlp_mean, saved_.mlp_rstd),
          Matrix<T>(saved + saved_.up, rows_, up_width_)};
}

template <class T>
void BlockUnit<T>::describe() {
  constexpr std::int64_t element = sizeof(T);
  description_.output_bytes = rows_ * width_ * element;
  description_.saved_bytes = saved_.elements * element;
  description_.forward_workspace_bytes = forward_.elements * element;
  description_.backward_workspace_bytes = backward_.elements * element;

  // A product of (m, k) and (k, n) takes 2 m n k. Queries look at half of the keys on average, so
  // scores, and probabilities times values, take tokens^2 head_width per head and sequence each.
  const auto rows = static_cast<double>(rows_);
  const auto weights = static_cast<double>(width_ * (qkv_width_ + width_ + up_width_ + ffn_width_));
  const double scores = rows * static_cast<double>(leaf_.tokens * width_);
  description_.forward_flops = 2.0 * rows * weights + 2.0 * scores;
  // Two products for each of forward's, by either factor; and the scores once more.
  description_.backward_flops = 2.0 * description_.forward_flops + scores;
}

template class BlockUnit<float>;
template class BlockUnit<double>;

}  // namespace ostrakon::model
