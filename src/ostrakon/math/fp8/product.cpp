// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/fp8/product.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/attention/sequence_parts.hpp>
#include <ostrakon/math/fp8/blocks.hpp>
#include <ostrakon/math/fp8/cublaslt_fp8.hpp>
#include <ostrakon/math/fp8/quantize.hpp>
#include <ostrakon/math/piece_tree.hpp>
#include <ostrakon/math/work_items.hpp>

namespace ostrakon::math {
namespace {

constexpr std::int64_t alignment = 16;

constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return items_for(value, multiple) * multiple;
}

template <class U>
constexpr std::int64_t bytes_for(std::int64_t count) {
  return round_up(count * static_cast<std::int64_t>(sizeof(U)), alignment);
}

/// Bytes of an operand with `outer` sums, each of `inner` numbers, in `pieces` of the inner ones.
template <class T>
std::int64_t operand_bytes(ProductDType dtype, std::int64_t outer, std::int64_t inner,
                           std::int64_t pieces, bool has_columns, KernelForm form) {
  const std::int64_t of_piece = inner / pieces;
  if (!multiplies_codes(form))
    return bytes_for<T>(outer * inner) +
           (has_columns && dtype == ProductDType::fp8
                ? bytes_for<std::uint32_t>(column_maxima_workspace(of_piece, outer))
                : 0);
  const std::int64_t padded = round_up(of_piece, cublaslt::fp8_granule);
  const std::int64_t codes = bytes_for<std::uint8_t>(pieces * outer * padded);
  const std::int64_t block_scales = block_scales_bytes(outer, padded);
  if (dtype == ProductDType::mxfp8) return codes + bytes_for<std::uint8_t>(pieces * block_scales);
  return codes + bytes_for<float>(pieces * outer) + bytes_for<std::uint8_t>(block_scales);
}

/// Numbers of the sums that wait for others in a product by piece; codes are multiplied by whole
/// tiles of scales.
std::int64_t pending_sums(std::int64_t m, std::int64_t n, std::int64_t pieces, KernelForm form) {
  const std::int64_t all = gemm_by_piece_workspace(m, n, pieces);
  if (!multiplies_codes(form)) return all;
  return std::max(all, (tree_slots(pieces) - 1) * std::min(m, scale_tile_rows) * n);
}

/// The rows [piece * terms, (piece + 1) * terms).
template <class T>
View<T**> piece_of(const View<T**>& x, std::int64_t piece, std::int64_t terms) {
  return x.row_range(piece * terms, (piece + 1) * terms);
}

}  // namespace

// Named, as lambdas of templates have fields of these types.
namespace fp8_memory {

/// Divides a workspace into arrays, each of bytes_for() its elements; null gives null arrays, for a
/// LaunchCount.
class Arrays {
 public:
  explicit Arrays(View<std::byte*> workspace) : rest_(workspace) {}

  template <class U>
  View<U*> take(std::int64_t count) {
    if (!rest_) return {nullptr, count};
    const std::int64_t bytes = bytes_for<U>(count), available = rest_.size();
    require(bytes <= available, "fp8 product: workspace of ", available,
            " bytes left, expected at least ", bytes);
    const View<std::byte*> taken = rest_.range(0, bytes);
    rest_ = rest_.range(bytes, available);
    return {reinterpret_cast<U*>(taken.data()), count, taken.origin()};
  }

 private:
  View<std::byte*> rest_;
};

#if OSTRAKON_ON_DEVICE
/// An operand's codes (pieces * outer, padded) and scales.
struct Operand {
  Fp8Format format;
  ProductDType dtype;
  std::int64_t outer;
  View<std::uint8_t**> codes;
  View<float*> scales;  ///< fp8: of each row of codes
  /// mxfp8: of the blocks of each piece; fp8: memory for those of a product.
  View<std::uint8_t*> block_scales;

  Operand(ProductDType dtype_, Fp8Format format_, std::int64_t outer_, std::int64_t inner,
          std::int64_t pieces, Arrays& arrays)
      : format(format_), dtype(dtype_), outer(outer_) {
    const std::int64_t padded = round_up(inner / pieces, cublaslt::fp8_granule);
    const std::int64_t bytes = block_scales_bytes(outer, padded);
    const bool is_mx = dtype == ProductDType::mxfp8;
    codes = arrays.take<std::uint8_t>(pieces * outer * padded).matrix(pieces * outer, padded);
    if (!is_mx) scales = arrays.take<float>(pieces * outer);
    block_scales = arrays.take<std::uint8_t>(is_mx ? pieces * bytes : bytes);
  }

