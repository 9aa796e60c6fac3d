// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/cross_entropy/linear_cross_entropy.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/attention/sequence_parts.hpp>
#include <ostrakon/math/cross_entropy/row_loss.hpp>
#include <ostrakon/math/cross_entropy/softmax_row.hpp>
#include <ostrakon/math/elementary.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/equal_sizes.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <ostrakon/math/rows/row_kernel.hpp>
#include <ostrakon/math/scratch.hpp>

namespace ostrakon::math {
namespace {

constexpr char kernel_name[] = "linear_cross_entropy";

constexpr std::int64_t logits_at_a_time = std::int64_t{1} << 22;  // 16 MiB of float
/// Largest number of logits of a chunk of rows, over all words. A device gets 1 GiB of float:
/// products of few rows leave most of it idle, and each chunk reads the weights and the sums of
/// their gradients.
constexpr std::int64_t logits_of_chunk(KernelForm form) {
  return is_of_device(form) ? std::int64_t{1} << 28 : logits_at_a_time;
}
constexpr std::int64_t most_rows_of_chunk(KernelForm form) {
  return is_of_device(form) ? 16384 : 1024;
}

/// Terms that float products sum at once: with chunks of this many rows, a sum over rows has the
/// bits of one product over all rows.
constexpr std::int64_t granule = 256;

/// Returns the number of rows whose logits exist at a time, large enough for efficient matrix
/// products.
std::int64_t chunk_rows(std::int64_t rows, std::int64_t vocabulary, KernelForm form = kernel_form) {
  const std::int64_t fitting = logits_of_chunk(form) / std::max<std::int64_t>(1, vocabulary);
  return std::min(rows, std::clamp<std::int64_t>(fitting / granule * granule, granule,
                                                 most_rows_of_chunk(form)));
}

/// Whether the gradients of logits are stored, as T, in the memory of the logits: gradient i of a
/// row is written after logits up to 2 i + 1 have been read.
template <class T>
constexpr bool stores_dlogits_in_place(KernelForm form) {
  return is_16bit<T> && !is_of_device(form);
}
template <class T>
constexpr bool dlogits_in_place = stores_dlogits_in_place<T>(kernel_form);

/// Returns the rows of a chunk if dlogits take no extra memory. With units for 16-bit products,
/// reading the weights and the sums of their gradients for every chunk would take longer than the
/// products. So there are more rows, but never more bytes than 128 rows with separate dlogits take
/// for the largest vocabularies.
template <class T>
std::int64_t chunk_rows_of(std::int64_t rows, std::int64_t vocabulary,
                           KernelForm form = kernel_form) {
  if (!stores_dlogits_in_place<T>(form)) return chunk_rows(rows, vocabulary, form);
  constexpr std::int64_t logits = std::int64_t{26} << 20, multiple = 64;
  const std::int64_t fitting = logits / std::max<std::int64_t>(1, vocabulary) / multiple * multiple;
  return std::min(rows, std::clamp<std::int64_t>(fitting, 128, 512));
}

/// Distance of rows of logits in elements: whole cache lines, to which products write faster. On a
/// host 16-bit rows are written several times as fast, as lines need not be read first; a device
/// uses its 16-bit matrix units at full rate only with multiples of 16 bytes.
std::int64_t logits_stride(std::int64_t vocabulary) {
  constexpr std::int64_t line = 16;
  return (vocabulary + line - 1) / line * line;
}

/// Elements of a bias's gradient in the workspace, if there is one; on a device what follows begins
/// at a vector.
std::int64_t bias_elements(std::int64_t vocabulary, KernelForm form, bool has_bias) {
  if (!has_bias) return 0;
  return is_of_device(form) ? logits_stride(vocabulary) : vocabulary;
}

/// Returns the number of words whose logits exist at a time for all rows. dx is a sum over words,
/// and has the same bits for any number of rows: a host adds terms in chunks that blocks do not
/// cut; a device adds the products of blocks, which therefore have as many words for any number of
/// rows.
std::int64_t block_words(std::int64_t rows, std::int64_t vocabulary,
                         KernelForm form = kernel_form) {
  constexpr std::int64_t of_device = 4096;
  if (is_of_device(form)) return std::min(vocabulary, of_device);
  const std::int64_t fitting = logits_at_a_time / std::max<std::int64_t>(1, rows);
  return std::min(vocabulary, std::max(granule, fitting / granule * granule));
}

/// Elements of the pending sums of gradients of so many words, of the weight or then of the bias.
std::int64_t tree_elements(std::int64_t words, std::int64_t width, std::int64_t pieces) {
  return std::max(gemm_by_piece_workspace(words, width, pieces),
                  bias_gradient_workspace(words, pieces));
}

/// Sizes of the workspace in the second pass of the backward by piece, in elements of compute_t<T>.
template <class T>
struct BlockRoom {
  BlockRoom(std::int64_t rows, std::int64_t width, std::int64_t vocabulary, std::int64_t pieces,
            KernelForm form = kernel_form)
      : logits(rows * block_words(rows, vocabulary, form)),
        dx(is_16bit<T> ? rows * width : 0),
        tree(tree_elements(block_words(rows, vocabulary, form), width, pieces)) {}
  std::int64_t size() const { return logits + dx + tree; }

