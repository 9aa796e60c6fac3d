// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/view.hpp>

namespace ostrakon::math {

/// What is computed of a pair, a chosen and a rejected answer to one prompt: a number for each pair
/// in each of these arrays, in this order.
enum PairOutput : int {
  pair_loss,
  chosen_log_ratio,    ///< log of the answer's probability by the model, less the reference's
  rejected_log_ratio,  ///< the same of the rejected answer
  is_preferred,        ///< 1 if the chosen answer's log-ratio is the larger one, else 0
  pair_outputs         ///< how many arrays there are
};

/// Direct preference optimization (Rafailov et al. 2023, arXiv 2305.18290, equation 7):
/// loss = -log sigmoid(beta * (chosen_log_ratio - rejected_log_ratio)), natural logarithm.
///
/// Each pair has equally many neighbouring rows. token_losses (rows): -log p of the tokens that the
/// answers have, and 0 of all others. document_begins (rows): 0 in rows of the chosen answer, and
/// above 0 in those of the rejected one. references (2 * pairs): of each pair the reference's log
/// of the probability of the chosen answer, then of the rejected one. outputs: (pair_outputs,
/// pairs). factors (rows), unless empty: the derivatives of the pair's loss by token_losses.
///
/// Sums over a pair's rows are made in double, in an order that depends on their number alone, and
/// rounded to C before references are subtracted. So log-ratios are 0 where references are what
/// this function has computed by the same weights with references of 0.
template <class C>
void pair_losses(const Exec& exec, double beta, View<const C*> token_losses,
                 View<const std::int32_t*> document_begins, View<const float*> references,
                 View<C**> outputs, View<C*> factors = {});

}  // namespace ostrakon::math
