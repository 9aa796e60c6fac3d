// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/half.hpp>
#include <ostrakon/math/view.hpp>
#include <type_traits>

namespace ostrakon::math {

/// What logits are multiplied by, and the cap that they then approach: with a soft_cap above 0 they
/// become soft_cap * tanh(logit / soft_cap) (Gemma Team 2024, "logit soft-capping").
struct LogitForm {
  double scale = 1.0;
  double soft_cap = 0.0;
};

/// What is made of a linear layer's products before the softmax: scale * (product + bias), then
/// capped.
template <class T>
struct Logits {
  LogitForm form = {};
  View<const T*> bias = {};  ///< of the words that logits are of; empty: none

  bool are_products() const { return !bias && form.scale == 1.0 && form.soft_cap == 0.0; }
  /// Returns the logits of words [begin, end), with that part of the bias.
  Logits range(std::int64_t begin, std::int64_t end) const {
    return {form, bias ? bias.range(begin, end) : bias};
  }
};

/// Whether a row counts that is to predict this word: one below 0 says that it does not. Its loss
/// and the gradients of its logits are 0 then, whatever these are.
KOKKOS_INLINE_FUNCTION bool counts(std::int64_t target) { return target >= 0; }

/// What is minimized for a row of logits z with the target t, where L is the log of the sum of
/// exponentials of z: (1 - smoothing) (L - z[t]) + smoothing (L - mean of z) + z_loss L^2. Label
/// smoothing is that of torch.nn.functional.cross_entropy (Szegedy et al. 2016), the z-loss that of
/// PaLM (Chowdhery et al. 2022, section 5). By default it is the cross-entropy alone.
struct LossForm {
  double smoothing = 0.0;  ///< from 0 to 1
  double z_loss = 0.0;
  std::int64_t words = 1;  ///< of the vocabulary; is read with smoothing alone

  bool smooths() const { return smoothing > 0.0; }
};

/// The words that rows are to predict, -1 where a row does not count, what each row's loss is
/// multiplied by in gradients, and what the loss is.
template <class C>
struct Targets {
  View<const std::int32_t*> words;  ///< (rows)
  View<const C*> factors = {};      ///< (rows); empty: 1 for all
  LossForm form = {};

  /// `words_`: anything that converts to a view of words.
  template <class Words,
            class = std::enable_if_t<std::is_convertible<Words, View<const std::int32_t*>>::value>>
  Targets(const Words& words_, View<const C*> factors_ = {}, const LossForm& form_ = {})
      : words(words_), factors(factors_), form(form_) {}
  /// Returns the targets of rows [begin, end).
  Targets range(std::int64_t begin, std::int64_t end) const {
    return {words.range(begin, end), factors ? factors.range(begin, end) : factors, form};
  }
};

/// Makes logits of `products` (rows, words), in place.
template <class T>
void make_logits(const Exec& exec, const Logits<T>& logits, View<compute_t<T>**> products);

/// sums (rows) = the sums of the rows of logits (rows, words).
template <class C>
void sums_of_logits(const Exec& exec, View<const C**> logits, View<C*> sums);

/// Computes losses of logits (rows, words) and, unless empty, the logs of the rows' sums of
/// exponentials, of rows that do not count, too, and margins: the target's logit less the row's
/// largest one, 0 where no word is likelier than the target, and where a row does not count. All
/// arrays but logits have an element for each row. Factors are not read. Losses that are smoothed
/// have to be the rows' sums_of_logits() before the call.
template <class C>
void losses_of(const Exec& exec, View<const C**> logits, const Targets<C>& targets, View<C*> losses,
               View<C*> log_sums = {}, View<C*> margins = {});

// The next functions compute dlogits, the gradient of scale * the sum of losses times their factors
// by the products of which logits are made, rounded once: for what is not capped form.scale * scale
// * factor * ((1 + 2 z_loss L) softmax - (1 - smoothing) [is the target] - smoothing / words).

/// Computes losses, too, of which smoothed ones have to be as losses_of() takes them; logits are
/// clobbered. With 16 bits on a host dlogits may be in the memory
/// of the logits: gradient i of a row is written after logits up to 2 i + 1 have been read.
template <class T>
void losses_and_dlogits(const Exec& exec, const LogitForm& form, View<compute_t<T>**> logits,
                        const Targets<compute_t<T>>& targets, compute_t<T> scale,
                        View<compute_t<T>*> losses, View<T**> dlogits);

/// Computes those of words from `first` on, by the logs of the rows' sums of exponentials over all
/// words.
template <class T>
void dlogits_of(const Exec& exec, const LogitForm& form, View<const compute_t<T>**> logits,
                const Targets<compute_t<T>>& targets, View<const compute_t<T>*> log_sums,
                std::int64_t first, compute_t<T> scale, View<T**> dlogits);

/// dbias (words), unless empty, = the sums of the columns of dlogits, over `pieces` equal runs of
/// rows by the tree of piece_tree.hpp. room: bias_gradient_workspace() elements.
template <class T>
void bias_gradient(const Exec& exec, View<const T**> dlogits, View<compute_t<T>*> dbias,
                   std::int64_t pieces, View<compute_t<T>*> room);
std::int64_t bias_gradient_workspace(std::int64_t words, std::int64_t pieces);

}  // namespace ostrakon::math