  template <class T>
  void quantize(const Exec& exec, bool has_columns, std::int64_t pieces,
                const View<const T**>& x) const {
    const Fp8Rows rows{format, codes, scales};
    const MxRows blocks{format, codes, block_scales};
    if (dtype == ProductDType::mxfp8 && has_columns)
      quantize_column_blocks<T>(exec, x, pieces, blocks);
    else if (dtype == ProductDType::mxfp8)
      quantize_row_blocks<T>(exec, x, blocks);
    else if (has_columns)
      quantize_columns<T>(exec, x, pieces, rows);
    else
      quantize_rows<T>(exec, x, rows);
  }

  /// Rows [begin, end) of a piece. With mxfp8 `begin` is a multiple of scale_tile_rows.
  cublaslt::Fp8Operand rows(std::int64_t piece, std::int64_t begin, std::int64_t end) const {
    const std::int64_t first = piece * outer;
    cublaslt::Fp8Operand part{dtype, format, codes.row_range(first + begin, first + end), scales,
                              block_scales};
    if (dtype == ProductDType::fp8) {
      part.scales = scales.range(first + begin, first + end);
    } else {
      const std::int64_t of_piece = block_scales_bytes(outer, codes.columns());
      part.block_scales = block_scales.range(
          piece * of_piece + block_scales_bytes(begin, codes.columns()), (piece + 1) * of_piece);
    }
    return part;
  }
};
#endif

}  // namespace fp8_memory

using fp8_memory::Arrays;
#if OSTRAKON_ON_DEVICE
using fp8_memory::Operand;
#endif

#if OSTRAKON_ON_DEVICE
namespace {

/// Whether a product takes codes here: kernels in the device form that run on a host multiply
/// rounded operands, but are counted as those of a device.
bool takes_codes() { return OSTRAKON_FP8_CUBLASLT == 1 || LaunchCount::is_counting(); }

}  // namespace
#endif

std::string why_no_fp8([[maybe_unused]] ProductDType dtype) {
#if OSTRAKON_FP8_CUBLASLT
  return cublaslt::why_no_fp8(dtype);
#else
  return products_on_device ? "this build multiplies on a device without cuBLASLt" : "";
#endif
}

template <class T>
std::int64_t fp8_gemm_workspace(ProductDType dtype, std::int64_t m, std::int64_t n, std::int64_t k,
                                KernelForm form) {
  // Either operand may have sums over its rows.
  return operand_bytes<T>(dtype, m, k, 1, true, form) +
         operand_bytes<T>(dtype, n, k, 1, true, form);
}

template <class T, class C>
void fp8_gemm(const Exec& exec, Fp8Formats formats, Transpose transpose_a, Transpose transpose_b,
              View<const T**> a, View<const T**> b, View<const C**> onto, View<C**> c,
              View<std::byte*> workspace) {
  const bool has_columns_of_a = transpose_a == Transpose::yes;
  const bool has_columns_of_b = transpose_b == Transpose::no;
  Arrays arrays(workspace);
#if OSTRAKON_ON_DEVICE
  if (takes_codes()) {
    const std::int64_t m = c.rows(), n = c.columns();
    const std::int64_t k = has_columns_of_a ? a.rows() : a.columns();
    const auto quantized = [&](Fp8Format format, std::int64_t outer, bool has_columns,
                               const View<const T**>& x) {
      const Operand operand(formats.dtype, format, outer, k, 1, arrays);
      operand.quantize(exec, has_columns, 1, x);
      return operand;
    };
    const Operand left = quantized(formats.a, m, has_columns_of_a, a);
    const Operand right = quantized(formats.b, n, has_columns_of_b, b);
    return cublaslt::multiply<C>(exec, left.rows(0, 0, m), right.rows(0, 0, n), onto, c);
  }
#endif
  const auto rounded = [&](Fp8Format format, bool has_columns, const View<const T**>& x) {
    const View<T**> to = arrays.take<T>(x.rows() * x.columns()).matrix(x.rows(), x.columns());
    if (formats.dtype == ProductDType::mxfp8 && has_columns)
      round_column_blocks<T>(exec, format, x, to);
    else if (formats.dtype == ProductDType::mxfp8)
      round_row_blocks<T>(exec, format, x, to);
    else if (has_columns)
      round_columns<T>(exec, format, x, to,
                       arrays.take<std::uint32_t>(column_maxima_workspace(x.rows(), x.columns())));
    else
      round_rows<T>(exec, format, x, to);
    return View<const T**>(to);
  };
  const View<const T**> left = rounded(formats.a, has_columns_of_a, a);
  const View<const T**> right = rounded(formats.b, has_columns_of_b, b);
  if (onto && onto.data() != c.data()) copy_rows<C, C>(exec, onto, c);
  gemm<T, C>(exec, transpose_a, transpose_b, 1, left, right, onto ? 1 : 0, c);
}

