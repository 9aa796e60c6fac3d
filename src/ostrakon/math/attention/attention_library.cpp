// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/attention/attention_library.hpp>

#include <algorithm>
#include <map>
#include <ostrakon/math/attention/attention_on_chip.hpp>
#include <ostrakon/math/attention/library_trial.hpp>
#include <ostrakon/math/products/pinned_products.hpp>
#include <ostrakon/math/warm_up.hpp>
#include <type_traits>

namespace ostrakon::math {
namespace {

constexpr std::int64_t workspace_alignment = 256;

bool is_on_chip(const AttentionShape& shape, KernelForm form) {
  return attention_on_chip<bf16>(shape, form);  // as with fp16
}

std::int64_t rounded_up(std::int64_t size, std::int64_t unit) {
  return (size + unit - 1) / unit * unit;
}

/// Bytes that backward of cuDNN 9 needs at most, found by plans for sm_80, 90 and 100
/// (docs/gpu.md): gradients of scores in 16 bits, tiles of 64 queries and 128 keys; sums of the
/// queries' gradients in float, or gradients of keys and values for each query head; a float for
/// each query.
std::int64_t backward_bytes(const AttentionShape& shape) {
  const std::int64_t rows = shape.batch * shape.heads * rounded_up(shape.tokens, 128);
  const std::int64_t widths = shape.head_width + shape.width_of_values();
  return rows * (2 * rounded_up(shape.tokens, 128) + 4 * (shape.head_width + widths) + 8) +
         (std::int64_t{64} << 10);
}

/// Returns the largest divisor of `count` for which fits(divisor); 1 if there is none.
template <class Fits>
std::int64_t largest_divisor(std::int64_t count, const Fits& fits) {
  for (std::int64_t parts = 1; parts < count; ++parts)
    if (count % parts == 0 && fits(count / parts)) return count / parts;
  return 1;
}

AttentionShape with_kv_heads(AttentionShape shape, std::int64_t kv_heads) {
  shape.heads = shape.heads / shape.kv_heads * kv_heads;
  shape.kv_heads = kv_heads;
  return shape;
}

/// All that a plan depends on.
using Key = std::vector<std::int64_t>;

Key key_of(const AttentionShape& shape, DType dtype, AttentionPass pass) {
  return {shape.batch,
          shape.tokens,
          shape.heads,
          shape.kv_heads,
          shape.head_width,
          shape.width_of_values(),
          shape.scores.window,
          static_cast<std::int64_t>(shape.scores.scale * 1e12),
          static_cast<std::int64_t>(dtype),
          static_cast<std::int64_t>(pass)};
}

struct Findings {
  std::map<Key, std::size_t> tried;  ///< indices into `found`
  std::vector<LibraryFinding> found;
  std::unique_ptr<AttentionLibrary> library;
  bool has_library = false;  ///< whether `library` was made, or given
};
Findings& findings() {
  static Findings all;
  return all;
}

/// Whether the call is for the library and has been taken: tried in a WarmUp, counted or run.
template <class Try, class Run>
bool take(const AttentionShape& shape, DType dtype, AttentionPass pass, const Try& trial,
          const Run& run) {
  if (!is_for_library(shape, dtype, kernel_form, pass)) return false;
  // Algorithms of own kernels' products are chosen, too: trials come later.
  if (ProductNotes::current() != nullptr) return false;
  AttentionLibrary* const library = attention_library();
  if (library != nullptr || shape.library == LibraryUse::always) {
    const char* const name =
        pass == AttentionPass::forward ? "attend_forward" : "attend_backward_by_library";
    if (LaunchCount::takes_one(name)) {
      for (std::int64_t i = 1; i < library_launches(shape, pass); ++i) LaunchCount::takes_one(name);
      return true;
    }
  }
  Findings& all = findings();
  const Key key = key_of(shape, dtype, pass);
  const auto found = all.tried.find(key);
  if (WarmUp::runs()) {
    if (found != all.tried.end()) return false;
    const std::string refusal =
        library == nullptr ? std::string("this build has no cuDNN") : trial(*library);
    all.tried[key] = all.found.size();
    all.found.push_back(
        {describe_attention(shape, pass), refusal, shape.library == LibraryUse::always});
    return library != nullptr;
  }
  if (found == all.tried.end() || !all.found[found->second].refusal.empty()) return false;
  const std::string refusal = run(*library);
  require(refusal.empty(), library->name(), ": ", refusal);
  return true;
}

}  // namespace

AttentionLibrary* attention_library() {
  Findings& all = findings();
  if (!all.has_library) use_attention_library(make_attention_library());
  return all.library.get();
}

void use_attention_library(std::unique_ptr<AttentionLibrary> library) {
  Findings& all = findings();
  all.tried.clear();
  all.found.clear();
  all.library = std::move(library);
  all.has_library = true;
}

#if !defined(OSTRAKON_HAVE_CUDNN)
std::unique_ptr<AttentionLibrary> make_attention_library() { return nullptr; }
#endif

std::vector<LibraryFinding> library_findings() { return findings().found; }

void refuse_attention_library(const std::string& what, const std::string& refusal) {
  Findings& all = findings();
  for (LibraryFinding& one : all.found)
    if (one.what == what) one.refusal = refusal;
}

std::string why_not_by_library(const AttentionShape& shape, DType dtype, KernelForm form) {
  const auto fits = [](std::int64_t width) {
    return width % 8 == 0 && 64 <= width && width <= 256;
  };
  if (form != KernelForm::device_on_chip)
    return text("kernels for ", name_in(kernel_form_names, form), "; expected nvidia");
  if (dtype == DType::fp32) return "activations in fp32; expected bf16 or fp16";
  if (shape.scores.soft_cap > 0.0) return "capped scores; expected none";
  if (shape.scores.slopes > 0) return "slopes of ALiBi; expected none";
  if (shape.values_in_keys) return "values that are columns of keys; expected arrays of their own";
  if (!fits(shape.head_width) || !fits(shape.width_of_values()))
    return text("heads of ", shape.head_width, " with values of ", shape.width_of_values(),
                "; expected multiples of 8 from 64 to 256");
  if (shape.tokens < 2) return "sequences of 1 token; expected 2 or more";
  return {};
}

bool is_for_library(const AttentionShape& shape, DType dtype, KernelForm form, AttentionPass pass) {
  if (shape.library == LibraryUse::never || !why_not_by_library(shape, dtype, form).empty())
    return false;
  if (pass == AttentionPass::forward || shape.library == LibraryUse::always) return true;
  return !is_on_chip(shape, form) &&
         backward_bytes(library_backward_part(shape)) <= library_backward_limit;
}

AttentionShape library_backward_part(const AttentionShape& shape) {
  AttentionShape part = shape;
  part.batch = largest_divisor(shape.batch, [&](std::int64_t batch) {
    part.batch = batch;
    return backward_bytes(part) <= library_backward_limit;
  });
  if (part.batch > 1) return part;
  return with_kv_heads(part, largest_divisor(shape.kv_heads, [&](std::int64_t kv_heads) {
                         return backward_bytes(with_kv_heads(part, kv_heads)) <=
                                library_backward_limit;
                       }));
}

std::int64_t library_workspace_bytes(const AttentionShape& shape, AttentionPass pass) {
  return workspace_alignment +
         (pass == AttentionPass::forward ? 4096 : backward_bytes(library_backward_part(shape)));
}

std::int64_t library_launches(const AttentionShape& shape, AttentionPass pass) {
  if (pass == AttentionPass::forward) return 1;
  const AttentionShape part = library_backward_part(shape);
  const std::int64_t calls = shape.batch / part.batch * (shape.kv_heads / part.kv_heads);
  // Sums of a row, scores, gradients of queries; sums over the query heads of a head of keys.
  return calls * (shape.heads > shape.kv_heads ? 5 : 3);
}

namespace {

template <class T>
HeadRows rows_of(const View<T**>& x, std::int64_t first_column) {
  return {x.data() + first_column, x.stride()};
}

/// Returns the arrays of a part that begins with this sequence and head of keys.
template <class T>
AttentionArrays part_of(const AttentionShape& shape, const AttentionArrays& all,
                        std::int64_t sequence, std::int64_t kv_head) {
  const std::int64_t row = sequence * shape.tokens;
  const std::int64_t head = kv_head * (shape.heads / shape.kv_heads);
  const auto from = [&](const HeadRows& x, std::int64_t column) {
    return x.data == nullptr
               ? x
               : HeadRows{static_cast<const T*>(x.data) + row * x.stride + column, x.stride};
  };
  const std::int64_t query = head * shape.head_width, key = kv_head * shape.head_width;
  const std::int64_t made = head * shape.width_of_values();
  const std::int64_t value = kv_head * shape.width_of_values();
  return {from(all.queries, query),
          from(all.keys, key),
          from(all.values, value),
          from(all.out, made),
          all.log_sum_exp + (sequence * shape.heads + head) * shape.tokens,
          from(all.dout, made),
          from(all.dqueries, query),
          from(all.dkeys, key),
          from(all.dvalues, value)};
}

template <class T>
LibraryWorkspace aligned(View<T*> workspace) {
  auto* const begin = reinterpret_cast<std::byte*>(workspace.data());
  const auto past = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(begin) %
                                              static_cast<std::uintptr_t>(workspace_alignment));
  const std::int64_t skipped = past == 0 ? 0 : workspace_alignment - past;
  return {begin + skipped, workspace.size() * static_cast<std::int64_t>(sizeof(T)) - skipped};
}

}  // namespace

