// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/huge_pages.hpp>
#include <ostrakon/math/attention/attention.hpp>
#include <ostrakon/math/attention/rotary.hpp>
#include <ostrakon/math/attention/sequence_parts.hpp>
#include <ostrakon/math/cross_entropy/linear_cross_entropy.hpp>
#include <ostrakon/math/digest.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/embedding.hpp>
#include <ostrakon/math/exact_sum.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <ostrakon/math/random.hpp>
#include <ostrakon/math/rows/activation.hpp>
#include <ostrakon/math/rows/norm.hpp>
#include <ostrakon/math/subnormals.hpp>
#include <ostrakon/math/warm_up.hpp>
#include <ostrakon/optim/adamw.hpp>
#include <ostrakon/runtime/own_product_workspace.hpp>
#include <ostrakon/trainer/dispatch_dtype.hpp>
#include <ostrakon/trainer/threads.hpp>
#include <type_traits>

#include "bench.hpp"

namespace ostrakon::bench {
namespace {

using math::Transpose;

/// Normally distributed values, or zeros, in device memory, with the pages of an arena.
template <class T>
class Array {
 public:
  explicit Array(std::int64_t count, double deviation = 1.0)
      : view_(Kokkos::view_alloc("bench", Kokkos::WithoutInitializing),
              static_cast<std::size_t>(count)) {
    if (memory_is_host_accessible)
      advise_huge_pages(view_.data(), count * static_cast<std::int64_t>(sizeof(T)));
    Kokkos::deep_copy(view_, T(0));
    if (deviation == 0.0) return;
    static std::uint64_t key = 0;
    if constexpr (is_16bit<T>) {
      const Array<float> wide(count, deviation);
      math::convert<float, T, OnDevice>(Exec(), wide.view(), view());
      Exec().fence();
    } else {
      math::fill_normal<T>(Exec(), device_view(view_), ++key, 0, deviation);
    }
  }
  void copy(const Exec& exec, const Array& from) const {
    Kokkos::deep_copy(exec, view_, from.view_);
  }
  View<T*> view() const { return device_view(view_); }
  operator View<T*>() const { return view(); }
  operator View<const T*>() const { return view(); }

 private:
  Kokkos::View<T*, Memory> view_;
};

template <class T>
class MatrixArray : public Array<T> {
 public:
  MatrixArray(std::int64_t rows, std::int64_t columns, double deviation = 1.0)
      : Array<T>(rows * columns, deviation), matrix_(this->view().matrix(rows, columns)) {}
  operator View<T**>() const { return matrix_; }
  operator View<const T**>() const { return matrix_; }

 private:
  View<T**> matrix_;
};

/// Returns random token ids in [0, vocabulary).
Kokkos::View<std::int32_t*, Memory> random_ids(std::int64_t count, std::int64_t vocabulary) {
  const Kokkos::View<std::int32_t*, Memory> ids("ids", static_cast<std::size_t>(count));
  const auto host = Kokkos::create_mirror_view(ids);
  for (std::int64_t i = 0; i < count; ++i)
    host(i) = static_cast<std::int32_t>(math::philox(1, static_cast<std::uint64_t>(i), 0).word[0] %
                                        static_cast<std::uint64_t>(vocabulary));
  Kokkos::deep_copy(ids, host);
  return ids;
}

/// Documents of which a sequence is packed.
struct PackedDocuments {
  Kokkos::View<std::int32_t*, Memory> begins;  ///< of each token's document
  double keys_of_query = 0.0;  ///< on average, of a document's tokens half as attention counts them
};

/// Random lengths from 1 to 2 mean_length - 1.
PackedDocuments pack_documents(std::int64_t tokens, std::int64_t mean_length) {
  PackedDocuments packed;
  packed.begins =
      Kokkos::View<std::int32_t*, Memory>("documents", static_cast<std::size_t>(tokens));
  const auto host = Kokkos::create_mirror_view(packed.begins);
  for (std::int64_t begin = 0, number = 0; begin < tokens; ++number) {
    const auto word = math::philox(2, static_cast<std::uint64_t>(number), 0).word[0];
    const std::int64_t some = 1 + static_cast<std::int64_t>(word) % (2 * mean_length - 1);
    const std::int64_t length = std::min(some, tokens - begin);
    for (std::int64_t i = 0; i < length; ++i) host(begin + i) = static_cast<std::int32_t>(begin);
    packed.keys_of_query +=
        0.5 * static_cast<double>(length * length) / static_cast<double>(tokens);
    begin += length;
  }
  Kokkos::deep_copy(packed.begins, host);
  return packed;
}

/// The measurements, one method per group of kernels. Sizes are those of GPT-2 small and, where
/// small matrices behave differently, of the quickstart deck. Memory-bound kernels get arrays that
/// exceed all caches, so that their ratio to a copy is comparable between machines. T is the dtype
/// in which a model computes; parameter gradients and optimizer states are float.
template <class T>
class Kernels {
  using Compute = compute_t<T>;
  static constexpr DType dtype = std::is_same<T, bf16>::value   ? DType::bf16
                                 : std::is_same<T, fp16>::value ? DType::fp16
                                                                : DType::fp32;

