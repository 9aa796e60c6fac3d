// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/huge_pages.hpp>
#include <ostrakon/math/activation.hpp>
#include <ostrakon/math/attention.hpp>
#include <ostrakon/math/digest.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/embedding.hpp>
#include <ostrakon/math/exact_sum.hpp>
#include <ostrakon/math/gemm.hpp>
#include <ostrakon/math/linear_cross_entropy.hpp>
#include <ostrakon/math/norm.hpp>
#include <ostrakon/math/random.hpp>
#include <ostrakon/math/rotary.hpp>
#include <ostrakon/math/sequence_parts.hpp>
#include <ostrakon/math/subnormals.hpp>
#include <ostrakon/optim/adamw.hpp>
#include <ostrakon/train/threads.hpp>

#include "bench.hpp"

namespace ostrakon::bench {
namespace {

using math::Transpose;

/// Values of a normal distribution, or zeros, in device memory, with pages as an arena has.
class Array {
 public:
  explicit Array(std::int64_t count, double deviation = 1.0)
      : view_(Kokkos::view_alloc("bench", Kokkos::WithoutInitializing),
              static_cast<std::size_t>(count)) {
    if (memory_is_host_accessible)
      ask_for_huge_pages(view_.data(), count * static_cast<std::int64_t>(sizeof(float)));
    Kokkos::deep_copy(view_, 0.0f);
    if (deviation == 0.0) return;
    static std::uint64_t key = 0;
    math::fill_normal(Exec(), device_view(view_), ++key, 0, deviation);
  }
  void copy(const Exec& exec, const Array& from) const {
    Kokkos::deep_copy(exec, view_, from.view_);
  }
  View<float*> view() const { return device_view(view_); }
  operator View<float*>() const { return view(); }
  operator View<const float*>() const { return view(); }

 private:
  Kokkos::View<float*, Memory> view_;
};

class MatrixArray : public Array {
 public:
  MatrixArray(std::int64_t rows, std::int64_t columns, double deviation = 1.0)
      : Array(rows * columns, deviation), matrix_(view().matrix(rows, columns)) {}
  operator View<float**>() const { return matrix_; }
  operator View<const float**>() const { return matrix_; }

 private:
  View<float**> matrix_;
};

/// Token ids without order, in [0, vocabulary).
Kokkos::View<std::int32_t*, Memory> random_ids(std::int64_t count, std::int64_t vocabulary) {
  const Kokkos::View<std::int32_t*, Memory> ids("ids", static_cast<std::size_t>(count));
  const auto host = Kokkos::create_mirror_view(ids);
  for (std::int64_t i = 0; i < count; ++i)
    host(i) = static_cast<std::int32_t>(math::philox(1, static_cast<std::uint64_t>(i), 0).word[0] %
                                        static_cast<std::uint64_t>(vocabulary));
  Kokkos::deep_copy(ids, host);
  return ids;
}

/// The measurements, a method for each group of kernels. Sizes are those of GPT-2 small and, where
/// small matrices behave otherwise, of the quickstart deck. Kernels that memory bounds get arrays
/// that no cache holds, so that their ratio to a copy means the same on every machine.
class Kernels {
 public:
  Kernels(comm::Communicator& world, const Options& options)
      : world_(world),
        budget_(options.seconds > 0.0 ? options.seconds : 0.3),
        table_("kernels",
               {{"kernel", "kernel", Format::text, 24},
                {"shape", "shape", Format::text, 26},
                {"time", "seconds", Format::seconds, 10},
                {"fastest", "fastest_seconds", Format::seconds, 10},
                {"GFLOP/s", "gigaflops", Format::number, 8},
                {"GB/s", "gigabytes_per_second", Format::number, 8},
                {"of peak", "ratio_to_peak", Format::ratio, 8}},
               options.json, world.rank() == 0) {}

  void all() {
    peaks();
    linear();
    attention();
    cross_entropy();
    for (const auto& norm : math::norm_names) norms(norm.value, norm.name);
    activations();
    embeddings();
    elementwise();
    optimizer();
  }

 private:
  static constexpr std::int64_t rows = 32768, width = 768, vocabulary = 50257;
  static constexpr std::int64_t ffn_rows = 8192, ffn_width = 3072;
  static constexpr double float_bytes = sizeof(float);

  Seconds seconds_of(const std::function<void()>& work) {
    return measure(world_, budget_, {[&] {
                     work();
                     exec_.fence();
                   }})[0];
  }