template <class T>
bool forward_by_library(const Exec& exec, const AttentionShape& shape, View<const T**> qkv,
                        View<T**> out, View<compute_t<T>*> log_sum_exp, View<T*> workspace) {
  if constexpr (is_16bit<T>) {
    const std::int64_t keys = shape.query_columns();
    const auto compute = [&](AttentionLibrary& library, const AttentionShape& part,
                             std::int64_t sequence, std::int64_t kv_head) {
      const AttentionArrays all = {rows_of(qkv, 0),
                                   rows_of(qkv, keys),
                                   rows_of(qkv, keys + shape.value_column(0)),
                                   rows_of(out, 0),
                                   log_sum_exp.data(),
                                   {},
                                   {},
                                   {},
                                   {}};
      return library.forward(exec, part, library_dtype<T>,
                             part_of<T>(shape, all, sequence, kv_head), aligned(workspace));
    };
    return take(
        shape, library_dtype<T>, AttentionPass::forward,
        [&](AttentionLibrary& library) {
          return try_forward<T>(exec, shape, {qkv, out, log_sum_exp}, workspace,
                                [&](const AttentionShape& part, std::int64_t s, std::int64_t h) {
                                  return compute(library, part, s, h);
                                });
        },
        [&](AttentionLibrary& library) { return compute(library, shape, 0, 0); });
  }
  return false;
}

