// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/text/tokenizer.hpp>

namespace ostrakon::text {

std::unique_ptr<Tokenizer::Stream> Tokenizer::stream(bool) const { return nullptr; }

}  // namespace ostrakon::text