  void compute_row(const std::string& name, const std::string& shape, double flops,
                   const std::function<void()>& work) {
    const Seconds seconds = seconds_of(work);
    const double rate = flops / seconds.median;
    table_.row(
        {name, shape, seconds.median, seconds.fastest, rate * 1e-9, nullptr, rate / peak_flops_});
  }

  /// `elements`: floats that the kernel has to read and to write.
  void memory_row(const std::string& name, const std::string& shape, double elements,
                  const std::function<void()>& work) {
    const Seconds seconds = seconds_of(work);
    const double rate = float_bytes * elements / seconds.median;
    table_.row({name, shape, seconds.median, seconds.fastest, nullptr, rate * 1e-9,
                rate / peak_bandwidth_});
  }

  /// A peak is what was reached once: other work on the machine must not make it small.
  void peaks() {
    Seconds best;
    std::int64_t best_side = 0;
    for (const std::int64_t side : {512, 1024, 2048}) {
      const MatrixArray a(side, side), b(side, side), c(side, side, 0.0);
      const Seconds seconds = seconds_of([&] {
        math::gemm<float, float>(exec_, Transpose::no, Transpose::yes, 1.0f, a, b, 0.0f, c);
      });
      const double rate = cube_flops(side) / seconds.fastest;
      if (rate <= peak_flops_) continue;
      peak_flops_ = rate;
      best = seconds;
      best_side = side;
    }
    table_.row({text("peak: gemm, ", math::gemm_kernel()),
                text(best_side, " x ", best_side, " x ", best_side), best.median, best.fastest,
                peak_flops_ * 1e-9, nullptr, 1.0});

    constexpr std::int64_t count = std::int64_t{1} << 26;
    const Array from(count, 0.0), to(count, 0.0);
    const Seconds seconds = seconds_of([&] { to.copy(exec_, from); });
    peak_bandwidth_ = 2.0 * float_bytes * count / seconds.fastest;
    table_.row({"peak: copy", text(count), seconds.median, seconds.fastest, nullptr,
                peak_bandwidth_ * 1e-9, 1.0});
    // A copy may write past the caches; what a kernel writes is read into them first.
    constexpr std::int64_t copy_rows = std::int64_t{1} << 16;
    const auto rows_of = [&](const auto& array) {
      return array.view().matrix(copy_rows, count / copy_rows);
    };
    memory_row("copy, by a kernel", text(count), 2.0 * static_cast<double>(count), [&] {
      math::copy_rows<float, float>(exec_, View<const float**>(rows_of(from)), rows_of(to));
    });
  }

  static double cube_flops(std::int64_t side) {
    return 2.0 * static_cast<double>(side * side * side);
  }

  /// The three products of a linear layer x (n, inputs) -> y (n, outputs).
  void linear_products(std::int64_t n, std::int64_t inputs, std::int64_t outputs) {
    const MatrixArray x(n, inputs), weight(outputs, inputs), y(n, outputs, 0.0);
    const double flops = 2.0 * static_cast<double>(n * inputs * outputs);
    const std::string shape = text(n, " x ", inputs, " -> ", outputs);
    const auto multiply = [&](const char* name, Transpose turn_a, Transpose turn_b,
                              const View<float**>& a, const View<float**>& b,
                              const View<float**>& c) {
      compute_row(name, shape, flops,
                  [&] { math::gemm<float, float>(exec_, turn_a, turn_b, 1.0f, a, b, 0.0f, c); });
    };
    multiply("linear", Transpose::no, Transpose::yes, x, weight, y);
    multiply("linear, by input", Transpose::no, Transpose::no, y, weight, x);
    multiply("linear, by weight", Transpose::yes, Transpose::no, y, x, weight);
  }

  void linear() {
    linear_products(1024, 768, 2304);
    linear_products(1024, 768, 3072);
    linear_products(1024, 3072, 768);
    linear_products(1024, 192, 576);
    linear_products(1024, 192, 1024);
    linear_products(1024, 512, 192);
    linear_products(64, 64, 256);
  }

