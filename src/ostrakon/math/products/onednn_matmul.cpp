// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/products/onednn_matmul.hpp>

#if defined(OSTRAKON_HAVE_ONEDNN) && !OSTRAKON_PRODUCTS_ON_DEVICE

#include <dnnl.hpp>
#include <map>
#include <memory>
#include <ostrakon/base/error.hpp>
#include <tuple>
#include <unordered_map>

namespace ostrakon::math::onednn {
namespace {

using dnnl::memory;

memory::data_type data_type(Format format) {
  return format == Format::bf16   ? memory::data_type::bf16
         : format == Format::fp16 ? memory::data_type::f16
                                  : memory::data_type::f32;
}

/// A compiled oneDNN primitive for one kind of product, with memory objects that only lack
/// addresses.
class Compiled {
 public:
  Compiled(const dnnl::engine& engine, const Product& product) {
    const memory::desc a({product.m, product.k}, data_type(product.factors),
                         memory::dims{product.a.row, product.a.column});
    const memory::desc b({product.k, product.n}, data_type(product.factors),
                         memory::dims{product.b.row, product.b.column});
    const memory::desc c({product.m, product.n}, data_type(product.result),
                         memory::dims{product.c_row, 1});
    dnnl::post_ops then;
#if DNNL_VERSION_MAJOR >= 3
    if (product.alpha != 1)
      then.append_eltwise(dnnl::algorithm::eltwise_linear, product.alpha, 0.0f);
#else
    if (product.alpha != 1)
      then.append_eltwise(1.0f, dnnl::algorithm::eltwise_linear, product.alpha, 0.0f);
#endif
    if (product.beta != 0) then.append_sum(product.beta);
    dnnl::primitive_attr attributes;
    attributes.set_post_ops(then);
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::matmul::primitive_desc description(engine, a, b, c, attributes);
#else
    const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(a, b, c), attributes, engine);
#endif
    matmul_ = dnnl::matmul(description);
    arguments_ = {{DNNL_ARG_SRC, memory(a, engine, DNNL_MEMORY_NONE)},
                  {DNNL_ARG_WEIGHTS, memory(b, engine, DNNL_MEMORY_NONE)},
                  {DNNL_ARG_DST, memory(c, engine, DNNL_MEMORY_NONE)}};
  }

  void run(dnnl::stream& stream, const void* a, const void* b, void* c) {
    arguments_.at(DNNL_ARG_SRC).set_data_handle(const_cast<void*>(a));
    arguments_.at(DNNL_ARG_WEIGHTS).set_data_handle(const_cast<void*>(b));
    arguments_.at(DNNL_ARG_DST).set_data_handle(c);
    matmul_.execute(stream, arguments_);
    stream.wait();
  }

 private:
  dnnl::matmul matmul_;
  std::unordered_map<int, memory> arguments_;
};

/// A thread's cache of compiled products: a training step repeats a few hundred. Null if oneDNN has
/// no implementation.
class Products {
 public:
  Compiled* find(const Product& p) {
    const Key key(p.factors, p.result, p.m, p.n, p.k, p.a.row, p.a.column, p.b.row, p.b.column,
                  p.c_row, p.alpha, p.beta);
    const auto known = compiled_.find(key);
    if (known != compiled_.end()) return known->second.get();
    if (compiled_.size() >= most_kinds) compiled_.clear();
    std::unique_ptr<Compiled> compiled;
    try {
      compiled = std::make_unique<Compiled>(engine_, p);
    } catch (const dnnl::error& error) {
      if (error.status != dnnl_unimplemented) throw;
    }
    return compiled_.emplace(key, std::move(compiled)).first->second.get();
  }

  dnnl::stream& stream() { return stream_; }

 private:
  using Key = std::tuple<Format, Format, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                         std::int64_t, std::int64_t, std::int64_t, std::int64_t, float, float>;
  static constexpr std::size_t most_kinds = 2048;

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::map<Key, std::unique_ptr<Compiled>> compiled_;
};

/// Whether the processor has an instruction set: oneDNN's are bit sets that contain the sets they
/// include.
[[maybe_unused]] bool processor_has(dnnl::cpu_isa isa) {
  const auto here = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto wanted = static_cast<unsigned>(isa);
  return (here & wanted) == wanted;
}

}  // namespace

bool multiplies(Format format) {
  static const bool has_bf16 = processor_has(dnnl::cpu_isa::avx512_core_bf16);
#if DNNL_VERSION_MAJOR >= 3
  static const bool has_fp16 = processor_has(dnnl::cpu_isa::avx512_core_fp16);
#else
  constexpr bool has_fp16 = false;  // only on GPUs
#endif
  return (format == Format::bf16 && has_bf16) || (format == Format::fp16 && has_fp16);
}

bool multiply(const Product& product, const void* a, const void* b, void* c) {
  thread_local Products products;
  try {
    Compiled* const compiled = products.find(product);
    if (compiled == nullptr) return false;
    compiled->run(products.stream(), a, b, c);
    return true;
  } catch (const dnnl::error& error) {
    throw Error(text("oneDNN's matmul of (", product.m, ", ", product.k, ") by (", product.k, ", ",
                     product.n, ") failed: ", error.what(), ", status ",
                     static_cast<int>(error.status)));
  }
}

}  // namespace ostrakon::math::onednn

#endif