template <class T>
std::int64_t fp8_gemm_by_piece_workspace(ProductDType dtype, std::int64_t m, std::int64_t n,
                                         std::int64_t k, std::int64_t pieces, KernelForm form) {
  return operand_bytes<T>(dtype, m, k, pieces, true, form) +
         operand_bytes<T>(dtype, n, k, pieces, true, form) +
         bytes_for<compute_t<T>>(pending_sums(m, n, pieces, form));
}

template <class T>
void fp8_gemm_by_piece(const Exec& exec, Fp8Formats formats, View<const T**> a, View<const T**> b,
                       View<compute_t<T>**> c, std::int64_t pieces, View<std::byte*> workspace) {
  using Sum = compute_t<T>;
  const std::int64_t k = a.rows(), m = a.columns(), n = b.columns();
  require(pieces >= 1 && k % pieces == 0 && b.rows() == k, "fp8 product: A (", k, ", ", m,
          ") and B (", b.rows(), ", ", n, ") in ", pieces,
          " pieces of rows, expected equally many rows, and a multiple");
  const std::int64_t terms = k / pieces;
  Arrays arrays(workspace);
#if OSTRAKON_ON_DEVICE
  if (takes_codes()) {
    const View<Sum*> sums =
        arrays.take<Sum>(pending_sums(m, n, pieces, KernelForm::device_on_chip));
    const auto quantized = [&](Fp8Format format, const View<const T**>& x) {
      const Operand operand(formats.dtype, format, x.columns(), k, pieces, arrays);
      operand.quantize(exec, true, pieces, x);
      return operand;
    };
    const Operand left = quantized(formats.a, a), right = quantized(formats.b, b);
    // The pending sums have room for so many rows of C at a time.
    const std::int64_t slots = tree_slots(pieces) - 1;
    const std::int64_t room = slots == 0 ? m : sums.size() / (slots * n);
    const std::int64_t most_rows = room < m ? room / scale_tile_rows * scale_tile_rows : m;
    for (std::int64_t begin = 0; begin < m; begin += most_rows) {
      const std::int64_t end = std::min(m, begin + most_rows), rows = end - begin;
      const auto slot = [&](std::int64_t index) {
        return index == 0 ? c.row_range(begin, end)
                          : sums.range((index - 1) * rows * n, index * rows * n).matrix(rows, n);
      };
      for (std::int64_t piece = 0; piece < pieces; ++piece)
        sum_product<T>(exec, piece, pieces, terms, slot, [&](Sum own, View<Sum**> to) {
          cublaslt::multiply<Sum>(exec, left.rows(piece, begin, end), right.rows(piece, 0, n),
                                  own == 0 ? View<const Sum**>() : View<const Sum**>(to), to);
        });
    }
    return;
  }
#endif
  const View<Sum*> sums = arrays.take<Sum>(gemm_by_piece_workspace(m, n, pieces));
  const auto rounded = [&](Fp8Format format, const View<const T**>& x) {
    const View<T**> to = arrays.take<T>(k * x.columns()).matrix(k, x.columns());
    if (formats.dtype == ProductDType::mxfp8) {
      require(terms % mx_block == 0, "mxfp8 product: pieces of ", terms,
              " rows, expected a multiple of ", mx_block);
      round_column_blocks<T>(exec, format, x, to);
      return View<const T**>(to);
    }
    const auto maxima = arrays.take<std::uint32_t>(column_maxima_workspace(terms, x.columns()));
    for (std::int64_t piece = 0; piece < pieces; ++piece)
      round_columns<T>(exec, format, piece_of(x, piece, terms), piece_of(to, piece, terms), maxima);
    return View<const T**>(to);
  };
  const View<const T**> left = rounded(formats.a, a), right = rounded(formats.b, b);
  gemm_by_piece<T>(exec, left, right, c, pieces, sums);
}

#define OSTRAKON_INSTANTIATE_PRODUCT(T, C)                                                     \
  template void fp8_gemm<T, C>(const Exec&, Fp8Formats, Transpose, Transpose, View<const T**>, \
                               View<const T**>, View<const C**>, View<C**>, View<std::byte*>);
#define OSTRAKON_INSTANTIATE(T)                                                                  \
  template std::int64_t fp8_gemm_workspace<T>(ProductDType, std::int64_t, std::int64_t,          \
                                              std::int64_t, KernelForm);                         \
  template std::int64_t fp8_gemm_by_piece_workspace<T>(ProductDType, std::int64_t, std::int64_t, \
                                                       std::int64_t, std::int64_t, KernelForm);  \
  template void fp8_gemm_by_piece<T>(const Exec&, Fp8Formats, View<const T**>, View<const T**>,  \
                                     View<compute_t<T>**>, std::int64_t, View<std::byte*>);
OSTRAKON_FOR_ALL_NUMBERS(OSTRAKON_INSTANTIATE)
OSTRAKON_FOR_ALL_SUMS(OSTRAKON_INSTANTIATE_PRODUCT)
#undef OSTRAKON_INSTANTIATE_PRODUCT
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::math
