// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <ostrakon/model/decoder.hpp>

namespace ostrakon::model {

/// norm.weight/.bias and, unless embeddings are tied, output.weight, not laid out.
std::vector<Parameter> head_parameters(const DecoderSettings& settings);

/// Throws Error unless the head's weight can be this parameter: token.weight (vocabulary, width) at
/// the beginning of its segment, whose gradients are written as [token.weight, zeros].
void require_table(const Parameter& table, std::int64_t vocabulary, std::int64_t width);

/// The last unit: output (rows of compute_t<T>) = cross-entropy of norm(x) W^T with the targets, in
/// nats, x being its input (rows, width). W (vocabulary, width) is output.weight, or the first
/// parameter of `tied_to`, if embeddings are tied; null: it is its own. Saves nothing: backward
/// computes the losses itself, and where the weight is the other unit's and trained, writes all of
/// tied_gradients. Where a sequence is decoded, the output is the logits of the last row,
/// (vocabulary) of compute_t<T>.
///
/// Throws Error unless a segment of the flat parameter of `tied_to` begins with token.weight
/// (vocabulary, width).
template <class T>
std::unique_ptr<Unit<T>> make_head(const DecoderSettings& settings, const LeafShape& leaf,
                                   const Unit<T>* tied_to, const Frozen& frozen = {});

}  // namespace ostrakon::model