  std::int64_t logits, dx, tree;
};

template <class T>
void check_shapes(const View<const T**>& x, const View<const T**>& weight,
                  const View<const std::int32_t*>& targets, const View<compute_t<T>*>& losses) {
  require(x.columns() == weight.columns() && weight.rows() >= 1, kernel_name, ": x (", x.rows(),
          ", ", x.columns(), ") and weight (", weight.rows(), ", ", weight.columns(),
          "), expected equal widths and a vocabulary of at least 1");
  require_size(kernel_name, "targets", targets, x.rows());
  require_size(kernel_name, "losses", losses, x.rows());
}

template <class T>
View<compute_t<T>**> chunk_logits(const Exec& exec, View<const T**> x, View<const T**> weight,
                                  View<compute_t<T>*> room, const Logits<T>& form,
                                  std::int64_t stride = 0) {
  View<compute_t<T>**> logits = room.matrix(x.rows(), weight.rows());
  if (stride > weight.rows() && x.rows() > 0)
    logits = room.matrix(x.rows(), stride).column_range(0, weight.rows());
  gemm<T>(exec, Transpose::no, Transpose::yes, 1, x, weight, 0, logits);
  make_logits<T>(exec, form, logits);
  return logits;
}

/// Returns where dlogits of `logits` are stored: in their memory, or in `room`.
template <class T>
View<T**> dlogits_at(const View<compute_t<T>**>& logits, const View<T*>& room) {
  if constexpr (!is_16bit<T>) {
    return logits;
  } else if constexpr (dlogits_in_place<T>) {
    static_assert(sizeof(compute_t<T>) == 2 * sizeof(T), "a row has room for two of dlogits");
    return {reinterpret_cast<T*>(logits.data()), logits.rows(), logits.columns(),
            2 * logits.stride(), logits.origin()};
  } else {
    return room.matrix(logits.rows(), logits.stride()).column_range(0, logits.columns());
  }
}

}  // namespace

template <class T>
std::int64_t linear_cross_entropy_workspace(std::int64_t rows, std::int64_t vocabulary,
                                            KernelForm form, bool has_bias) {
  const std::int64_t logits = chunk_rows_of<T>(rows, vocabulary, form) * logits_stride(vocabulary);
  return scratch_elements<T, compute_t<T>>(logits + bias_elements(vocabulary, form, has_bias)) +
         (is_16bit<T> && !stores_dlogits_in_place<T>(form) ? logits : 0);
}

template <class T>
bool takes_rows_at_once(std::int64_t rows, std::int64_t vocabulary, KernelForm form) {
  return chunk_rows_of<T>(rows, vocabulary, form) >= rows;
}

template <class T>
std::int64_t logits_read_again(std::int64_t vocabulary, KernelForm form) {
  using C = compute_t<T>;
  if (!is_of_device(form)) return vocabulary;
  return logit_parts<C>(vocabulary, planned_team_memory(form), planned_teams_of_cluster(form))
      .template read_again<C>(vocabulary);
}

template <class T>
void linear_cross_entropy_forward(const Exec& exec, View<const T**> x, View<const T**> weight,
                                  View<const std::int32_t*> targets, View<compute_t<T>*> losses,
                                  View<T*> workspace, const Logits<T>& logits,
                                  View<compute_t<T>*> margins) {
  check_shapes<T>(x, weight, targets, losses);
  require_size_if_any(kernel_name, "margins", margins, x.rows());
  Scratch<T> scratch(workspace, kernel_name);
  const std::int64_t chunk = chunk_rows_of<T>(x.rows(), weight.rows());
  const std::int64_t stride = logits_stride(weight.rows());
  const View<compute_t<T>*> room = scratch.template take<compute_t<T>>(chunk * stride);
  for (std::int64_t begin = 0; begin < x.rows(); begin += chunk) {
    const std::int64_t end = std::min(x.rows(), begin + chunk);
    const auto z = chunk_logits<T>(exec, x.row_range(begin, end), weight, room, logits, stride);
    losses_of<compute_t<T>>(exec, z, targets.range(begin, end), losses.range(begin, end), {},
                            margins ? margins.range(begin, end) : margins);
  }
}

template <class T>
void linear_cross_entropy_backward(const Exec& exec, View<const T**> x, View<const T**> weight,
                                   const Targets<compute_t<T>>& targets, compute_t<T> scale,
                                   View<compute_t<T>*> losses, View<T**> dx,
                                   View<compute_t<T>**> dweight, View<T*> workspace,
                                   const Logits<T>& logits, View<compute_t<T>*> dbias, bool adds) {
  using C = compute_t<T>;
  check_shapes<T>(x, weight, targets.words, losses);
  require_shape(kernel_name, "dx", dx, x.rows(), x.columns());
  if (dweight) require_shape(kernel_name, "dweight", dweight, weight.rows(), weight.columns());
  const std::int64_t chunk = chunk_rows_of<T>(x.rows(), weight.rows());
  require(!adds || (chunk >= x.rows() && !dbias), kernel_name, ": gradients of ", x.rows(),
          " rows are added to a sum, ", chunk,
          " rows at a time; expected all at once, and no gradient of a bias");
  Scratch<T> scratch(workspace, kernel_name);
  const std::int64_t stride = logits_stride(weight.rows());
  const View<C*> room = scratch.template take<C>(chunk * stride);
  const View<C*> bias_room =
      scratch.template take<C>(bias_elements(weight.rows(), kernel_form, bool(dbias)))
          .range(0, dbias ? weight.rows() : 0);
  const View<T*> stored_room =
      scratch.template take<T>(is_16bit<T> && !dlogits_in_place<T> ? chunk * stride : 0);
  if (dbias) require_size(kernel_name, "dbias", dbias, weight.rows());
  std::int64_t begin = 0;
  do {  // at least once, as dweight becomes 0 if there are no rows
    const std::int64_t end = std::min(x.rows(), begin + chunk);
    const View<const T**> x_chunk = x.row_range(begin, end);
    const View<C**> z = chunk_logits<T>(exec, x_chunk, weight, room, logits, stride);
    const View<T**> dlogits = dlogits_at<T>(z, stored_room);
    if (targets.form.smooths()) sums_of_logits<C>(exec, z, losses.range(begin, end));
    losses_and_dlogits<T>(exec, logits.form, z, targets.range(begin, end), scale,
                          losses.range(begin, end), dlogits);
    gemm<T>(exec, Transpose::no, Transpose::no, C(1), dlogits, weight, C(0),
            dx.row_range(begin, end));
    if (dweight)
      gemm<T>(exec, Transpose::yes, Transpose::no, C(1), dlogits, x_chunk,
              begin == 0 && !adds ? C(0) : C(1), dweight);
    bias_gradient<T>(exec, dlogits, begin == 0 ? dbias : bias_room, 1, {});
    if (dbias && begin > 0) add_to<C>(exec, View<const C*>(bias_room), dbias);
    begin = end;
  } while (begin < x.rows());
}

template <class T>
std::int64_t linear_cross_entropy_by_piece_workspace(std::int64_t rows, std::int64_t width,
                                                     std::int64_t vocabulary, std::int64_t pieces,
                                                     KernelForm form) {
  using C = compute_t<T>;
  const BlockRoom<T> room(rows, width, vocabulary, pieces, form);
  const std::int64_t chunk = chunk_rows(rows, vocabulary, form) * vocabulary;
  return scratch_elements<T, C>(rows + std::max(chunk, room.size())) +
         (is_16bit<T> ? room.logits : 0);
}

template <class T>
void linear_cross_entropy_backward_by_piece(const Exec& exec, View<const T**> x,
                                            View<const T**> weight,
                                            const Targets<compute_t<T>>& targets,
                                            compute_t<T> scale, View<compute_t<T>*> losses,
                                            View<T**> dx, View<compute_t<T>**> dweight,
                                            std::int64_t pieces, View<T*> workspace,
                                            const Logits<T>& logits, View<compute_t<T>*> dbias) {
  using C = compute_t<T>;
  check_shapes<T>(x, weight, targets.words, losses);
  require_shape(kernel_name, "dx", dx, x.rows(), x.columns());
  if (dweight) require_shape(kernel_name, "dweight", dweight, weight.rows(), weight.columns());
  const std::int64_t rows = x.rows(), words = weight.rows();
  const std::int64_t chunk = chunk_rows(rows, words), block = block_words(rows, words);
  const BlockRoom<T> sizes(rows, x.columns(), words, pieces);
  Scratch<T> scratch(workspace, kernel_name);
  const View<C*> log_sums = scratch.template take<C>(rows);
  const View<C*> room = scratch.template take<C>(std::max(chunk * words, sizes.size()));
  const View<T*> stored_room =
      stored_at(room, scratch.template take<T>(is_16bit<T> ? sizes.logits : 0));

  for (std::int64_t begin = 0; begin < rows; begin += chunk) {
    const std::int64_t end = std::min(rows, begin + chunk);
    const View<C**> z = chunk_logits<T>(exec, x.row_range(begin, end), weight, room, logits);
    if (targets.form.smooths()) sums_of_logits<C>(exec, z, losses.range(begin, end));
    losses_of<C>(exec, z, targets.range(begin, end), losses.range(begin, end),
                 log_sums.range(begin, end));
  }

  View<C**> dx_sum;
  if constexpr (is_16bit<T>)
    dx_sum = room.range(sizes.logits, sizes.logits + sizes.dx).matrix(rows, x.columns());
  else
    dx_sum = dx;
  const View<C*> tree = room.range(sizes.logits + sizes.dx, sizes.size());
  for (std::int64_t first = 0; first < words; first += block) {
    const std::int64_t end = std::min(words, first + block);
    const View<const T**> some = weight.row_range(first, end);
    const View<C**> z = chunk_logits<T>(exec, x, some, room.range(0, rows * (end - first)),
                                        logits.range(first, end));
    const View<T**> dlogits = stored_room.range(0, rows * (end - first)).matrix(rows, end - first);
    dlogits_of<T>(exec, logits.form, z, targets, log_sums, first, scale, dlogits);
    gemm<T, C>(exec, Transpose::no, Transpose::no, C(1), dlogits, some, first == 0 ? C(0) : C(1),
               dx_sum);
    if (dweight) gemm_by_piece<T>(exec, dlogits, x, dweight.row_range(first, end), pieces, tree);
    bias_gradient<T>(exec, dlogits, dbias ? dbias.range(first, end) : dbias, pieces, tree);
  }
  if constexpr (is_16bit<T>) copy_rows<C, T>(exec, View<const C**>(dx_sum), dx);
}

namespace {

constexpr int most_slots = 32;

/// Sums term(piece) by the tree of piece_tree.hpp.
template <class C, class Term>
KOKKOS_INLINE_FUNCTION C sum_over_pieces(std::int64_t pieces, const Term& term) {
  C sums[most_slots] = {};
  int used = 0;
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    sums[used++] = term(piece);
    for (std::int64_t rest = piece; rest % 2 == 1; rest /= 2, --used)
      sums[used - 2] += sums[used - 1];
  }
  for (; used > 1; --used) sums[used - 2] += sums[used - 1];
  return sums[0];
}

}  // namespace

