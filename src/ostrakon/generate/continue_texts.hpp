// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <ostrakon/generate/generator.hpp>
#include <ostrakon/generate/sampler.hpp>
#include <vector>

namespace ostrakon::train {

/// A text to be continued.
struct TokenPrompt {
  Generator::Tokens tokens;  ///< at least one
  SamplingSettings sampling;
};

/// Calls emit(which of the texts, token) for up to `count` tokens after each text, in their order;
/// a text ends where emit returns false. As many texts as the generator has sequences are computed
/// together, and others follow as these end. Where a text outgrows the context, the older half of
/// the context is dropped. In fp32 a text's tokens do not depend on the other texts, nor on how
/// many are computed together.
void continue_texts(Generator& generator, const std::vector<TokenPrompt>& texts, std::int64_t count,
                    const std::function<bool(std::size_t, std::int32_t)>& emit);

}  // namespace ostrakon::train
