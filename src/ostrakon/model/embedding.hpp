// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <ostrakon/model/decoder.hpp>

namespace ostrakon::model {

/// token.weight and, if learned, position.weight, not laid out.
std::vector<Parameter> embedding_parameters(const DecoderSettings& settings, std::int64_t tokens);

/// The first unit: output (rows, width) = token.weight[token] (+ position.weight[position]).
///
/// One segment of its flat parameter begins with token.weight (vocabulary, width), which a head
/// with tied embeddings reads, too. Backward writes parameter_gradients, or adds to them where a
/// tied head was there before (gradients_opened).
template <class T>
std::unique_ptr<Unit<T>> make_embedding(const DecoderSettings& settings, const LeafShape& leaf,
                                        const Frozen& frozen = {});

}  // namespace ostrakon::model