 public:
  Kernels(comm::Communicator& world, const Options& options)
      : world_(world),
        budget_(options.seconds_or(0.3)),
        table_("kernels", world, options,
               {{"kernel", "kernel", Format::text, 24},
                {"shape", "shape", Format::text, 34},
                {"time", "seconds", Format::seconds, 10},
                {"fastest", "fastest_seconds", Format::seconds, 10},
                {"GFLOP/s", "gigaflops", Format::number, 8},
                {"GB/s", "gigabytes_per_second", Format::number, 8},
                {"of peak", "ratio_to_peak", Format::ratio, 8}}) {
    math::warm_up(exec_);
  }

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
  static constexpr double float_bytes = sizeof(float), bytes = sizeof(T);

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

  /// `all_bytes`: bytes that the kernel has to read and write.
  void memory_row(const std::string& name, const std::string& shape, double all_bytes,
                  const std::function<void()>& work) {
    const Seconds seconds = seconds_of(work);
    const double rate = all_bytes / seconds.median;
    table_.row({name, shape, seconds.median, seconds.fastest, nullptr, rate * 1e-9,
                rate / peak_bandwidth_});
  }

  /// Measures peak rates. Other work on the machine must not lower them, so each size is measured
  /// in several turns, and products of layers are among the sizes.
  void peaks() {
    struct Size {
      std::int64_t m, n, k;
      Seconds seconds;
    };
    std::vector<Size> sizes;
    for (const std::int64_t side : {256, 512, 1024, 2048}) sizes.push_back({side, side, side, {}});
    sizes.push_back({1024, 3072, 768, {}});
    sizes.push_back({1024, 768, 3072, {}});
    constexpr int turns = 3;
    Size best{};
    for (int turn = 0; turn < turns; ++turn)
      for (Size& size : sizes) {
        const MatrixArray<T> a(size.m, size.k), b(size.n, size.k), c(size.m, size.n, 0.0);
        size.seconds = seconds_of([&] {
          math::gemm<T, T>(exec_, Transpose::no, Transpose::yes, Compute(1), a, b, Compute(0), c);
        });
        const double rate = product_flops(size.m, size.n, size.k) / size.seconds.fastest;
        if (rate <= peak_flops_) continue;
        peak_flops_ = rate;
        best = size;
      }
    const char* const kernel = is_16bit<T> ? math::gemm_kernel_16bit(dtype) : math::gemm_kernel();
    table_.row({text("peak: gemm, ", kernel), text(best.m, " x ", best.n, " x ", best.k),
                best.seconds.median, best.seconds.fastest, peak_flops_ * 1e-9, nullptr, 1.0});

    constexpr std::int64_t count = std::int64_t{1} << 26;
    const Array<float> from(count, 0.0), to(count, 0.0);
    const Seconds seconds = seconds_of([&] { to.copy(exec_, from); });
    peak_bandwidth_ = 2.0 * float_bytes * count / seconds.fastest;
    table_.row({"peak: copy", text(count), seconds.median, seconds.fastest, nullptr,
                peak_bandwidth_ * 1e-9, 1.0});
    // A copy may write past the caches; a kernel's output is read into them first.
    constexpr std::int64_t copy_rows = std::int64_t{1} << 16;
    const auto rows_of = [&](const auto& array) {
      return array.view().matrix(copy_rows, count / copy_rows);
    };
    memory_row("copy, by a kernel", text(count), 2.0 * static_cast<double>(count), [&] {
      math::copy_rows<float, float>(exec_, View<const float**>(rows_of(from)), rows_of(to));
    });
  }

