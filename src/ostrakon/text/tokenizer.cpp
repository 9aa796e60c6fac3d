// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/text/tokenizer.hpp>

namespace ostrakon::texts {

std::unique_ptr<Tokenizer::Stream> Tokenizer::stream(bool) const { return nullptr; }

}  // namespace ostrakon::texts