template <class T>
std::int64_t cross_entropy_piece_workspace(std::int64_t rows, std::int64_t width,
                                           std::int64_t words, std::int64_t leaves,
                                           KernelForm form) {
  // Large enough for fewer words, too, of which more rows may exist at a time.
  const std::int64_t first =
      std::min(rows * words, std::max(logits_of_chunk(form), granule * words));
  const std::int64_t block = block_words(rows, words, form), logits = rows * block;
  const std::int64_t second = logits + tree_elements(block, width, leaves);
  return scratch_elements<T, compute_t<T>>(std::max(first, second)) + (is_16bit<T> ? logits : 0);
}

template <class T>
void cross_entropy_statistics(const Exec& exec, View<const T**> x, View<const T**> weight,
                              std::int64_t first_word, const Targets<compute_t<T>>& targets,
                              View<compute_t<T>**> statistics, View<T*> workspace,
                              const Logits<T>& logits) {
  using C = compute_t<T>;
  const std::int64_t rows = x.rows(), words = weight.rows();
  const View<const std::int32_t*> to_predict = targets.words;
  require_shape(kernel_name, "statistics", statistics, piece_statistics(targets.form), rows);
  require_size(kernel_name, "targets", to_predict, rows);
  Scratch<T> scratch(workspace, kernel_name);
  const std::int64_t chunk = chunk_rows(rows, words);
  const View<C*> room = scratch.template take<C>(chunk * words);
  const View<C*> largest = statistics.row(0), totals = statistics.row(1),
                 at_target = statistics.row(2);
  for (std::int64_t begin = 0; begin < rows; begin += chunk) {
    const std::int64_t end = std::min(rows, begin + chunk);
    const View<C**> all = chunk_logits<T>(exec, x.row_range(begin, end), weight, room, logits);
    if (targets.form.smooths()) sums_of_logits<C>(exec, all, statistics.row(3).range(begin, end));
#if OSTRAKON_ON_DEVICE
    for_each_row_of_logits<C>(
        exec, "cross_entropy_piece", end - begin, words,
        KOKKOS_LAMBDA(const LogitRow<C>& row, std::int64_t r) {
          const auto z = all.row(r);
          const Softmax<C> both = softmax_of(row, own_softmax<C>(row, z));
          const C most = both.largest, total = both.total;
#else
    for_each_row(
        exec, "cross_entropy_piece", end - begin, words,
        KOKKOS_LAMBDA(const Row& row, std::int64_t r) {
          const auto z = all.row(r);
          const C most = row.maximum_of([](std::int64_t, C logit) { return logit; }, z[0], z);
          const C total = row.template sum_of<C>(
              [=](std::int64_t, C logit) { return fast_exp(logit - most); }, z);
#endif
          row.once([&] {
            const std::int64_t target = to_predict[begin + r] - first_word;
            largest[begin + r] = most;
            totals[begin + r] = total;
            at_target[begin + r] = target >= 0 && target < words ? z[target] : C(0);
          });
        });
  }
}

template <class C>
void combine_statistics(const Exec& exec, View<const C**> statistics, std::int64_t pieces,
                        std::int64_t words, const Targets<C>& targets, View<C*> losses,
                        View<C*> log_sums, View<C*> margins) {
  const std::int64_t rows = statistics.columns(), of_piece = statistics.rows() / pieces;
  require(of_piece >= piece_statistics(targets.form) && of_piece * pieces == statistics.rows(),
          kernel_name, ": ", statistics.rows(), " rows of statistics of ", pieces,
          " pieces, expected ", piece_statistics(targets.form), " for each");
  const View<const std::int32_t*> to_predict = targets.words;
  const RowLoss<C> form(targets.form);
  require_size(kernel_name, "targets", to_predict, rows);
  require_size(kernel_name, "losses", losses, rows);
  require_size(kernel_name, "log_sums", log_sums, rows);
  require_size_if_any(kernel_name, "margins", margins, rows);
  for_each_item(
      exec, "cross_entropy_combine", rows, KOKKOS_LAMBDA(std::int64_t r) {
        const auto of = [&](std::int64_t piece, int which) {
          return statistics(piece * of_piece + which, r);
        };
        C largest = of(0, 0);
        for (std::int64_t piece = 1; piece < pieces; ++piece)
          largest = of(piece, 0) > largest ? of(piece, 0) : largest;
        const C total = sum_over_pieces<C>(pieces, [&](std::int64_t piece) {
          return of(piece, 1) * fast_exp(of(piece, 0) - largest);
        });
        const C of_logits =
            form.smooths()
                ? sum_over_pieces<C>(pieces, [&](std::int64_t piece) { return of(piece, 3); })
                : C(0);
        const std::int64_t target = to_predict[r];
        const C log_total = log(total), at_target = counts(target) ? of(target / words, 2) : C(0);
        losses[r] = counts(target) ? form.loss(largest, log_total, at_target, of_logits) : C(0);
        if (margins) margins[r] = counts(target) ? at_target - largest : C(0);
        log_sums[r] = largest + log_total;
      });
}

template <class T>
void cross_entropy_gradients(const Exec& exec, View<const T**> x, View<const T**> weight,
                             std::int64_t first_word, const Targets<compute_t<T>>& targets,
                             View<const compute_t<T>*> log_sums, compute_t<T> scale,
                             View<compute_t<T>**> dx, View<compute_t<T>**> dweight,
                             std::int64_t leaves, View<T*> workspace, const Logits<T>& logits,
                             View<compute_t<T>*> dbias) {
  using C = compute_t<T>;
  const std::int64_t rows = x.rows(), words = weight.rows();
  const std::int64_t block = block_words(rows, words);
  const std::int64_t tree = tree_elements(block, x.columns(), leaves);
  require_shape(kernel_name, "dx", dx, rows, x.columns());
  Scratch<T> scratch(workspace, kernel_name);
  const View<C*> room = scratch.template take<C>(rows * block + tree);
  const View<T*> stored = stored_at(room, scratch.template take<T>(is_16bit<T> ? rows * block : 0));
  for (std::int64_t first = 0; first < words; first += block) {
    const std::int64_t end = std::min(words, first + block);
    const View<const T**> some = weight.row_range(first, end);
    const View<C**> z = chunk_logits<T>(exec, x, some, room.range(0, rows * (end - first)),
                                        logits.range(first, end));
    const View<T**> dlogits = stored.range(0, rows * (end - first)).matrix(rows, end - first);
    dlogits_of<T>(exec, logits.form, z, targets, log_sums, first_word + first, scale, dlogits);
    gemm<T, C>(exec, Transpose::no, Transpose::no, C(1), dlogits, some, first == 0 ? C(0) : C(1),
               dx);
    const View<C*> pending = room.range(rows * block, rows * block + tree);
    if (dweight) gemm_by_piece<T>(exec, dlogits, x, dweight.row_range(first, end), leaves, pending);
    bias_gradient<T>(exec, dlogits, dbias ? dbias.range(first, end) : dbias, leaves, pending);
  }
}

template void combine_statistics<float>(const Exec&, View<const float**>, std::int64_t,
                                        std::int64_t, const Targets<float>&, View<float*>,
                                        View<float*>, View<float*>);
template void combine_statistics<double>(const Exec&, View<const double**>, std::int64_t,
                                         std::int64_t, const Targets<double>&, View<double*>,
                                         View<double*>, View<double*>);

#define OSTRAKON_INSTANTIATE(T)                                                                    \
  template std::int64_t linear_cross_entropy_workspace<T>(std::int64_t, std::int64_t, KernelForm,  \
                                                          bool);                                   \
  template bool takes_rows_at_once<T>(std::int64_t, std::int64_t, KernelForm);                     \
  template std::int64_t logits_read_again<T>(std::int64_t, KernelForm);                            \
  template void linear_cross_entropy_forward<T>(const Exec&, View<const T**>, View<const T**>,     \
                                                View<const std::int32_t*>, View<compute_t<T>*>,    \
                                                View<T*>, const Logits<T>&, View<compute_t<T>*>);  \
  template void linear_cross_entropy_backward<T>(                                                  \
      const Exec&, View<const T**>, View<const T**>, const Targets<compute_t<T>>&, compute_t<T>,   \
      View<compute_t<T>*>, View<T**>, View<compute_t<T>**>, View<T*>, const Logits<T>&,            \
      View<compute_t<T>*>, bool);                                                                  \
  template std::int64_t linear_cross_entropy_by_piece_workspace<T>(                                \
      std::int64_t, std::int64_t, std::int64_t, std::int64_t, KernelForm);                         \
  template void linear_cross_entropy_backward_by_piece<T>(                                         \
      const Exec&, View<const T**>, View<const T**>, const Targets<compute_t<T>>&, compute_t<T>,   \
      View<compute_t<T>*>, View<T**>, View<compute_t<T>**>, std::int64_t, View<T*>,                \
      const Logits<T>&, View<compute_t<T>*>);                                                      \
  template std::int64_t cross_entropy_piece_workspace<T>(std::int64_t, std::int64_t, std::int64_t, \
                                                         std::int64_t, KernelForm);                \
  template void cross_entropy_statistics<T>(const Exec&, View<const T**>, View<const T**>,         \
                                            std::int64_t, const Targets<compute_t<T>>&,            \
                                            View<compute_t<T>**>, View<T*>, const Logits<T>&);     \
  template void cross_entropy_gradients<T>(                                                        \
      const Exec&, View<const T**>, View<const T**>, std::int64_t, const Targets<compute_t<T>>&,   \
      View<const compute_t<T>*>, compute_t<T>, View<compute_t<T>**>, View<compute_t<T>**>,         \
      std::int64_t, View<T*>, const Logits<T>&, View<compute_t<T>*>);
OSTRAKON_FOR_ALL_NUMBERS(OSTRAKON_INSTANTIATE)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::math