template <class T>
bool backward_by_library(const Exec& exec, const AttentionShape& shape, View<const T**> qkv,
                         View<const T**> out, View<const compute_t<T>*> log_sum_exp,
                         View<const T**> dout, View<T**> dqkv, View<T*> workspace) {
  if constexpr (is_16bit<T>) {
    // A trial makes these two, too, and a call takes them by the addresses of forward.
    const auto made = [&] {
      return View<T**>(const_cast<T*>(out.data()), out.rows(), out.columns(), out.stride());
    };
    const auto sums = [&] {
      return View<float*>(const_cast<float*>(log_sum_exp.data()), log_sum_exp.size());
    };
    const std::int64_t keys = shape.query_columns();
    const auto compute = [&](AttentionLibrary& library, const AttentionShape& part,
                             std::int64_t sequence, std::int64_t kv_head) {
      const std::int64_t values = keys + shape.value_column(0);
      const AttentionArrays all = {rows_of(qkv, 0),  rows_of(qkv, keys),  rows_of(qkv, values),
                                   rows_of(out, 0),  sums().data(),       rows_of(dout, 0),
                                   rows_of(dqkv, 0), rows_of(dqkv, keys), rows_of(dqkv, values)};
      return library.backward(exec, part, library_dtype<T>,
                              part_of<T>(shape, all, sequence, kv_head), aligned(workspace));
    };
    const auto compute_all = [&](AttentionLibrary& library) -> std::string {
      const AttentionShape part = library_backward_part(shape);
      for (std::int64_t s = 0; s < shape.batch; s += part.batch)
        for (std::int64_t h = 0; h < shape.kv_heads; h += part.kv_heads)
          if (std::string refusal = compute(library, part, s, h); !refusal.empty()) return refusal;
      return {};
    };
    return take(
        shape, library_dtype<T>, AttentionPass::backward,
        [&](AttentionLibrary& library) {
          return try_backward<T>(
              exec, shape, {qkv, made(), sums()}, {dout, dqkv}, workspace,
              [&] { return compute_all(library); },
              [&](const AttentionShape& part, std::int64_t s, std::int64_t h) {
                return compute(library, part, s, h);
              });
        },
        compute_all);
  }
  return false;
}

#define OSTRAKON_INSTANTIATE(T)                                                             \
  template bool forward_by_library<T>(const Exec&, const AttentionShape&, View<const T**>,  \
                                      View<T**>, View<compute_t<T>*>, View<T*>);            \
  template bool backward_by_library<T>(const Exec&, const AttentionShape&, View<const T**>, \
                                       View<const T**>, View<const compute_t<T>*>,          \
                                       View<const T**>, View<T**>, View<T*>);
OSTRAKON_FOR_ALL_NUMBERS(OSTRAKON_INSTANTIATE)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::math