  void attention_of(const math::AttentionShape& shape) {
    const std::int64_t n = shape.batch * shape.tokens;
    const std::int64_t out_columns = shape.heads * shape.head_width;
    const std::int64_t qkv_columns = out_columns + 2 * shape.kv_heads * shape.head_width;
    const MatrixArray qkv(n, qkv_columns), dqkv(n, qkv_columns), out(n, out_columns),
        dout(n, out_columns);
    const Array log_sum_exp(n * shape.heads);
    const Array workspace(std::max(math::attention_forward_workspace<float>(shape),
                                   math::attention_backward_workspace<float>(shape)));
    // One product over queries and the keys that they see, half of all: forward has two of them,
    // backward five.
    const double product = static_cast<double>(n * shape.tokens * out_columns);
    const std::string name = text(shape.batch, " x ", shape.tokens, ", ", shape.heads, "/",
                                  shape.kv_heads, " heads of ", shape.head_width);
    compute_row("attention", name, 2.0 * product, [&] {
      math::attention_forward<float>(exec_, shape, qkv, 0, shape.tokens, out, log_sum_exp,
                                     workspace);
    });
    compute_row("attention, backward", name, 5.0 * product, [&] {
      math::attention_backward<float>(exec_, shape, qkv, out, log_sum_exp, dout, dqkv, workspace);
    });
  }

  void attention() {
    attention_of({1, 1024, 12, 12, 64});
    attention_of({1, 1024, 16, 4, 128});
    attention_of({4, 256, 6, 6, 32});
  }

  void cross_entropy_of(std::int64_t n, std::int64_t columns, std::int64_t classes) {
    const MatrixArray x(n, columns), weight(classes, columns, 0.02), dx(n, columns, 0.0),
        dweight(classes, columns, 0.0);
    const Array losses(n, 0.0),
        workspace(math::linear_cross_entropy_workspace<float>(n, classes), 0.0);
    const auto targets = random_ids(n, classes);
    const double product = 2.0 * static_cast<double>(n * columns * classes);
    const std::string shape = text(n, " x ", columns, " -> ", classes);
    compute_row("cross-entropy", shape, product, [&] {
      math::linear_cross_entropy_forward<float>(exec_, x, weight, device_view(targets), losses,
                                                workspace);
    });
    compute_row("cross-entropy, backward", shape, 3.0 * product, [&] {
      math::linear_cross_entropy_backward<float>(exec_, x, weight, device_view(targets), 1e-3f,
                                                 losses, dx, dweight, workspace);
    });
  }

  void cross_entropy() {
    cross_entropy_of(1024, width, vocabulary);
    cross_entropy_of(1024, 192, 257);
  }

  void norms(math::NormKind kind, const std::string& name) {
    const MatrixArray x(rows, width), y(rows, width), dx(rows, width);
    const Array weight(width), bias(width), dweight(width), dbias(width), mean(rows), rstd(rows);
    const bool layer = kind == math::NormKind::layernorm;
    const View<const float*> bias_data = layer ? bias.view() : View<float*>();
    const View<float*> dbias_data = layer ? dbias.view() : View<float*>();
    const double size = static_cast<double>(rows * width);
    const std::string shape = text(rows, " x ", width);
    memory_row(name, shape, 2.0 * size, [&] {
      math::norm_forward<float>(exec_, kind, 1e-5, x, weight, bias_data, y, mean, rstd);
    });
    memory_row(name + ", by input", shape, 4.0 * size, [&] {
      math::norm_backward_input<float>(exec_, kind, x, weight, mean, rstd, y, dx);
    });
    memory_row(name + ", by weight", shape, 2.0 * size, [&] {
      math::norm_backward_parameters<float>(exec_, kind, x, mean, rstd, y, dweight, dbias_data);
    });
  }

  void activations() {
    const MatrixArray x(ffn_rows, ffn_width), y(ffn_rows, ffn_width), both(ffn_rows, 2 * ffn_width),
        dboth(ffn_rows, 2 * ffn_width);
    const View<float**> dx = dboth.view().matrix(ffn_rows, ffn_width);
    const double size = static_cast<double>(ffn_rows * ffn_width);
    const std::string shape = text(ffn_rows, " x ", ffn_width);
    memory_row("gelu", shape, 2.0 * size, [&] { math::gelu_forward<float>(exec_, x, y); });
    memory_row("gelu, backward", shape, 3.0 * size,
               [&] { math::gelu_backward<float>(exec_, x, y, dx); });
    memory_row("swiglu", shape, 3.0 * size, [&] { math::swiglu_forward<float>(exec_, both, y); });
    memory_row("swiglu, backward", shape, 5.0 * size,
               [&] { math::swiglu_backward<float>(exec_, both, x, dboth); });
  }