  static double product_flops(std::int64_t m, std::int64_t n, std::int64_t k) {
    return 2.0 * static_cast<double>(m * n * k);
  }

  /// The three products of a linear layer x (n, inputs) -> y (n, outputs).
  void linear_products(std::int64_t n, std::int64_t inputs, std::int64_t outputs) {
    const MatrixArray<T> x(n, inputs), weight(outputs, inputs), y(n, outputs, 0.0);
    const MatrixArray<Compute> dweight(outputs, inputs, 0.0);
    const double flops = 2.0 * static_cast<double>(n * inputs * outputs);
    const std::string shape = text(n, " x ", inputs, " -> ", outputs);
    const auto multiply = [&](const char* name, Transpose turn_a, Transpose turn_b,
                              const View<T**>& a, const View<T**>& b, const auto& c) {
      using C = typename std::decay_t<decltype(c)>::Element;
      compute_row(name, shape, flops, [&] {
        math::gemm<T, C>(exec_, turn_a, turn_b, Compute(1), a, b, Compute(0), c);
      });
    };
    const View<T**> to_x = x, to_y = y;
    const View<Compute**> to_weight = dweight;
    multiply("linear", Transpose::no, Transpose::yes, x, weight, to_y);
    multiply("linear, by input", Transpose::no, Transpose::no, y, weight, to_x);
    multiply("linear, by weight", Transpose::yes, Transpose::no, y, x, to_weight);
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

  /// `mean_length`: of the documents of which the only sequence is packed; 0: there are none.
  void attention_of(const math::AttentionShape& shape, std::int64_t mean_length = 0) {
    const std::int64_t n = shape.batch * shape.tokens;
    PackedDocuments documents;
    if (mean_length > 0) documents = pack_documents(n, mean_length);
    const View<const std::int32_t*> begins =
        mean_length > 0 ? device_view(documents.begins) : View<const std::int32_t*>();
    const std::int64_t out_columns = shape.out_columns();
    const std::int64_t qkv_columns = shape.query_columns() + shape.kv_columns();
    const MatrixArray<T> qkv(n, qkv_columns), dqkv(n, qkv_columns), out(n, out_columns),
        dout(n, out_columns);
    const Array<Compute> log_sum_exp(n * shape.heads);
    const Array<T> workspace(std::max(math::attention_forward_workspace<T>(shape),
                                      math::attention_backward_workspace<T>(shape)));
    // One product over queries and the keys that they see, half of all or what a window leaves of
    // them: forward has one of keys and one of values, backward three and two.
    const double pairs =
        2.0 * (mean_length > 0 ? documents.keys_of_query : math::attention_keys_of_query(shape));
    const double scores = static_cast<double>(n * shape.query_columns()) * pairs;
    const double outputs = static_cast<double>(n * out_columns) * pairs;
    const std::int64_t window = shape.scores.window;
    const std::string name =
        text(shape.batch, " x ", shape.tokens, window > 0 ? text(" in ", window) : "", ", ",
             shape.heads, "/", shape.kv_heads, " heads of ", shape.head_width,
             shape.value_width > 0 ? text(", values of ", shape.value_width) : "",
             mean_length > 0 ? text(", documents of ", mean_length) : "");
    compute_row("attention", name, scores + outputs, [&] {
      math::attention_forward<T>(exec_, shape, qkv, 0, shape.tokens, out, log_sum_exp, workspace,
                                 {}, begins);
    });
    compute_row("attention, backward", name, 3.0 * scores + 2.0 * outputs, [&] {
      math::attention_backward<T>(exec_, shape, qkv, out, log_sum_exp, dout, dqkv, workspace,
                                  begins);
    });
  }

  void attention() {
    attention_of({1, 1024, 12, 12, 64});
    attention_of({1, 1024, 16, 4, 128});
    attention_of({1, 1024, 16, 16, 192, {}, 128});
    attention_of({4, 256, 6, 6, 32});
    attention_of({1, 2048, 2, 2, 64});
    attention_of({1, 32768, 2, 2, 64, {0, 0, 1024}});
    attention_of({1, 8192, 2, 2, 64});
    for (const std::int64_t mean_length : {2048, 512, 128, 32})
      attention_of({1, 8192, 2, 2, 64}, mean_length);
  }

  void cross_entropy_of(std::int64_t n, std::int64_t columns, std::int64_t classes) {
    const MatrixArray<T> x(n, columns), weight(classes, columns, 0.02), dx(n, columns, 0.0);
    const MatrixArray<Compute> dweight(classes, columns, 0.0);
    const Array<Compute> losses(n, 0.0);
    const Array<T> workspace(math::linear_cross_entropy_workspace<T>(n, classes), 0.0);
    const auto targets = random_ids(n, classes);
    const double product = 2.0 * static_cast<double>(n * columns * classes);
    const std::string shape = text(n, " x ", columns, " -> ", classes);
    compute_row("cross-entropy", shape, product, [&] {
      math::linear_cross_entropy_forward<T>(exec_, x, weight, device_view(targets), losses,
                                            workspace);
    });
    compute_row("cross-entropy, backward", shape, 3.0 * product, [&] {
      math::linear_cross_entropy_backward<T>(exec_, x, weight, device_view(targets), 1e-3f, losses,
                                             dx, dweight, workspace);
    });
  }

  void cross_entropy() {
    cross_entropy_of(1024, width, vocabulary);
    cross_entropy_of(1024, 192, 257);
  }

  void norms(math::NormKind kind, const std::string& name) {
    const MatrixArray<T> x(rows, width), y(rows, width), dx(rows, width);
    const Array<T> weight(width), bias(width);
    const Array<Compute> dweight(width), dbias(width), mean(rows), rstd(rows);
    const Array<Compute> room(math::norm_sums_workspace(rows, width, 1));
    const bool layer = kind == math::NormKind::layernorm;
    constexpr auto gain = math::NormWeight::plain;
    const View<const T*> bias_data = layer ? bias.view() : View<T*>();
    const View<Compute*> dbias_data = layer ? dbias.view() : View<Compute*>();
    const double size = bytes * static_cast<double>(rows * width);
    const std::string shape = text(rows, " x ", width);
    memory_row(name, shape, 2.0 * size, [&] {
      math::norm_forward<T>(exec_, kind, gain, 1e-5, x, weight, bias_data, y, mean, rstd);
    });
    memory_row(name + ", by input", shape, 4.0 * size, [&] {
      math::norm_backward_input<T>(exec_, kind, gain, x, weight, mean, rstd, y, dx);
    });
    memory_row(name + ", by weight", shape, 2.0 * size, [&] {
      math::sum_norm_gradients<T>(exec_, kind, x, mean, rstd, y, dweight, dbias_data, {1, room});
    });
  }

  void activations() {
    using math::Activation;
    const MatrixArray<T> x(ffn_rows, ffn_width), y(ffn_rows, ffn_width),
        both(ffn_rows, 2 * ffn_width), dboth(ffn_rows, 2 * ffn_width);
    const View<T**> dx = dboth.view().matrix(ffn_rows, ffn_width);
    const double size = bytes * static_cast<double>(ffn_rows * ffn_width);
    const std::string shape = text(ffn_rows, " x ", ffn_width);
    memory_row("gelu", shape, 2.0 * size,
               [&] { math::activation_forward<T>(exec_, Activation::gelu, x, y); });
    memory_row("gelu, backward", shape, 3.0 * size,
               [&] { math::activation_backward<T>(exec_, Activation::gelu, x, y, dx); });
    memory_row("swiglu", shape, 3.0 * size,
               [&] { math::activation_forward<T>(exec_, Activation::swiglu, both, y); });
    memory_row("swiglu, backward", shape, 5.0 * size,
               [&] { math::activation_backward<T>(exec_, Activation::swiglu, both, x, dboth); });
  }

  void embeddings() {
    constexpr std::int64_t tokens = 1024;
    const MatrixArray<T> table(vocabulary, width), positions(tokens, width), x(rows, width);
    const MatrixArray<Compute> dtable(vocabulary, width);
    const auto ids = random_ids(rows, vocabulary);
    const auto elements = static_cast<double>(rows * width);
    const double size = bytes * elements;
    const std::string shape = text(rows, " of ", vocabulary, " x ", width);
    memory_row("embedding", shape, 2.0 * size, [&] {
      math::embedding_forward<T>(exec_, device_view(ids), tokens, 0, table, {}, x);
    });
    memory_row("embedding, backward", shape, size + 2.0 * sizeof(Compute) * elements, [&] {
      math::embedding_backward<T>(exec_, device_view(ids), tokens, x, dtable, {});
    });
    memory_row("embedding + positions", shape, 3.0 * size, [&] {
      math::embedding_forward<T>(exec_, device_view(ids), tokens, 0, table, positions, x);
    });
    const auto frequencies = math::make_rotary_frequencies({10000.0}, 64, tokens);
    memory_row("rotary", text(rows, " x ", width), 2.0 * size, [&] {
      math::rotate<T>(exec_, math::Rotation::forward, frequencies, x, 64, tokens, 0);
    });
  }

  void elementwise() {
    constexpr std::int64_t pieces = 4;
    const MatrixArray<float> x(ffn_rows, ffn_width, 0.0);
    const MatrixArray<T> rows_of_t(ffn_rows, ffn_width, 0.0);
    const Array<float> y(ffn_rows * ffn_width, 0.0);
    const Array<T> row(ffn_width, 0.0);
    const Array<Compute> sums(ffn_width, 0.0);
    const std::int64_t count = ffn_rows * ffn_width;
    const auto elements = static_cast<double>(count);
    const double size = float_bytes * elements;
    const std::string shape = text(ffn_rows, " x ", ffn_width);
    memory_row("add_to", text(count), 3.0 * size,
               [&] { math::add_to<float, OnDevice>(exec_, x.view(), y); });
    memory_row("tree_sum", text(pieces, " x ", count / pieces), 1.25 * size,
               [&] { math::tree_sum<float>(exec_, x.view().matrix(pieces, count / pieces)); });
    if constexpr (is_16bit<T>)
      memory_row("convert", text(count), (float_bytes + bytes) * elements,
                 [&] { math::convert<float, T, OnDevice>(exec_, x.view(), rows_of_t.view()); });
    memory_row("add_bias", shape, 2.0 * bytes * elements,
               [&] { math::add_bias<T>(exec_, rows_of_t, row); });
    memory_row("column_sums", shape, bytes * elements,
               [&] { math::column_sums<T>(exec_, rows_of_t, sums); });
    memory_row("fill", text(count), size, [&] { math::fill<float>(exec_, y, 1.0f); });
    memory_row("fill_normal", text(count), size,
               [&] { math::fill_normal<float>(exec_, y, 1, 0, 0.02); });
  }

  void optimizer() {
    constexpr std::int64_t count = ffn_rows * ffn_width;
    const Array<float> parameters(count), gradients(count), first(count), second(count, 0.0);
    const Kokkos::View<std::int64_t*, Memory> limbs("limbs", math::exact_sum_limbs);
    const Kokkos::View<std::uint64_t*, Memory> digest("digest", 1);
    const double size = float_bytes * static_cast<double>(count);
    optim::AdamwStep step;
    step.learning_rate = 1e-4;
    step.weight_decay = 0.1;
    memory_row("adamw", text(count), 7.0 * size,
               [&] { optim::adamw<float>(exec_, parameters, gradients, first, second, step); });
    // Rows of words that no longer occur have such moments: they decay until they are subnormal.
    const Array<float> unseen(count, 0.0), tiny(count, 0.0), tiny_squares(count, 0.0);
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
  const runtime::OwnProductWorkspace workspace_;
  double peak_flops_ = 0.0;
  double peak_bandwidth_ = 0.0;
};

}  // namespace

void run_kernels(comm::Communicator& world, const Options& options) {
  // Threads and subnormal numbers are set to the defaults of decks.
  train::set_matrix_threads({}, world);
  const math::SubnormalsScope scope(math::default_subnormals);
  train::dispatch_dtype(options.dtype,
                        [&](auto one) { Kernels<decltype(one)>(world, options).all(); });
}

}  // namespace ostrakon::bench