  void embeddings() {
    constexpr std::int64_t tokens = 1024;
    const MatrixArray table(vocabulary, width), positions(tokens, width), x(rows, width);
    const auto ids = random_ids(rows, vocabulary);
    const double size = static_cast<double>(rows * width);
    const std::string shape = text(rows, " of ", vocabulary, " x ", width);
    memory_row("embedding", shape, 2.0 * size, [&] {
      math::embedding_forward<float>(exec_, device_view(ids), tokens, 0, table, {}, x);
    });
    memory_row("embedding, backward", shape, 3.0 * size, [&] {
      math::embedding_backward<float>(exec_, device_view(ids), tokens, x, table, {});
    });
    memory_row("embedding + positions", shape, 3.0 * size, [&] {
      math::embedding_forward<float>(exec_, device_view(ids), tokens, 0, table, positions, x);
    });
    memory_row("rotary", text(rows, " x ", width), 2.0 * size, [&] {
      math::rotate<float>(exec_, math::Rotation::forward, x, 64, 10000.0, tokens, 0);
    });
  }

  void elementwise() {
    constexpr std::int64_t pieces = 4;
    const MatrixArray x(ffn_rows, ffn_width, 0.0);
    const Array y(ffn_rows * ffn_width, 0.0), row(ffn_width, 0.0);
    const std::int64_t count = ffn_rows * ffn_width;
    const auto size = static_cast<double>(count);
    const std::string shape = text(ffn_rows, " x ", ffn_width);
    memory_row("add_to", text(count), 3.0 * size,
               [&] { math::add_to<float, OnDevice>(exec_, x.view(), y); });
    memory_row("tree_sum", text(pieces, " x ", count / pieces), 1.25 * size,
               [&] { math::tree_sum<float>(exec_, x.view().matrix(pieces, count / pieces)); });
    memory_row("add_bias", shape, 2.0 * size, [&] { math::add_bias<float>(exec_, x, row); });
    memory_row("column_sums", shape, size, [&] { math::column_sums<float>(exec_, x, row); });
    memory_row("fill", text(count), size, [&] { math::fill<float>(exec_, y, 1.0f); });
    memory_row("fill_normal", text(count), size,
               [&] { math::fill_normal<float>(exec_, y, 1, 0, 0.02); });
  }

  void optimizer() {
    constexpr std::int64_t count = ffn_rows * ffn_width;
    const Array parameters(count), gradients(count), first(count), second(count, 0.0);
    const Kokkos::View<std::int64_t*, Memory> limbs("limbs", math::exact_sum_limbs);
    const Kokkos::View<std::uint64_t*, Memory> digest("digest", 1);
    const auto size = static_cast<double>(count);
    optim::AdamwStep step;
    step.learning_rate = 1e-4;
    step.weight_decay = 0.1;
    memory_row("adamw", text(count), 7.0 * size,
               [&] { optim::adamw<float>(exec_, parameters, gradients, first, second, step); });
    // As of rows that are seen no more: their moments decay until they are subnormal.
    const Array unseen(count, 0.0), tiny(count, 0.0), tiny_squares(count, 0.0);
    math::fill<float>(exec_, tiny, 1e-40f);
    math::fill<float>(exec_, tiny_squares, 1e-40f);
    memory_row("adamw, subnormal moments", text(count), 7.0 * size,
               [&] { optim::adamw<float>(exec_, parameters, unseen, tiny, tiny_squares, step); });
    memory_row("exact norm", text(count), size,
               [&] { math::add_squares<float, OnDevice>(exec_, gradients, device_view(limbs)); });
    memory_row("exact sum", text(count), size,
               [&] { math::add_terms<float>(exec_, gradients, device_view(limbs)); });
    memory_row("digest", text(count), size,
               [&] { math::add_digest(exec_, parameters, 1, 0, device_view(digest)); });
  }

  comm::Communicator& world_;
  const double budget_;
  Table table_;
  Exec exec_;
  double peak_flops_ = 0.0;
  double peak_bandwidth_ = 0.0;
};

}  // namespace

void run_kernels(comm::Communicator& world, const Options& options) {
  // As decks do unless they say otherwise.
  train::set_matrix_threads({}, world);
  const math::SubnormalsScope scope(math::default_subnormals);
  Kernels(world, options).all();
}

}  // namespace ostrakon::bench
